//! The four-letter word that shows whether a server serves; nothing else of the protocol.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Time limit of an answer. A running server answers at once; one that takes longer is asked again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns whether a server serves: only then does it report its mode. (`ruok` is answered too early.)
pub async fn serves(server: &str) -> bool {
    let asked = tokio::time::timeout(ANSWER_TIMEOUT, ask(server, "srvr")).await;
    matches!(asked, Ok(Ok(answer)) if answer.lines().any(|line| line.starts_with("Mode: ")))
}

async fn ask(server: &str, word: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(word.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
