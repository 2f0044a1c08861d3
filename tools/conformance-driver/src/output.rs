//! Lines to the suite: replies, events, and the log of the client.

use std::io::{self, Write};
use std::sync::Arc;

use lock_client::{Error, Loss};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Writes one line.
pub fn say(line: &Value) {
    let mut out = io::stdout().lock();
    // Without a reader the suite has ended, and so will stdin.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Error of a command.
#[derive(Debug)]
pub enum Failure {
    /// Error of the client.
    Client(Error),
    /// The command makes no sense, or a block has failed with this text.
    Usage(String),
    /// The suite has cancelled the command.
    Cancelled,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl Failure {
    pub fn usage(error: impl ToString) -> Self {
        Self::Usage(error.to_string())
    }

    /// Returns the document of the error.
    pub fn document(&self) -> Value {
        let error = match self {
            Self::Cancelled => return json!({ "kind": "cancelled", "message": "the command was cancelled" }),
            Self::Usage(text) => return json!({ "kind": "usage", "message": text }),
            Self::Client(error) => error,
        };
        let message = error.to_string();
        match error {
            Error::Refused(refusal) => {
                json!({ "kind": "refused", "code": refusal.code.word(), "message": message })
            }
            // The suite knows the end of a lease by the code of the API.
            Error::Lost(Loss::LeaseExpired) => {
                json!({ "kind": "refused", "code": "lease_expired", "message": message })
            }
            Error::Unavailable(_) => json!({ "kind": "unavailable", "message": message }),
            Error::Unknown(_) => json!({ "kind": "unknown", "message": message }),
            Error::Lost(loss) => {
                let mut document = loss_fields(loss);
                document["kind"] = "lost".into();
                document["message"] = format!("{}: {message}", loss.word()).into();
                document
            }
            other => json!({ "kind": "usage", "message": other.to_string() }),
        }
    }
}

/// Returns the fields of a loss.
pub fn loss_fields(loss: &Loss) -> Value {
    let (by, detail) = match loss {
        Loss::Broken { by, reason } => (by.as_deref(), Some(reason.as_str())),
        Loss::Deleted { by } => (by.as_deref(), None),
        _ => (None, None),
    };
    json!({ "reason": loss.word(), "by": by, "detail": detail })
}

/// Everything that the client has logged.
#[derive(Debug, Clone, Default)]
pub struct Log(pub Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        io::stderr().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl Log {
    /// Returns the lines.
    pub fn lines(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.0.lock()).into_owned();
        text.lines().map(str::to_owned).collect()
    }
}
