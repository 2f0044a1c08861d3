//! The heartbeats of a session whose client is connected here: the leader is told that the client lives for as long as it does,
//! and the client that the leader was told.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use raft_node::{HeartbeatError, Node};
use tokio::time::{Instant, Sleep};
use znode_store::{Identities, Refusal, SessionId};

/// The leader is told so often within a session's timeout, if its client was heard. Clients ping three times in it.
const BEATS: u32 = 4;

/// Before a heartbeat that could not be confirmed is tried again. Refusals are quick, and an election takes longer.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// See the module.
pub(crate) struct Pulse {
    node: Node,
    session: SessionId,
    /// What its client has proven to be. Who may not use the session does not keep it alive.
    caller: Identities,
    timeout: Duration,
    /// Whether the client was heard since the leader was told last.
    heard: bool,
    /// Pings that are not answered.
    pings: u32,
    in_flight: Option<Beat>,
    /// Since when the leader should have confirmed a heartbeat, and has not.
    unconfirmed_since: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

type Beat = Pin<Box<dyn Future<Output = Result<(), NoBeat>> + Send>>;

/// Why the session was not renewed.
enum NoBeat {
    NotAllowed(Refusal),
    Heartbeat(HeartbeatError),
}

/// Why the connection has to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Over {
    /// The session has ended.
    SessionEnded,
    /// The client may not use it: what it has shown does not count any more, or it has not shown who it is.
    NotAllowed(Refusal),
    /// No leader has confirmed a heartbeat for most of the session's time: this node is cut off from the quorum, and the
    /// client should go to another one while it still can.
    CutOff,
}

impl Pulse {
    /// The session was opened, or reconnected, just now.
    pub fn new(node: Node, session: SessionId, caller: Identities, timeout: Duration) -> Self {
        Self {
            node,
            session,
            caller,
            timeout,
            heard: false,
            pings: 0,
            in_flight: None,
            unconfirmed_since: None,
            timer: Box::pin(tokio::time::sleep(timeout / BEATS)),
        }
    }

    /// The client has proven to be more than it had.
    pub fn set_identities(&mut self, caller: Identities) {
        self.caller = caller;
    }

    /// The client has said something.
    pub fn heard(&mut self) {
        self.heard = true;
    }

    /// The client asks for a sign of life.
    pub fn ping(&mut self) {
        self.heard = true;
        self.pings += 1;
        if self.in_flight.is_none() && self.unconfirmed_since.is_none() {
            self.begin();
        }
    }

    /// A write of the session was carried out, which is as good as a heartbeat.
    pub fn confirmed(&mut self) {
        self.heard = false;
        if self.in_flight.is_none() {
            self.unconfirmed_since = None;
        }
    }

    /// Tells the leader in time. Ready when so many pings can be answered. Given up, it can be called again.
    pub async fn next(&mut self) -> Result<u32, Over> {
        loop {
            let Some(beat) = &mut self.in_flight else {
                self.timer.as_mut().await;
                if self.heard || self.pings > 0 {
                    self.begin();
                } else {
                    self.rest(self.timeout / BEATS);
                }
                continue;
            };
            tokio::select! {
                biased;
                answer = beat => {
                    self.in_flight = None;
                    match answer {
                        Ok(()) => {
                            self.unconfirmed_since = None;
                            self.rest(self.timeout / BEATS);
                            return Ok(std::mem::take(&mut self.pings));
                        }
                        Err(NoBeat::NotAllowed(refusal)) => return Err(Over::NotAllowed(refusal)),
                        Err(NoBeat::Heartbeat(HeartbeatError::SessionEnded | HeartbeatError::NoSession)) => {
                            return Err(Over::SessionEnded);
                        }
                        Err(NoBeat::Heartbeat(HeartbeatError::Unavailable(_))) => {
                            self.heard = true;
                            if self.is_cut_off() {
                                return Err(Over::CutOff);
                            }
                            self.rest(RETRY_PAUSE);
                        }
                    }
                }
                // While a beat is on its way the timer is set to the end of all patience.
                () = self.timer.as_mut() => return Err(Over::CutOff),
            }
        }
    }

    fn begin(&mut self) {
        let (node, session, caller) = (self.node.clone(), self.session, self.caller.clone());
        let since = *self.unconfirmed_since.get_or_insert_with(Instant::now);
        self.heard = false;
        self.in_flight = Some(Box::pin(async move {
            let allowed = node.read(|store| store.seen_by(&caller).may_use(session));
            allowed.map_err(NoBeat::NotAllowed)?;
            node.heartbeat(session).await.map_err(NoBeat::Heartbeat)?;
            Ok(())
        }));
        let end = since + self.patience();
        self.timer.as_mut().reset(end);
    }

    fn rest(&mut self, time: Duration) {
        self.timer.as_mut().reset(Instant::now() + time);
    }

    /// Less than the session's timeout, with the time that passes before the leader is told, and more than an election.
    fn patience(&self) -> Duration {
        self.timeout * 2 / 3
    }

    fn is_cut_off(&self) -> bool {
        self.unconfirmed_since
            .is_some_and(|since| since.elapsed() >= self.patience())
    }
}
