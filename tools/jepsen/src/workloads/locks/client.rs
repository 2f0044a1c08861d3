//! One client of locks: it opens one session after the other, and acquires one lock after the other.

use std::sync::Arc;
use std::time::Duration;

use lockgate_check::{ClientId, Nanos};

use super::mix::{HoldEnd, LockRequest, Wait, fields};
use super::{Belief, CLIENTS, LockCall, LockCallResult, Locks, PER_SECOND, TTL};
use crate::client::{Acquire, CallResult, Caller, Granted, Session, release};
use crate::pace::Pace;
use crate::systems::caller;
use crate::world::World;

/// Time for which a waiting client that has stopped its heartbeats waits for an answer: the session's TTL, an
/// election, and the TTL again.
const CRASHING_WAIT: Duration = Duration::from_secs(8);

/// Interval at which a holder checks whether it may still believe that it holds.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Percentage of locks that their last holder acquires again at once, followed by a late release of its
/// previous hold.
const AGAIN_PERCENT: u32 = 10;

struct Client {
    locks: Arc<Locks>,
    world: World,
    number: usize,
    caller: Caller,
    pace: Pace,
    me: ClientId,
    requests: u64,
    /// The last hold that was released.
    last_released: Option<ReleasedHold>,
}

/// Hold that was certainly released. A second, late release of it must not affect a later hold.
struct ReleasedHold {
    session: String,
    lock: usize,
    holder: String,
}

/// Runs the client until the end of the run.
pub async fn run(locks: Arc<Locks>, world: World, number: usize) {
    let mut client = Client {
        locks,
        caller: caller(&world, number),
        pace: Pace::new(&world, number, CLIENTS, PER_SECOND),
        me: ClientId::try_from(number).expect("there are few clients"),
        requests: 0,
        last_released: None,
        number,
        world,
    };
    let mut rng = super::super::rng(&client.world, number);
    let mut session: Option<Session> = None;
    while client.pace.next().await {
        let mut current = match session.take().filter(Session::is_alive) {
            Some(session) => session,
            None => match Session::open(&client.world, number, &mut client.caller, TTL).await {
                CallResult::Ok(session) => session,
                CallResult::Failed(_) | CallResult::Unknown(_) => {
                    client.pace.back_off().await;
                    continue;
                }
            },
        };
        let again = client
            .last_released_by(&current)
            .filter(|_| rng.u32(0..100) < AGAIN_PERCENT);
        let request = client.locks.mix.draw(&mut rng, again);
        match client.lock_once(&mut current, &request).await {
            NextStep::KeepSession => session = Some(current),
            // The heartbeats end with the session object; the server has to detect that.
            NextStep::Abandon => drop(current),
            NextStep::Close => {
                current.close(&mut client.caller).await;
            }
        }
    }
    if let Some(session) = session {
        session.close(&mut client.caller).await;
    }
}

/// Next step with the session after a lock.
enum NextStep {
    KeepSession,
    Abandon,
    Close,
}

impl Client {
    fn request_id(&mut self) -> String {
        self.requests += 1;
        format!("{}-{}", self.number, self.requests)
    }

    async fn lock_once(&mut self, session: &mut Session, request: &LockRequest) -> NextStep {
        let invoked = self.world.now();
        let answer = self.acquire(session, request).await;
        let input = LockCall::Acquire {
            lock: request.lock,
            mode: request.mode,
            wait: format!("{:?}", request.wait),
            session: session.id().to_owned(),
        };
        let result = answer
            .clone()
            .map(|Granted { holder, token }| LockCallResult::Granted { holder, token });
        self.locks
            .calls
            .add(&self.world, &mut self.me, invoked, input, &result);
        match answer {
            CallResult::Ok(granted) => self.hold(session, request, granted).await,
            CallResult::Failed(why) if why == "session_expired" => {
                session.liveness().ended();
                NextStep::Abandon
            }
            CallResult::Failed(why) if why == "lock_busy" || why == "lock_timeout" => NextStep::KeepSession,
            CallResult::Failed(_) => {
                self.pace.back_off().await;
                NextStep::KeepSession
            }
            // The client may hold the lock without knowing it. Only the end of the session resolves that.
            CallResult::Unknown(_) => NextStep::Abandon,
        }
    }

    async fn acquire(&mut self, session: &mut Session, request: &LockRequest) -> CallResult<Granted> {
        let lock = self.locks.mix.lock_name(request.lock);
        let request_id = self.request_id();
        let id = session.id().to_owned();
        let acquire = Acquire {
            lock: &lock,
            session: &id,
            fields: fields(request.mode),
            request_id: &request_id,
        };
        match request.wait {
            Wait::Try => acquire.send(&mut self.caller, Duration::ZERO).await,
            Wait::For(time) => acquire.send(&mut self.caller, time).await,
            Wait::UntilDisconnect(after) => acquire.send_and_disconnect(&mut self.caller, after).await,
            Wait::Crashing => {
                session.stop_heartbeats();
                acquire.send_unbounded(&mut self.caller, CRASHING_WAIT).await
            }
        }
    }

    /// Returns the lock that this session released last.
    fn last_released_by(&self, session: &Session) -> Option<usize> {
        let past = self
            .last_released
            .as_ref()
            .filter(|past| past.session == session.id());
        past.map(|past| past.lock)
    }

    /// Releases the previous hold once more, as a delayed request might.
    async fn release_late(&mut self, session: &Session, request: &LockRequest) {
        let Some(past) = self
            .last_released
            .take_if(|past| past.lock == request.lock && past.session == session.id())
        else {
            return;
        };
        let lock = self.locks.mix.lock_name(past.lock);
        let request_id = self.request_id();
        let again = release(&mut self.caller, &lock, session.id(), &past.holder, &request_id).await;
        if again == CallResult::Ok(true) {
            self.locks.contradictions.lock().push(format!(
                "client {} released its hold {} of lock {} twice, and both responses said that it had held it",
                self.number, past.holder, past.lock
            ));
        }
    }

    async fn hold(&mut self, session: &mut Session, request: &LockRequest, granted: Granted) -> NextStep {
        let life = session.liveness();
        let belief = self.believe(session, request, &granted);
        self.release_late(session, request).await;
        let until = self.world.now() + crate::client::nanos(request.hold);
        while life.is_alive() && self.world.now() < until {
            let left = Duration::from_nanos(until.saturating_sub(self.world.now()));
            if !self.pace.sleep(left.min(POLL_INTERVAL)).await {
                break;
            }
        }
        if !life.is_alive() {
            return NextStep::Abandon;
        }
        match request.end {
            HoldEnd::Crash => {
                session.stop_heartbeats();
                NextStep::Abandon
            }
            HoldEnd::Close => {
                self.released(belief);
                NextStep::Close
            }
            HoldEnd::Release => {
                self.released(belief);
                self.release(session, request, granted).await
            }
        }
    }

    async fn release(&mut self, session: &Session, request: &LockRequest, granted: Granted) -> NextStep {
        let lock = self.locks.mix.lock_name(request.lock);
        let request_id = self.request_id();
        let invoked = self.world.now();
        let answer = release(
            &mut self.caller,
            &lock,
            session.id(),
            &granted.holder,
            &request_id,
        )
        .await;
        let returned = self.world.now();
        let input = LockCall::Release {
            lock: request.lock,
            holder: granted.holder.clone(),
            session: session.id().to_owned(),
        };
        let result = answer.clone().map(|held| match held {
            true => LockCallResult::Released,
            false => LockCallResult::NotHolder,
        });
        self.locks
            .calls
            .add(&self.world, &mut self.me, invoked, input, &result);
        // No lock is broken in this workload, so a session that was promised to live until after the response
        // must still hold.
        if answer == CallResult::Ok(false) && session.liveness().deadline() > returned {
            self.locks.contradictions.lock().push(format!(
                "client {} with a live session {} no longer held lock {} with token {}, {}",
                self.number,
                session.id(),
                request.lock,
                granted.token,
                between(invoked, returned),
            ));
        }
        if answer == CallResult::Ok(true) {
            self.last_released = Some(ReleasedHold {
                session: session.id().to_owned(),
                lock: request.lock,
                holder: granted.holder.clone(),
            });
        }
        match answer {
            CallResult::Ok(_) => NextStep::KeepSession,
            CallResult::Failed(_) | CallResult::Unknown(_) => NextStep::Abandon,
        }
    }

    /// Records that the client believes to hold from now on; returns the index of the belief.
    fn believe(&self, session: &Session, request: &LockRequest, granted: &Granted) -> usize {
        let mut beliefs = self.locks.beliefs.lock();
        beliefs.push(Belief {
            client: self.number,
            lock: request.lock,
            holder: granted.holder.clone(),
            mode: request.mode,
            token: granted.token,
            begin: self.world.now(),
            released: None,
            life: session.liveness(),
        });
        beliefs.len() - 1
    }

    fn released(&self, belief: usize) {
        self.locks.beliefs.lock()[belief].released = Some(self.world.now());
    }
}

fn between(invoked: Nanos, returned: Nanos) -> String {
    let ms = |at: Nanos| at / 1_000_000;
    format!("between {} ms and {} ms", ms(invoked), ms(returned))
}
