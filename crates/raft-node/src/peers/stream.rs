//! Streams between peers: TCP, with TLS if configured. Programs that serve clients have no other kind.
//! With the feature `simulation` there are simulated ones, which have no listener.

use std::io;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::TcpStream;
use transport_security::{HandshakeError, PeerName, PeerTls, Stream};

use crate::ids::NodeId;

#[cfg(feature = "simulation")]
pub use crate::simulation::{PeerListener, PeerStream, Protected, ReadHalf, WriteHalf};

#[cfg(not(feature = "simulation"))]
pub use tokio::net::{TcpListener as PeerListener, TcpStream as PeerStream};
#[cfg(not(feature = "simulation"))]
pub use transport_security::{ReadHalf, Stream as Protected, WriteHalf};

/// Maximum time without a TCP acknowledgement before the connection is closed. While a
/// network is cut, TCP retransmits after pauses that double each time; a question after the repair would wait for the end
/// of such a pause, as long as the cut has lasted. A new connection waits for a second at most. Twice that, for lines over
/// continents that lose packets.
const UNACKNOWLEDGED: Duration = Duration::from_secs(2);

/// Protects a connection to the node `to`, which this node opened.
pub async fn protect_outgoing(
    stream: PeerStream,
    to: NodeId,
    tls: Option<&PeerTls>,
) -> io::Result<Protected> {
    let socket = match socket_of(stream) {
        Ok(socket) => socket,
        Err(simulated) => return Ok(simulated),
    };
    setsockopt(
        &socket,
        sockopt::TcpUserTimeout,
        &(UNACKNOWLEDGED.as_millis() as u32),
    )?;
    let stream = match tls {
        Some(tls) => tls.connect(to, socket).await?,
        None => Stream::Plain(socket),
    };
    Ok(protected(stream))
}

/// Protects a connection that a peer opened. Returns the stream, and the node of the caller's certificate. Without TLS the caller's
/// claim is trusted.
pub async fn protect_incoming(
    stream: PeerStream,
    tls: Option<&PeerTls>,
) -> Result<(Protected, Option<PeerName>), HandshakeError> {
    let socket = match socket_of(stream) {
        Ok(socket) => socket,
        Err(simulated) => return Ok((simulated, None)),
    };
    let Some(tls) = tls else {
        return Ok((protected(Stream::Plain(socket)), None));
    };
    let (stream, name) = tls.accept(socket).await?;
    Ok((protected(stream), Some(name)))
}

#[cfg(not(feature = "simulation"))]
fn socket_of(stream: PeerStream) -> Result<TcpStream, Protected> {
    Ok(stream)
}

#[cfg(not(feature = "simulation"))]
fn protected(stream: Stream) -> Protected {
    stream
}

#[cfg(feature = "simulation")]
fn socket_of(stream: PeerStream) -> Result<TcpStream, Protected> {
    match stream {
        PeerStream::Tcp(socket) => Ok(socket),
        PeerStream::Simulated(line) => Err(Protected::Simulated(line)),
    }
}

#[cfg(feature = "simulation")]
fn protected(stream: Stream) -> Protected {
    Protected::Real(stream)
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::getsockopt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn missing_acknowledgement_ends_a_connection_soon() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = PeerStream::connect(&listener.local_addr().unwrap().to_string())
            .await
            .unwrap();
        let line = protect_outgoing(stream, 2, None).await.unwrap();
        #[cfg(feature = "simulation")]
        let Protected::Real(line) = line else {
            panic!("it is not simulated")
        };
        let Stream::Plain(socket) = line else {
            panic!("there is no TLS")
        };
        let told = getsockopt(&socket, sockopt::TcpUserTimeout).unwrap();
        assert_eq!(u128::from(told), UNACKNOWLEDGED.as_millis());
    }
}
