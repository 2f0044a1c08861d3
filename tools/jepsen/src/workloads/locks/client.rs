//! One client of locks: it opens one session after the other, and acquires one lock after the other.

use std::sync::Arc;
use std::time::Duration;

use lockgate_check::{ClientId, Nanos};

use super::mix::{Leave, Wait, Wish, fields};
use super::{Asked, Belief, CLIENTS, Got, Locks, PER_SECOND, TTL};
use crate::client::{Acquire, Answer, Caller, Granted, Session, release};
use crate::pace::Pace;
use crate::systems::caller;
use crate::world::World;

/// Time for which a waiting client that has stopped its heartbeats waits for an answer: the session's TTL, an
/// election, and the TTL again.
const DYING: Duration = Duration::from_secs(8);

/// Interval at which a holder checks whether it may still believe that it holds.
const LOOK: Duration = Duration::from_millis(20);

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
    past: Option<Past>,
}

/// Hold that was certainly released. A second, late release of it must not affect a later hold.
struct Past {
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
        past: None,
        number,
        world,
    };
    let mut rng = super::super::rng(&client.world, number);
    let mut session: Option<Session> = None;
    while client.pace.next().await {
        let mut current = match session.take().filter(Session::lives) {
            Some(session) => session,
            None => match Session::open(&client.world, number, &mut client.caller, TTL).await {
                Answer::Ok(session) => session,
                Answer::Failed(_) | Answer::Unknown(_) => {
                    client.pace.back_off().await;
                    continue;
                }
            },
        };
        let again = client
            .past_of(&current)
            .filter(|_| rng.u32(0..100) < AGAIN_PERCENT);
        let wish = client.locks.mix.draw(&mut rng, again);
        match client.take_and_leave(&mut current, &wish).await {
            Then::KeepSession => session = Some(current),
            // The heartbeats end with the session object; the server has to detect that.
            Then::Abandon => drop(current),
            Then::Close => {
                current.close(&mut client.caller).await;
            }
        }
    }
    if let Some(session) = session {
        session.close(&mut client.caller).await;
    }
}

/// Next step with the session after a lock.
enum Then {
    KeepSession,
    Abandon,
    Close,
}

impl Client {
    fn request_id(&mut self) -> String {
        self.requests += 1;
        format!("{}-{}", self.number, self.requests)
    }

    async fn take_and_leave(&mut self, session: &mut Session, wish: &Wish) -> Then {
        let invoked = self.world.now();
        let answer = self.acquire(session, wish).await;
        let asked = Asked::Acquire {
            lock: wish.lock,
            mode: wish.mode,
            wait: format!("{:?}", wish.wait),
            session: session.id().to_owned(),
        };
        let got = answer
            .clone()
            .map(|Granted { holder, token }| Got::Granted { holder, token });
        self.locks
            .calls
            .add(&self.world, &mut self.me, invoked, asked, &got);
        match answer {
            Answer::Ok(granted) => self.hold(session, wish, granted).await,
            Answer::Failed(why) if why == "session_expired" => {
                session.life().ended();
                Then::Abandon
            }
            Answer::Failed(why) if why == "lock_busy" || why == "lock_timeout" => Then::KeepSession,
            Answer::Failed(_) => {
                self.pace.back_off().await;
                Then::KeepSession
            }
            // The client may hold the lock without knowing it. Only the end of the session resolves that.
            Answer::Unknown(_) => Then::Abandon,
        }
    }

    async fn acquire(&mut self, session: &mut Session, wish: &Wish) -> Answer<Granted> {
        let lock = self.locks.mix.lock_name(wish.lock);
        let request_id = self.request_id();
        let id = session.id().to_owned();
        let acquire = Acquire {
            lock: &lock,
            session: &id,
            fields: fields(wish.mode),
            request_id: &request_id,
        };
        match wish.wait {
            Wait::Try => acquire.send(&mut self.caller, Duration::ZERO).await,
            Wait::For(time) => acquire.send(&mut self.caller, time).await,
            Wait::UntilHungUp(after) => acquire.send_and_hang_up(&mut self.caller, after).await,
            Wait::Dying => {
                session.fall_silent();
                acquire.send_without_end(&mut self.caller, DYING).await
            }
        }
    }

    /// Returns the lock that this session released last.
    fn past_of(&self, session: &Session) -> Option<usize> {
        let past = self.past.as_ref().filter(|past| past.session == session.id());
        past.map(|past| past.lock)
    }

    /// Releases the previous hold once more, as a delayed request might.
    async fn release_late(&mut self, session: &Session, wish: &Wish) {
        let Some(past) = self
            .past
            .take_if(|past| past.lock == wish.lock && past.session == session.id())
        else {
            return;
        };
        let lock = self.locks.mix.lock_name(past.lock);
        let request_id = self.request_id();
        let again = release(&mut self.caller, &lock, session.id(), &past.holder, &request_id).await;
        if again == Answer::Ok(true) {
            self.locks.contradictions.lock().push(format!(
                "client {} released its hold {} of lock {} twice, and both responses said that it had held it",
                self.number, past.holder, past.lock
            ));
        }
    }

    async fn hold(&mut self, session: &mut Session, wish: &Wish, granted: Granted) -> Then {
        let life = session.life();
        let belief = self.believe(session, wish, &granted);
        self.release_late(session, wish).await;
        let until = self.world.now() + crate::client::nanos(wish.hold);
        while life.lives() && self.world.now() < until {
            let left = Duration::from_nanos(until.saturating_sub(self.world.now()));
            if !self.pace.sleep(left.min(LOOK)).await {
                break;
            }
        }
        if !life.lives() {
            return Then::Abandon;
        }
        match wish.leave {
            Leave::Crash => {
                session.fall_silent();
                Then::Abandon
            }
            Leave::Close => {
                self.let_go(belief);
                Then::Close
            }
            Leave::Release => {
                self.let_go(belief);
                self.release(session, wish, granted).await
            }
        }
    }

    async fn release(&mut self, session: &Session, wish: &Wish, granted: Granted) -> Then {
        let lock = self.locks.mix.lock_name(wish.lock);
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
        let asked = Asked::Release {
            lock: wish.lock,
            holder: granted.holder.clone(),
            session: session.id().to_owned(),
        };
        let got = answer.clone().map(|held| match held {
            true => Got::Released,
            false => Got::NotHolder,
        });
        self.locks
            .calls
            .add(&self.world, &mut self.me, invoked, asked, &got);
        // No lock is broken in this workload, so a session that was promised to live until after the response
        // must still hold.
        if answer == Answer::Ok(false) && session.life().deadline() > returned {
            self.locks.contradictions.lock().push(format!(
                "client {} with a live session {} no longer held lock {} with token {}, {}",
                self.number,
                session.id(),
                wish.lock,
                granted.token,
                between(invoked, returned),
            ));
        }
        if answer == Answer::Ok(true) {
            self.past = Some(Past {
                session: session.id().to_owned(),
                lock: wish.lock,
                holder: granted.holder.clone(),
            });
        }
        match answer {
            Answer::Ok(_) => Then::KeepSession,
            Answer::Failed(_) | Answer::Unknown(_) => Then::Abandon,
        }
    }

    /// Records that the client believes to hold from now on; returns the index of the belief.
    fn believe(&self, session: &Session, wish: &Wish, granted: &Granted) -> usize {
        let mut beliefs = self.locks.beliefs.lock();
        beliefs.push(Belief {
            client: self.number,
            lock: wish.lock,
            holder: granted.holder.clone(),
            mode: wish.mode,
            token: granted.token,
            begin: self.world.now(),
            let_go: None,
            life: session.life(),
        });
        beliefs.len() - 1
    }

    fn let_go(&self, belief: usize) {
        self.locks.beliefs.lock()[belief].let_go = Some(self.world.now());
    }
}

fn between(invoked: Nanos, returned: Nanos) -> String {
    let ms = |at: Nanos| at / 1_000_000;
    format!("between {} ms and {} ms", ms(invoked), ms(returned))
}
