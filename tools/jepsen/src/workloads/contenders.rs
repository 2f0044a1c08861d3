//! Record of the contenders of a run that belong to a lease or a session and to no connection, with all that
//! their clients learned of them. The workloads `leases` and `queued` share it.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::Result;
use lockgate_check::contenders::{self, Contender, Evidence, Fact};
use lockgate_check::sessions::Rules;
use lockgate_check::{Nanos, Verdict, client_view};
use parking_lot::Mutex;

use super::disturbances::{DisturbanceMonitor, Required};
use super::highlights::Highlights;
use super::lock_history::{self, KnownGrant};
use super::{Span, Tone};
use crate::client::nanos;
use crate::record::{Tally, write_line};
use crate::world::World;

/// Bound for the end of a silent contender, and for the end of a hold by its maximum time, in an undisturbed
/// cluster: as for sessions, a tick of 50 ms and the delays of an overloaded machine.
const GRACE: Duration = Duration::from_millis(1500);

/// All contenders of a run.
pub struct Contenders {
    known: Mutex<Vec<Contender>>,
    /// Counts of the calls.
    pub tally: Tally,
    /// Monitor of disturbances.
    pub disturbances: DisturbanceMonitor,
    highlights: Highlights,
}

/// Index of a contender among all of the run.
pub type Index = usize;

impl Contenders {
    /// Creates the record of a run.
    pub fn new() -> Self {
        Self {
            known: Mutex::default(),
            tally: Tally::default(),
            disturbances: DisturbanceMonitor::new(Required::Majority),
            highlights: Highlights::default(),
        }
    }

    /// Adds a contender.
    pub fn add(&self, contender: Contender) -> Index {
        let mut known = self.known.lock();
        known.push(contender);
        known.len() - 1
    }

    /// Adds evidence about a contender.
    pub fn learn(&self, contender: Index, invoked: Nanos, returned: Nanos, fact: Fact) {
        self.known.lock()[contender].evidence.push(Evidence {
            invoked,
            returned,
            fact,
        });
    }

    /// Checks the contenders, and the servers' record of the locks.
    pub async fn check(&self, world: &World, locks: &[String]) -> Result<Vec<(String, Verdict)>> {
        let last = world.now();
        let known = self.known.lock().clone();
        let beliefs = contenders::beliefs(&known);
        let grants: Vec<KnownGrant> = known
            .iter()
            .flat_map(|contender| {
                let grants = contender.evidence.iter().filter_map(|it| match it.fact {
                    Fact::Granted(token) => Some((token, it.returned)),
                    _ => None,
                });
                grants.map(|(token, begin)| KnownGrant {
                    client: format!("client {}", contender.client),
                    lock: contender.lock.clone(),
                    holder: contender.holder.clone(),
                    token,
                    begin,
                    released: None,
                })
            })
            .collect();
        let mut verdicts = lock_history::check(world, locks, &grants).await?;
        let rules = Rules {
            grace: nanos(GRACE),
            disturbed: self.disturbances.disturbed(last, world.now()),
        };
        verdicts.extend([
            ("contenders".to_owned(), contenders::check(&known, &rules)),
            ("no conflicting beliefs".to_owned(), client_view::check(&beliefs)),
        ]);
        Ok(verdicts)
    }

    /// Records the contradictions that the checkers have found, for the timeline.
    pub fn record(&self, verdicts: &[(String, Verdict)]) {
        self.highlights.record(verdicts);
    }

    /// Returns the holds in which clients believed, for the report.
    pub fn timeline(&self) -> Vec<Span> {
        let beliefs = contenders::beliefs(&self.known.lock());
        let spans = beliefs.into_iter().map(|belief| {
            let span = Span {
                row: format!("lock {}", belief.lock),
                label: format!("client {} · token {}", belief.client, belief.token),
                begin: belief.granted,
                end: belief.released.unwrap_or(belief.deadline).max(belief.granted),
                tone: Tone::Ok,
            };
            self.highlights
                .bar(span, &[&belief.lock, &format!("token {}", belief.token)])
        });
        spans.collect()
    }

    /// Writes all contenders, one a line.
    pub fn write_history(&self, to: &mut dyn Write) -> io::Result<()> {
        self.known
            .lock()
            .iter()
            .try_for_each(|contender| write_line(to, contender))
    }
}
