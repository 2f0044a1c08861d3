//! Observer: reads a znode, waits for its next change, and reads again, always with the last position that it
//! has seen. Thus it also learns of a change between a read and a watch, between two watches, or between two
//! nodes.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use hyper::Method;
use lockgate_check::Nanos;
use lockgate_check::watches::{Connection, Observation};

use super::{OBSERVERS, PATHS, Watches, path};
use crate::client::{CallResult, Caller, Reply, TIMEOUT, nanos};
use crate::pace::Pace;
use crate::systems::caller;
use crate::world::World;

/// Range of a watch's wait: so short that some end without a change.
const WAIT_MS: std::ops::Range<u64> = 50..700;

/// Range of the wait of one watch in four: so long that some outlast an election.
const LONG_WAIT_MS: std::ops::Range<u64> = 1500..5000;

/// Maximum of reads and watches of all observers per second.
const PER_SECOND: f64 = 260.0;

struct Observer {
    run: Arc<Watches>,
    world: World,
    number: usize,
    caller: Caller,
    rng: Rng,
    path: String,
    /// Node that last reported the znode, and the position of the last read.
    seen: Option<(usize, u64)>,
    observations: Vec<(Nanos, Observation)>,
    watches: u64,
}

/// Runs the observer until the end of the run.
pub async fn run(run: Arc<Watches>, world: World, number: usize) {
    let mut rng = super::super::rng(&world, number);
    let mut observer = Observer {
        caller: caller(&world, number),
        path: path(rng.usize(0..PATHS)),
        rng,
        seen: None,
        observations: Vec::new(),
        watches: 0,
        run,
        number,
        world,
    };
    let mut pace = Pace::new(&observer.world, number % OBSERVERS, OBSERVERS, PER_SECOND);
    while pace.next().await {
        let succeeded = match observer.seen {
            None => observer.read().await,
            Some((_, zxid)) => observer.watch(zxid).await && observer.read().await,
        };
        if !succeeded {
            pace.back_off().await;
        }
    }
    observer.lose_connection();
}

impl Observer {
    /// Starts a new connection in the history: notifications are ordered on one connection only.
    fn lose_connection(&mut self) {
        self.observe(Observation::Ended);
        let name = format!(
            "client {} at {}",
            self.number,
            lockgate_check::history::seconds(self.world.now())
        );
        let observations = std::mem::take(&mut self.observations);
        self.run
            .connections
            .lock()
            .push(Connection { name, observations });
    }

    fn observe(&mut self, observations: Observation) {
        self.observations.push((self.world.now(), observations));
    }

    async fn call(&mut self, address: &str, timeout: Duration) -> Reply {
        let reply = self.caller.call(Method::GET, address, None, timeout).await;
        self.run.tally.count(self.world.now(), &reply.clone().done());
        if matches!(reply, Reply::NotDone(_) | Reply::Unknown(_)) {
            self.lose_connection();
        }
        reply
    }

    /// Returns whether the next node may be behind the observations so far: it is another one, or may have
    /// been restarted.
    async fn may_be_behind(&mut self) -> bool {
        let node = self.caller.at();
        let node_changed = self.seen.is_some_and(|(before, _)| before != node);
        node_changed || !self.caller.is_connected().await
    }

    /// Reads the node's state; returns whether that succeeded. After a change of the node the read is
    /// linearizable, so that it is not older than the previous one.
    async fn read(&mut self) -> bool {
        let node_changed = self.may_be_behind().await;
        let node = self.caller.at();
        let address = format!("/v1/znodes{}?linearizable={node_changed}", self.path);
        let CallResult::Ok(document) = self.call(&address, TIMEOUT).await.done() else {
            return false;
        };
        let Some(zxid) = document["stat"]["mzxid"].as_u64() else {
            return false;
        };
        self.observe(Observation::Read {
            path: self.path.clone(),
            zxid,
        });
        self.run.evidence.shown(self.world.now(), node, &self.path, zxid);
        self.seen = Some((node, zxid));
        true
    }

    /// Waits for a change after `seen`; returns whether there was an answer.
    async fn watch(&mut self, seen: u64) -> bool {
        let linearizable = self.may_be_behind().await || self.rng.bool();
        let node = self.caller.at();
        let range = if self.rng.u32(0..4) == 0 {
            LONG_WAIT_MS
        } else {
            WAIT_MS
        };
        let wait = Duration::from_millis(self.rng.u64(range));
        let address = format!(
            "/v1/watch{}?kind=data&zxid={seen}&linearizable={linearizable}&timeout_ms={}",
            self.path,
            wait.as_millis()
        );
        self.watches += 1;
        let watch = self.watches;
        self.observe(Observation::Set {
            watch,
            path: self.path.clone(),
            position: seen,
        });
        let sent = self.world.now();
        let reply = self.call(&address, wait + TIMEOUT).await;
        match reply {
            Reply::Done(event) if event.is_null() => {
                let position = self.unchanged_until(node, sent, wait, linearizable);
                self.observe(Observation::Over { watch, position });
                true
            }
            Reply::Done(event) => {
                let zxid = event["zxid"].as_u64().filter(|zxid| self.is_first(seen, *zxid));
                // The reported position is later than that of the read, and another node may not have it yet.
                self.seen = Some((node, seen));
                self.observe(Observation::Fired { watch, zxid });
                true
            }
            Reply::Refused(..) => {
                self.observe(Observation::Over {
                    watch,
                    position: None,
                });
                false
            }
            // The watch ends with the connection; `seen` stays valid.
            Reply::NotDone(_) | Reply::Unknown(_) => false,
        }
    }

    /// Returns the position up to which the answer "nothing happened" excludes a change. That is what the
    /// node had shown to any client before the wait can have ended, and, if the watch was linearizable, what
    /// was acknowledged anywhere before it was sent.
    fn unchanged_until(&self, node: usize, sent: Nanos, wait: Duration, linearizable: bool) -> Option<u64> {
        let evidence = &self.run.evidence;
        let shown = evidence.shown_before(node, &self.path, sent + nanos(wait));
        let acknowledged = evidence
            .acknowledged_before(&self.path, sent)
            .filter(|_| linearizable);
        shown.max(acknowledged)
    }

    /// Returns whether a notification reports the first change. A change from before the watch was set is
    /// reported with the znode's current position, so several changes may be reported as one; the position
    /// then says nothing about the first.
    fn is_first(&self, seen: u64, zxid: u64) -> bool {
        !self.run.evidence.changed_between(&self.path, seen, zxid)
    }
}
