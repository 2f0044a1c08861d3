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

/// The share of a session's timeout that the leader gets at least to confirm a heartbeat, whenever that comes.
const LATE_SHARE: u32 = 6;

/// Before a heartbeat that could not be confirmed is tried again. Refusals are quick, and an election takes longer.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// How the leader is told: a heartbeat of a session that was heard at this time from whoever its client has proven to be.
type Tell = Box<dyn Fn(Identities, Instant) -> Beat + Send>;

type Beat = Pin<Box<dyn Future<Output = Result<(), NoBeat>> + Send>>;

/// See the module.
pub(crate) struct Pulse {
    tell: Tell,
    /// What its client has proven to be. Who may not use the session does not keep it alive.
    caller: Identities,
    /// In milliseconds, which takes less room than a duration: there is one for each idle connection.
    timeout_ms: u32,
    /// When the client was heard last, if the leader was not told of it.
    heard: Option<Instant>,
    /// Pings that are not answered.
    pings: u32,
    /// In a box: most of the time there is none.
    in_flight: Option<Box<InFlight>>,
    /// When the client was heard for the last time of which the leader is known to have been told.
    confirmed: Instant,
    /// Since when the leader is asked to confirm more, and has not.
    unconfirmed_since: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

/// A heartbeat on its way.
struct InFlight {
    beat: Beat,
    /// When the client was heard that it tells of.
    heard: Instant,
    /// The pings that came before it was begun.
    pings: u32,
}

/// Why the session was not renewed.
pub(crate) enum NoBeat {
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
    /// No leader has confirmed a heartbeat for two thirds of the session's time: this node is cut off from the quorum, and
    /// the client should go to another one while it still can.
    CutOff,
}

impl Pulse {
    /// The session was opened, or reconnected, just now.
    pub fn new(node: Node, session: SessionId, caller: Identities, timeout: Duration) -> Self {
        let tell = move |caller: Identities, heard| -> Beat {
            let node = node.clone();
            Box::pin(async move {
                let allowed = node.read(|store| store.seen_by(&caller).may_go_on(session));
                allowed.map_err(NoBeat::NotAllowed)?;
                node.heartbeat_heard(session, heard)
                    .await
                    .map_err(NoBeat::Heartbeat)?;
                Ok(())
            })
        };
        Self::telling(Box::new(tell), caller, timeout)
    }

    fn telling(tell: Tell, caller: Identities, timeout: Duration) -> Self {
        Self {
            tell,
            caller,
            timeout_ms: timeout.as_millis().try_into().unwrap_or(u32::MAX),
            heard: None,
            pings: 0,
            in_flight: None,
            confirmed: Instant::now(),
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
        self.heard = Some(Instant::now());
    }

    /// The client asks for a sign of life.
    pub fn ping(&mut self) {
        self.heard();
        self.pings += 1;
        if self.in_flight.is_none() && self.unconfirmed_since.is_none() {
            self.begin();
        }
    }

    /// A write of the session was carried out, which is as good as a heartbeat.
    pub fn confirmed(&mut self) {
        self.heard = None;
        self.confirmed = Instant::now();
        if self.in_flight.is_none() {
            self.unconfirmed_since = None;
        }
    }

    /// Tells the leader in time. Ready when so many pings can be answered. Given up, it can be called again.
    pub async fn next(&mut self) -> Result<u32, Over> {
        loop {
            let Some(in_flight) = &mut self.in_flight else {
                self.timer.as_mut().await;
                if self.heard.is_some() || self.pings > 0 {
                    self.begin();
                } else {
                    self.rest(self.timeout() / BEATS);
                }
                continue;
            };
            tokio::select! {
                biased;
                answer = &mut in_flight.beat => {
                    let InFlight { heard, pings, .. } = *self.in_flight.take().expect("it was on its way");
                    match answer {
                        Ok(()) => {
                            self.confirmed = self.confirmed.max(heard);
                            self.unconfirmed_since = None;
                            self.pings -= pings;
                            // Those that came meanwhile are not confirmed by what was sent before.
                            match self.pings {
                                0 => self.rest(self.timeout() / BEATS),
                                _ => self.begin(),
                            }
                            return Ok(pings);
                        }
                        Err(NoBeat::NotAllowed(refusal)) => return Err(Over::NotAllowed(refusal)),
                        Err(NoBeat::Heartbeat(HeartbeatError::SessionEnded | HeartbeatError::NoSession)) => {
                            return Err(Over::SessionEnded);
                        }
                        Err(NoBeat::Heartbeat(HeartbeatError::Unavailable(_))) => {
                            self.heard.get_or_insert(heard);
                            let left = self.patience_left();
                            if left.is_zero() {
                                return Err(Over::CutOff);
                            }
                            self.rest(RETRY_PAUSE.min(left));
                        }
                    }
                }
                // While a beat is on its way the timer is set to the end of all patience; writes may have moved that.
                () = self.timer.as_mut() => match self.patience_left() {
                    Duration::ZERO => return Err(Over::CutOff),
                    left => self.rest(left),
                },
            }
        }
    }

    fn begin(&mut self) {
        let now = Instant::now();
        self.unconfirmed_since.get_or_insert(now);
        let heard = self.heard.take().unwrap_or(now);
        self.in_flight = Some(Box::new(InFlight {
            beat: (self.tell)(self.caller.clone(), heard),
            heard,
            pings: self.pings,
        }));
        self.rest(self.patience_left());
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.timeout_ms))
    }

    fn rest(&mut self, time: Duration) {
        self.timer.as_mut().reset(Instant::now() + time);
    }

    /// How much longer the leader may take: until two thirds of the timeout after what it has confirmed last, which leaves the
    /// client a third to go elsewhere. A client that was silent for as long itself gets a chance, too.
    fn patience_left(&self) -> Duration {
        let late = self
            .unconfirmed_since
            .map(|since| since + self.timeout() / LATE_SHARE);
        let end = self.confirmed + self.timeout() * 2 / 3;
        late.map_or(end, |late| end.max(late))
            .saturating_duration_since(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use raft_node::Unavailable;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(12);
    const SECOND: Duration = Duration::from_secs(1);

    /// A pulse, and whether the leader can be reached.
    fn pulse() -> (Pulse, Arc<AtomicBool>) {
        let reachable = Arc::new(AtomicBool::new(true));
        let leader = reachable.clone();
        let tell = move |_, _| -> Beat {
            let leads = leader.load(Relaxed);
            Box::pin(async move {
                match leads {
                    true => Ok(()),
                    false => Err(NoBeat::Heartbeat(HeartbeatError::Unavailable(Unavailable::new(
                        "cut off",
                    )))),
                }
            })
        };
        let pulse = Pulse::telling(Box::new(tell), Identities::none(), TIMEOUT);
        (pulse, reachable)
    }

    /// Has a client ping this often, and says when the connection ended, after it began.
    async fn ping_every(pulse: &mut Pulse, pause: Duration, mut event: impl FnMut(Duration)) -> Duration {
        let begin = Instant::now();
        let mut pings = tokio::time::interval_at(begin + pause, pause);
        loop {
            tokio::select! {
                biased;
                next = pulse.next() => match next {
                    Ok(_) => {}
                    Err(over) => {
                        assert_eq!(over, Over::CutOff);
                        return begin.elapsed();
                    }
                },
                _ = pings.tick() => {
                    event(begin.elapsed());
                    pulse.ping();
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connection_ends_two_thirds_of_the_timeout_after_the_last_confirmed_heartbeat() {
        for pings_every in [TIMEOUT / 3, TIMEOUT / 6, TIMEOUT / 12] {
            let (mut pulse, reachable) = pulse();
            let ended = ping_every(&mut pulse, pings_every, |now| {
                // The one at 12 s is the last that is confirmed.
                reachable.store(now <= TIMEOUT, Relaxed);
            });
            assert_eq!(
                ended.await,
                TIMEOUT + TIMEOUT * 2 / 3,
                "pings every {pings_every:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_was_silent_itself_gets_a_chance() {
        let (mut pulse, reachable) = pulse();
        reachable.store(false, Relaxed);
        let ended = ping_every(&mut pulse, 9 * SECOND, |_| ()).await;
        assert_eq!(ended, 11 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn leader_learns_when_the_client_was_heard_and_not_when_it_is_told() {
        let (told, mut tells) = tokio::sync::mpsc::unbounded_channel();
        let tell = move |_, heard: Instant| -> Beat {
            let _ = told.send((heard, Instant::now()));
            Box::pin(async { Ok(()) })
        };
        let mut pulse = Pulse::telling(Box::new(tell), Identities::none(), TIMEOUT);
        let begin = Instant::now();
        tokio::time::sleep(SECOND).await;
        pulse.heard();
        assert_eq!(pulse.next().await, Ok(0));
        assert_eq!(
            tells.recv().await,
            Some((begin + SECOND, begin + TIMEOUT / BEATS))
        );
    }
}
