//! Checker of a resource outside of the cluster that lock holders read and write. If the resource
//! checks fencing tokens, no update is lost, whatever happens to the clients. Without the check a
//! client that was paused past its session's end loses updates: a run without the check is the
//! control that shows that the harness detects losses.

use serde::{Deserialize, Serialize};

use crate::history::ClientId;
use crate::verdict::Verdict;

/// One write attempt, in the resource's own record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Client that wrote.
    pub client: ClientId,
    /// Fencing token that the client sent.
    pub token: u64,
    /// Value that the client had read, and from which it computed the new one.
    pub read: u64,
    /// New value, unique within the run.
    pub value: u64,
    /// The resource's decision: `true` if it accepted the write.
    pub accepted: bool,
}

/// Checks all attempts, in the order in which the resource decided them. Its initial value is
/// `first`.
pub fn check(first: u64, writes: &[Write]) -> Verdict {
    let mut contradictions = Vec::new();
    let mut now = first;
    let mut last: Option<&Write> = None;
    for write in writes.iter().filter(|write| write.accepted) {
        if write.read != now {
            contradictions.push(format!(
                "lost update: client {} with token {} wrote {} over {now}{}, but had read {}",
                write.client,
                write.token,
                write.value,
                last.map_or(String::new(), |last| format!(
                    " of client {} with token {}",
                    last.client, last.token
                )),
                write.read
            ));
        }
        if let Some(last) = last.filter(|last| last.token > write.token) {
            contradictions.push(format!(
                "client {} wrote {} with token {}, after client {} with token {}",
                write.client, write.value, write.token, last.client, last.token
            ));
        }
        now = write.value;
        last = Some(write);
    }
    Verdict::of(contradictions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(client: ClientId, token: u64, read: u64, value: u64, accepted: bool) -> Write {
        Write {
            client,
            token,
            read,
            value,
            accepted,
        }
    }

    #[test]
    fn chain_of_writes_is_valid() {
        let writes = [
            write(1, 1, 0, 10, true),
            write(2, 2, 10, 20, true),
            write(1, 1, 10, 11, false),
        ];
        assert_eq!(check(0, &writes), Verdict::Valid);
    }

    #[test]
    fn lost_update_is_reported() {
        let writes = [
            write(1, 1, 0, 10, true),
            write(2, 2, 10, 20, true),
            write(1, 1, 10, 11, true),
        ];
        let Verdict::Violated(lines) = check(0, &writes) else {
            panic!("a lost update passed");
        };
        assert_eq!(
            lines,
            [
                "lost update: client 1 with token 1 wrote 11 over 20 of client 2 with token 2, but had read 10",
                "client 1 wrote 11 with token 1, after client 2 with token 2",
            ]
        );
    }
}
