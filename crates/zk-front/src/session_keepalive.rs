//! Heartbeats of a session whose client is connected to this node. The node forwards the client's activity to
//! the leader as heartbeats, and answers the client's pings when the leader has confirmed them.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use lock_node::{HeartbeatError, Node};
use tokio::time::{Instant, Sleep};
use znode_store::{Identities, Refusal, SessionId};

/// Number of heartbeats within a session's timeout while the client is active. Clients ping three times
/// within it.
const HEARTBEATS_PER_TIMEOUT: u32 = 4;

/// Minimum time that the leader has to confirm a heartbeat, as a share of the session's timeout, however late
/// the heartbeat is.
const LATE_SHARE: u32 = 6;

/// Pause before an unconfirmed heartbeat is retried. A leaderless cluster rejects it quickly, and an election
/// takes longer.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Function that sends a heartbeat: the session's client with these identities was active at this time.
type SendHeartbeat = Box<dyn Fn(Identities, Instant) -> HeartbeatFuture + Send>;

type HeartbeatFuture = Pin<Box<dyn Future<Output = Result<(), HeartbeatFailure>> + Send>>;

/// Keepalive of one session. See the module.
pub(crate) struct SessionKeepalive {
    send: SendHeartbeat,
    /// Identities of the client. A client that may not use the session does not keep it alive.
    caller: Identities,
    /// Session timeout in milliseconds, which takes less memory than a duration in each idle connection.
    timeout_ms: u32,
    /// Time of the client's last activity, if the leader does not know it yet.
    active_at: Option<Instant>,
    /// Number of unanswered pings.
    pings: u32,
    /// Heartbeat in flight. Boxed, as there is none most of the time.
    in_flight: Option<Box<InFlight>>,
    /// Time of the client's last activity that the leader has confirmed.
    confirmed: Instant,
    /// Time since which the leader has not confirmed a heartbeat.
    unconfirmed_since: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

/// Heartbeat in flight.
struct InFlight {
    heartbeat: HeartbeatFuture,
    /// Time of the client's activity that it reports.
    active_at: Instant,
    /// Number of pings that were received before it was sent.
    pings: u32,
}

/// Reason why the session was not renewed.
pub(crate) enum HeartbeatFailure {
    NotAllowed(Refusal),
    Heartbeat(HeartbeatError),
}

/// Reason why the connection has to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeepaliveEnd {
    /// The session has ended.
    SessionEnded,
    /// The client may not use the session: its credentials became invalid, or it has not authenticated.
    NotAllowed(Refusal),
    /// No leader has confirmed a heartbeat for two thirds of the session's timeout. This node is cut off from
    /// the quorum, and the client should connect to another node while it still can.
    CutOff,
}

impl SessionKeepalive {
    /// Creates the keepalive of a session that was opened or resumed just now.
    pub fn new(node: Node, session: SessionId, caller: Identities, timeout: Duration) -> Self {
        let send = move |caller: Identities, active_at| -> HeartbeatFuture {
            let node = node.clone();
            Box::pin(async move {
                let allowed = node.read_facts(|store| store.seen_by(&caller).may_go_on(session));
                allowed.map_err(HeartbeatFailure::NotAllowed)?;
                node.heartbeat_received_at(session, active_at)
                    .await
                    .map_err(HeartbeatFailure::Heartbeat)?;
                Ok(())
            })
        };
        Self::with_sender(Box::new(send), caller, timeout)
    }

    fn with_sender(send: SendHeartbeat, caller: Identities, timeout: Duration) -> Self {
        Self {
            send,
            caller,
            timeout_ms: timeout.as_millis().try_into().unwrap_or(u32::MAX),
            active_at: None,
            pings: 0,
            in_flight: None,
            confirmed: Instant::now(),
            unconfirmed_since: None,
            timer: Box::pin(tokio::time::sleep(timeout / HEARTBEATS_PER_TIMEOUT)),
        }
    }

    /// Replaces the identities, after the client has proven a further one.
    pub fn set_identities(&mut self, caller: Identities) {
        self.caller = caller;
    }

    /// Records activity of the client.
    pub fn record_activity(&mut self) {
        self.active_at = Some(Instant::now());
    }

    /// Records a ping of the client, and sends a heartbeat unless one is in flight.
    pub fn ping(&mut self) {
        self.record_activity();
        self.pings += 1;
        if self.in_flight.is_none() && self.unconfirmed_since.is_none() {
            self.send_heartbeat();
        }
    }

    /// Records that a write of the session was applied, which renews the session like a heartbeat.
    pub fn confirmed(&mut self) {
        self.active_at = None;
        self.confirmed = Instant::now();
        if self.in_flight.is_none() {
            self.unconfirmed_since = None;
        }
    }

    /// Sends heartbeats in time. Returns the number of pings that can be answered now. Cancel-safe.
    pub async fn next(&mut self) -> Result<u32, KeepaliveEnd> {
        loop {
            let Some(in_flight) = &mut self.in_flight else {
                self.timer.as_mut().await;
                if self.active_at.is_some() || self.pings > 0 {
                    self.send_heartbeat();
                } else {
                    self.set_timer(self.timeout() / HEARTBEATS_PER_TIMEOUT);
                }
                continue;
            };
            tokio::select! {
                biased;
                result = &mut in_flight.heartbeat => {
                    let InFlight { active_at, pings, .. } = *self.in_flight.take().expect("a heartbeat is in flight");
                    match result {
                        Ok(()) => {
                            self.confirmed = self.confirmed.max(active_at);
                            self.unconfirmed_since = None;
                            self.pings -= pings;
                            // Pings that arrived meanwhile need another heartbeat.
                            match self.pings {
                                0 => self.set_timer(self.timeout() / HEARTBEATS_PER_TIMEOUT),
                                _ => self.send_heartbeat(),
                            }
                            return Ok(pings);
                        }
                        Err(HeartbeatFailure::NotAllowed(refusal)) => return Err(KeepaliveEnd::NotAllowed(refusal)),
                        Err(HeartbeatFailure::Heartbeat(HeartbeatError::SessionEnded | HeartbeatError::NoSession)) => {
                            return Err(KeepaliveEnd::SessionEnded);
                        }
                        Err(HeartbeatFailure::Heartbeat(HeartbeatError::Unavailable(_))) => {
                            self.active_at.get_or_insert(active_at);
                            let left = self.time_until_cutoff();
                            if left.is_zero() {
                                return Err(KeepaliveEnd::CutOff);
                            }
                            self.set_timer(RETRY_PAUSE.min(left));
                        }
                    }
                }
                // While a heartbeat is in flight, the timer is set to the cutoff; confirmed writes may have
                // moved it.
                () = self.timer.as_mut() => match self.time_until_cutoff() {
                    Duration::ZERO => return Err(KeepaliveEnd::CutOff),
                    left => self.set_timer(left),
                },
            }
        }
    }

    fn send_heartbeat(&mut self) {
        let now = Instant::now();
        self.unconfirmed_since.get_or_insert(now);
        let active_at = self.active_at.take().unwrap_or(now);
        self.in_flight = Some(Box::new(InFlight {
            heartbeat: (self.send)(self.caller.clone(), active_at),
            active_at,
            pings: self.pings,
        }));
        self.set_timer(self.time_until_cutoff());
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.timeout_ms))
    }

    fn set_timer(&mut self, time: Duration) {
        self.timer.as_mut().reset(Instant::now() + time);
    }

    /// Returns the time until the connection ends without a confirmation: two thirds of the timeout after the
    /// last confirmed activity, which leaves the client a third to connect elsewhere. If the client itself
    /// was silent for that long, the leader gets at least [`LATE_SHARE`].
    fn time_until_cutoff(&self) -> Duration {
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

    use lock_node::Unavailable;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(12);
    const SECOND: Duration = Duration::from_secs(1);

    /// Returns a keepalive, and whether its leader is reachable.
    fn keepalive() -> (SessionKeepalive, Arc<AtomicBool>) {
        let reachable = Arc::new(AtomicBool::new(true));
        let leader = reachable.clone();
        let send = move |_, _| -> HeartbeatFuture {
            let leads = leader.load(Relaxed);
            Box::pin(async move {
                match leads {
                    true => Ok(()),
                    false => Err(HeartbeatFailure::Heartbeat(HeartbeatError::Unavailable(
                        Unavailable::new("cut off"),
                    ))),
                }
            })
        };
        let keepalive = SessionKeepalive::with_sender(Box::new(send), Identities::none(), TIMEOUT);
        (keepalive, reachable)
    }

    /// Sends pings at this interval, and returns the time after which the connection ended.
    async fn ping_every(
        keepalive: &mut SessionKeepalive,
        pause: Duration,
        mut event: impl FnMut(Duration),
    ) -> Duration {
        let begin = Instant::now();
        let mut pings = tokio::time::interval_at(begin + pause, pause);
        loop {
            tokio::select! {
                biased;
                next = keepalive.next() => match next {
                    Ok(_) => {}
                    Err(end) => {
                        assert_eq!(end, KeepaliveEnd::CutOff);
                        return begin.elapsed();
                    }
                },
                _ = pings.tick() => {
                    event(begin.elapsed());
                    keepalive.ping();
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connection_ends_two_thirds_of_the_timeout_after_the_last_confirmed_heartbeat() {
        for pings_every in [TIMEOUT / 3, TIMEOUT / 6, TIMEOUT / 12] {
            let (mut keepalive, reachable) = keepalive();
            let ended = ping_every(&mut keepalive, pings_every, |now| {
                // The ping at 12 s is the last one that is confirmed.
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
    async fn late_heartbeat_of_a_silent_client_gets_its_minimum_time() {
        let (mut keepalive, reachable) = keepalive();
        reachable.store(false, Relaxed);
        let ended = ping_every(&mut keepalive, 9 * SECOND, |_| ()).await;
        assert_eq!(ended, 11 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn heartbeat_reports_the_time_of_the_clients_activity() {
        let (sent, mut heartbeats) = tokio::sync::mpsc::unbounded_channel();
        let send = move |_, active_at: Instant| -> HeartbeatFuture {
            let _ = sent.send((active_at, Instant::now()));
            Box::pin(async { Ok(()) })
        };
        let mut keepalive = SessionKeepalive::with_sender(Box::new(send), Identities::none(), TIMEOUT);
        let begin = Instant::now();
        tokio::time::sleep(SECOND).await;
        keepalive.record_activity();
        assert_eq!(keepalive.next().await, Ok(0));
        assert_eq!(
            heartbeats.recv().await,
            Some((begin + SECOND, begin + TIMEOUT / HEARTBEATS_PER_TIMEOUT))
        );
    }
}
