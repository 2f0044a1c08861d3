//! Operation of one HTTP client: request templates that are built once, and the checks of the responses.

use std::fmt::Write as _;

use anyhow::Context;
use cli_support::api_client::RenewedSession;

use super::{ApiClient, tree};
use crate::drive::{Client, Moments};
use crate::wire::{Template, Wire, texts};
use crate::workload::{Mix, Workload};

/// Client with its connection, and the session of its locks.
pub(crate) struct Caller {
    pub wire: Wire,
    pub cycle: Cycle,
    pub session: Option<(ApiClient, RenewedSession)>,
}

impl Client for Caller {
    async fn once(&mut self, moments: &mut Moments) -> anyhow::Result<()> {
        self.cycle.once(&mut self.wire, moments).await
    }

    async fn close(self) -> anyhow::Result<()> {
        let Some((mut api, session)) = self.session else {
            return Ok(());
        };
        anyhow::ensure!(!session.is_lost(), "the session of a client was lost");
        api.close_session(session.id()).await.context("closing a session")
    }
}

/// Operation that a client repeats.
pub(crate) enum Cycle {
    /// One lock, or several at once.
    Lock {
        acquire: Template,
        release: Template,
        /// Names of the locks, if there are several: a release contains them beside their holders.
        locks: Vec<String>,
        /// Holders for the body of the next release.
        holders: String,
    },
    /// Creates a znode with a new name every time.
    Create {
        create: Template,
        name: String,
        number: u64,
    },
    /// The same request every time.
    One(Template),
    /// A read or a write, at random.
    Mixed { get: Template, set: Template, mix: Mix },
}

impl Cycle {
    /// Creates the operation of the client with this number.
    pub fn new(
        wire: &Wire,
        workload: Workload,
        run: &str,
        number: usize,
        session: &str,
        data_bytes: usize,
    ) -> Self {
        let own = format!("/v1/znodes/{}/{number}", tree(run));
        let data = format!("{{\"data\":\"{}\"}}", "x".repeat(data_bytes));
        let one = |lock: &str, more: &str| {
            let acquire = format!("{{\"session\":\"{session}\",\"wait_ms\":null{more}}}");
            let release = format!("{{\"session\":\"{session}\",\"holder\":\"{{}}\"}}");
            Cycle::Lock {
                acquire: Template::new(wire, "POST", &format!("/v1/locks/{lock}/acquire"), &acquire),
                release: Template::new(wire, "POST", &format!("/v1/locks/{lock}/release"), &release),
                locks: Vec::new(),
                holders: String::new(),
            }
        };
        let all = format!("bench/{run}/all");
        match workload {
            Workload::Lock => one(&format!("bench/{run}/{number}"), ""),
            Workload::Contended => one(&all, ""),
            Workload::Shared => one(&all, ",\"mode\":\"shared\""),
            Workload::Semaphore { permits } => {
                one(&all, &format!(",\"mode\":\"semaphore\",\"limit\":{permits}"))
            }
            Workload::Multi { locks } => {
                let locks: Vec<String> = (0..locks)
                    .map(|lock| format!("bench/{run}/{number}/{lock}"))
                    .collect();
                let names: Vec<String> = locks
                    .iter()
                    .map(|lock| format!("{{\"name\":\"{lock}\"}}"))
                    .collect();
                let acquire = format!(
                    "{{\"session\":\"{session}\",\"wait_ms\":null,\"locks\":[{}]}}",
                    names.join(",")
                );
                let release = format!("{{\"session\":\"{session}\",\"holders\":[{{}}]}}");
                Cycle::Lock {
                    acquire: Template::new(wire, "POST", "/v1/multilock/acquire", &acquire),
                    release: Template::new(wire, "POST", "/v1/multilock/release", &release),
                    locks,
                    holders: String::new(),
                }
            }
            Workload::Create => Cycle::Create {
                create: Template::new(wire, "POST", &format!("{own}/{{}}"), &data),
                name: String::new(),
                number: 0,
            },
            Workload::Set => Cycle::One(Template::new(wire, "PUT", &own, &data)),
            Workload::Get => Cycle::One(Template::new(wire, "GET", &own, "")),
            Workload::Mixed { reads } => Cycle::Mixed {
                get: Template::new(wire, "GET", &own, ""),
                set: Template::new(wire, "PUT", &own, &data),
                mix: Mix::new(reads, number),
            },
            Workload::Sequential => {
                unreachable!("the command line offers this workload over ZooKeeper's protocol only")
            }
        }
    }

    async fn once(&mut self, wire: &mut Wire, moments: &mut Moments) -> anyhow::Result<()> {
        match self {
            Cycle::Lock {
                acquire,
                release,
                locks,
                holders,
            } => {
                let granted = wire.send(acquire, "", "").await.context("an acquire")?;
                moments.granted();
                write_holders(granted, locks, holders)?;
                moments.releasing();
                wire.send(release, "", holders).await.context("a release")?;
            }
            Cycle::Create { create, name, number } => {
                name.clear();
                write!(name, "n{number:010}").expect("a String takes all");
                *number += 1;
                wire.send(create, name, "").await.context("a create")?;
            }
            Cycle::One(request) => {
                wire.send(request, "", "").await?;
            }
            Cycle::Mixed { get, set, mix } => {
                let request = if mix.next_reads() { get } else { set };
                wire.send(request, "", "").await?;
            }
        }
        Ok(())
    }
}

/// Writes the holders of a grant for the body of the release.
fn write_holders(granted: &[u8], locks: &[String], to: &mut String) -> anyhow::Result<()> {
    to.clear();
    let mut holders = texts(granted, "holder");
    if locks.is_empty() {
        to.push_str(holders.next().context("a grant without a holder")?);
        return Ok(());
    }
    for lock in locks {
        let holder = holders.next().context("fewer grants than locks")?;
        if !to.is_empty() {
            to.push(',');
        }
        write!(to, "{{\"lock\":\"{lock}\",\"holder\":\"{holder}\"}}").expect("a String takes all");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granted_locks_are_released() {
        let mut to = String::new();
        write_holders(br#"{"lock":"a","holder":"h-1","holds":1}"#, &[], &mut to).unwrap();
        assert_eq!(to, "h-1");
        let grants = br#"{"holders":[{"lock":"a","holder":"1"},{"lock":"b","holder":"2"}]}"#;
        write_holders(grants, &["a".to_owned(), "b".to_owned()], &mut to).unwrap();
        assert_eq!(to, r#"{"lock":"a","holder":"1"},{"lock":"b","holder":"2"}"#);
        assert!(write_holders(b"{}", &[], &mut to).is_err());
    }
}
