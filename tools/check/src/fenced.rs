//! A resource outside of the cluster, read and written by whoever holds a lock: with fencing tokens checked no update is
//! lost, whatever happens to the clients. Without, a client that was paused past its session loses some: a run without the
//! check is the control that shows that a harness sees losses.

use serde::{Deserialize, Serialize};

use crate::history::ClientId;
use crate::verdict::Verdict;

/// One attempt to write, as the resource saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Who wrote.
    pub client: ClientId,
    /// Under which token.
    pub token: u64,
    /// The value that the client had read, and made the new one of.
    pub read: u64,
    /// The new value, unlike all others.
    pub value: u64,
    /// Whether the resource took it.
    pub accepted: bool,
}

/// Checks all attempts, in the order in which the resource decided over them. It began with the value `first`.
pub fn check(first: u64, writes: &[Write]) -> Verdict {
    let mut contradictions = Vec::new();
    let mut now = first;
    let mut last: Option<&Write> = None;
    for write in writes.iter().filter(|write| write.accepted) {
        if write.read != now {
            contradictions.push(format!(
                "an update is lost: client {} with token {} wrote {} over {now}{}, and had read {}",
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
                "an update is lost: client 1 with token 1 wrote 11 over 20 of client 2 with token 2, and had read 10",
                "client 1 wrote 11 with token 1, after client 2 with token 2",
            ]
        );
    }
}
