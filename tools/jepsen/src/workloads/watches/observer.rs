//! Reads a znode, waits for its next change, reads again: always with the position that it has seen, so that a change between
//! a read and a watch, or two watches, or two nodes, is told all the same.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use hyper::Method;
use lockgate_check::Nanos;
use lockgate_check::watches::{Connection, Observation};

use super::{OBSERVERS, PATHS, Watches, path};
use crate::client::{Answer, Caller, PATIENCE, Reply, nanos};
use crate::pace::Pace;
use crate::systems::caller;
use crate::world::World;

/// How long one watch waits: so short that some are over without a change.
const WAIT_MS: std::ops::Range<u64> = 50..700;

/// How long one in four waits: so long that some are set before an election and are still there after it.
const LONG_WAIT_MS: std::ops::Range<u64> = 1500..5000;

/// How often all observers together read and watch in a second, at most.
const PER_SECOND: f64 = 260.0;

struct Observer {
    run: Arc<Watches>,
    world: World,
    number: usize,
    caller: Caller,
    rng: Rng,
    path: String,
    /// The node that has told of the znode last, and the position of the znode that was read last.
    seen: Option<(usize, u64)>,
    heard: Vec<(Nanos, Observation)>,
    watches: u64,
}

/// Watches until the run is over.
pub async fn run(run: Arc<Watches>, world: World, number: usize) {
    let mut rng = super::super::rng(&world, number);
    let mut observer = Observer {
        caller: caller(&world, number),
        path: path(rng.usize(0..PATHS)),
        rng,
        seen: None,
        heard: Vec::new(),
        watches: 0,
        run,
        number,
        world,
    };
    let mut pace = Pace::new(&observer.world, number % OBSERVERS, OBSERVERS, PER_SECOND);
    while pace.next().await {
        let goes_on = match observer.seen {
            None => observer.read().await,
            Some((_, zxid)) => observer.watch(zxid).await && observer.read().await,
        };
        if !goes_on {
            pace.back_off().await;
        }
    }
    observer.lose_connection();
}

impl Observer {
    /// What is heard from now on is of another connection: notices are in order only on one.
    fn lose_connection(&mut self) {
        self.hear(Observation::Ended);
        let name = format!(
            "client {} at {}",
            self.number,
            lockgate_check::history::seconds(self.world.now())
        );
        let heard = std::mem::take(&mut self.heard);
        self.run.connections.lock().push(Connection {
            name,
            observations: heard,
        });
    }

    fn hear(&mut self, heard: Observation) {
        self.heard.push((self.world.now(), heard));
    }

    async fn call(&mut self, address: &str, patience: Duration) -> Reply {
        let reply = self.caller.call(Method::GET, address, None, patience).await;
        self.run.tally.count(self.world.now(), &reply.clone().done());
        if matches!(reply, Reply::NotDone(_) | Reply::Unknown(_)) {
            self.lose_connection();
        }
        reply
    }

    /// Whether the node that is asked next may be behind what was heard: it is another one, or perhaps in another life.
    async fn may_be_behind(&mut self) -> bool {
        let node = self.caller.at();
        let comes_from_elsewhere = self.seen.is_some_and(|(before, _)| before != node);
        comes_from_elsewhere || !self.caller.is_connected().await
    }

    /// Reads what the node knows; whether that went well. Who comes from another node asks for all that was answered before.
    async fn read(&mut self) -> bool {
        let comes_from_elsewhere = self.may_be_behind().await;
        let node = self.caller.at();
        let address = format!("/v1/znodes{}?linearizable={comes_from_elsewhere}", self.path);
        let Answer::Ok(document) = self.call(&address, PATIENCE).await.done() else {
            return false;
        };
        let Some(zxid) = document["stat"]["mzxid"].as_u64() else {
            return false;
        };
        self.hear(Observation::Read {
            path: self.path.clone(),
            zxid,
        });
        self.run.evidence.shown(self.world.now(), node, &self.path, zxid);
        self.seen = Some((node, zxid));
        true
    }

    /// Waits for a change after `seen`; whether there was an answer.
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
            "/v1/watch{}?kind=data&seen_zxid={seen}&linearizable={linearizable}&timeout_ms={}",
            self.path,
            wait.as_millis()
        );
        self.watches += 1;
        let watch = self.watches;
        self.hear(Observation::Set {
            watch,
            path: self.path.clone(),
            position: seen,
        });
        let sent = self.world.now();
        let reply = self.call(&address, wait + PATIENCE).await;
        match reply {
            Reply::Done(event) if event.is_null() => {
                let position = self.nothing_until(node, sent, wait, linearizable);
                self.hear(Observation::Over { watch, position });
                true
            }
            Reply::Done(event) => {
                let zxid = event["zxid"].as_u64().filter(|zxid| self.is_first(seen, *zxid));
                // What it has told of is more than was read, and no other node need have it.
                self.seen = Some((node, seen));
                self.hear(Observation::Fired { watch, zxid });
                true
            }
            Reply::Refused(..) => {
                self.hear(Observation::Over {
                    watch,
                    position: None,
                });
                false
            }
            // The connection is over, and with it the watch; what was seen stays.
            Reply::NotDone(_) | Reply::Unknown(_) => false,
        }
    }

    /// Up to which position an answer "nothing happened" says so: what the node had shown to anybody before the time can have
    /// been over, and, if the watch waited for it, what was acknowledged anywhere before it was sent.
    fn nothing_until(&self, node: usize, sent: Nanos, wait: Duration, linearizable: bool) -> Option<u64> {
        let evidence = &self.run.evidence;
        let shown = evidence.shown_before(node, &self.path, sent + nanos(wait));
        let acknowledged = evidence
            .acknowledged_before(&self.path, sent)
            .filter(|_| linearizable);
        shown.max(acknowledged)
    }

    /// A change that was there when the watch was set is told as the znode stands, not as it came: several may be told as one.
    /// Then the position of the notice says nothing of which was the first.
    fn is_first(&self, seen: u64, zxid: u64) -> bool {
        !self.run.evidence.changed_between(&self.path, seen, zxid)
    }
}
