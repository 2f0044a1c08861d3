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
        /// Text around each holder in the body of the release, if there are several locks.
        around: Vec<(String, String)>,
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
                around: Vec::new(),
                holders: String::new(),
            }
        };
        let own_lock = |lock| format!("bench/{run}/{number}/{lock}");
        let all = format!("bench/{run}/all");
        match workload {
            Workload::Lock => one(&format!("bench/{run}/{number}"), ""),
            Workload::Contended => one(&all, ""),
            Workload::Shared => one(&all, ",\"mode\":\"shared\""),
            Workload::Semaphore { permits } => {
                one(&all, &format!(",\"mode\":\"semaphore\",\"limit\":{permits}"))
            }
            Workload::Multi { locks } => {
                let names: Vec<String> = (0..locks)
                    .map(|lock| format!("{{\"name\":\"{}\"}}", own_lock(lock)))
                    .collect();
                let around = |lock| {
                    (
                        format!("{{\"lock\":\"{}\",\"holder\":\"", own_lock(lock)),
                        "\"}".to_owned(),
                    )
                };
                let acquire = format!(
                    "{{\"session\":\"{session}\",\"wait_ms\":null,\"locks\":[{}]}}",
                    names.join(",")
                );
                let release = format!("{{\"session\":\"{session}\",\"holders\":[{{}}]}}");
                Cycle::Lock {
                    acquire: Template::new(wire, "POST", "/v1/multilock/acquire", &acquire),
                    release: Template::new(wire, "POST", "/v1/multilock/release", &release),
                    around: (0..locks).map(around).collect(),
                    holders: String::new(),
                }
            }
            Workload::Batch { locks } => {
                let path = |lock, verb: &str| format!("{{\"path\":\"/v1/locks/{}/{verb}\"", own_lock(lock));
                let acquires: Vec<String> = (0..locks)
                    .map(|lock| {
                        format!(
                            "{},\"body\":{{\"session\":\"{session}\"}}}}",
                            path(lock, "acquire")
                        )
                    })
                    .collect();
                let around = |lock| {
                    let before = format!(
                        "{},\"body\":{{\"session\":\"{session}\",\"holder\":\"",
                        path(lock, "release")
                    );
                    (before, "\"}}".to_owned())
                };
                let acquire = format!("{{\"requests\":[{}]}}", acquires.join(","));
                Cycle::Lock {
                    acquire: Template::new(wire, "POST", "/v1/batch", &acquire),
                    release: Template::new(wire, "POST", "/v1/batch", "{\"requests\":[{}]}"),
                    around: (0..locks).map(around).collect(),
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
                around,
                holders,
            } => {
                let granted = wire.send(acquire, "", "").await.context("an acquire")?;
                moments.granted();
                write_holders(granted, around, holders)?;
                moments.releasing();
                let released = wire.send(release, "", holders).await.context("a release")?;
                let has_problem = texts(released, "code").next().is_some();
                anyhow::ensure!(!has_problem, "a release of a batch has failed");
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
fn write_holders(granted: &[u8], around: &[(String, String)], to: &mut String) -> anyhow::Result<()> {
    to.clear();
    let mut holders = texts(granted, "holder");
    if around.is_empty() {
        to.push_str(holders.next().context("a grant without a holder")?);
        return Ok(());
    }
    for (before, after) in around {
        let holder = holders.next().context("fewer grants than locks")?;
        if !to.is_empty() {
            to.push(',');
        }
        to.push_str(before);
        to.push_str(holder);
        to.push_str(after);
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
        let around = ["a", "b"].map(|lock| (format!("{lock}="), ";".to_owned()));
        write_holders(grants, &around, &mut to).unwrap();
        assert_eq!(to, "a=1;,b=2;");
        assert!(write_holders(b"{}", &[], &mut to).is_err());
    }
}
