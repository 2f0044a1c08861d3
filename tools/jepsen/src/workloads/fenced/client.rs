//! One client of the workload: it acquires a lock, reads, computes, writes, and releases the lock; sometimes
//! it is paused in between.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use lockgate_check::ClientId;
use serde_json::json;

use super::{
    CLIENTS, Fenced, FencedCall, PAUSE_BEYOND_TTL, PAUSED_ONE_IN, PER_SECOND, REGISTERS, TTL, Update, WAIT,
};
use crate::client::{Acquire, CallResult, Caller, Granted, Session, release};
use crate::pace::Pace;
use crate::systems::caller;
use crate::world::World;

fn lock_name(register: usize) -> String {
    format!("jepsen/fenced/{register}")
}

struct Client {
    run: Arc<Fenced>,
    world: World,
    number: usize,
    caller: Caller,
    pace: Pace,
    me: ClientId,
    requests: u64,
    rng: Rng,
}

/// Runs the client until the end of the run.
pub async fn run(run: Arc<Fenced>, world: World, number: usize) {
    let mut client = Client {
        run,
        caller: caller(&world, number),
        pace: Pace::new(&world, number, CLIENTS, PER_SECOND),
        me: ClientId::try_from(number).expect("there are few clients"),
        requests: 0,
        rng: super::super::rng(&world, number),
        number,
        world,
    };
    let mut values = super::super::unique_numbers(number);
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
        if client.update(&mut current, values()).await {
            session = Some(current);
        }
    }
    if let Some(session) = session {
        session.close(&mut client.caller).await;
    }
}

impl Client {
    fn request_id(&mut self) -> String {
        self.requests += 1;
        format!("{}-{}", self.number, self.requests)
    }

    async fn acquire(&mut self, session: &Session, register: usize) -> CallResult<Granted> {
        let request_id = self.request_id();
        let acquire = Acquire {
            lock: &lock_name(register),
            session: session.id(),
            fields: json!({"mode": "exclusive"}),
            request_id: &request_id,
        };
        let invoked = self.world.now();
        let answer = acquire.send(&mut self.caller, WAIT).await;
        let token = answer.clone().map(|granted| granted.token);
        let input = FencedCall::Acquire { register };
        self.run
            .calls
            .add(&self.world, &mut self.me, invoked, input, &token);
        answer
    }

    /// Makes one update; returns whether the session is still usable.
    async fn update(&mut self, session: &mut Session, value: u64) -> bool {
        let register = self.rng.usize(0..REGISTERS);
        let granted = match self.acquire(session, register).await {
            CallResult::Ok(granted) => granted,
            CallResult::Failed(why) => return why != "session_expired",
            CallResult::Unknown(_) => return false,
        };
        // The client checks its session here; after this check anything may delay it.
        if !session.is_alive() {
            return false;
        }
        let begin = self.world.now();
        let paused = self.rng.u32(0..PAUSED_ONE_IN) == 0;
        let (run, fences, token) = (self.run.clone(), self.run.fences, granted.token);
        let read = run.registers[register].lock().read(fences, token);
        let taken = match read {
            None => false,
            Some(read) => {
                self.compute(session, paused).await;
                let client = self.me;
                run.registers[register]
                    .lock()
                    .write(fences, client, token, read, value)
            }
        };
        run.updates.lock().push(Update {
            client: self.number,
            register,
            token,
            begin,
            end: self.world.now(),
            paused,
            taken,
        });
        if paused {
            return false;
        }
        self.release(session, register, &granted).await
    }

    /// Computation between the read and the write, with a pause or without.
    async fn compute(&mut self, session: &mut Session, paused: bool) {
        if paused {
            // A pause stops the heartbeats as well, and does not end with the run: a paused process notices
            // neither.
            session.stop_heartbeats();
            tokio::time::sleep(
                session.ttl() + PAUSE_BEYOND_TTL + Duration::from_millis(self.rng.u64(0..1000)),
            )
            .await;
        } else {
            tokio::time::sleep(Duration::from_millis(self.rng.u64(0..6))).await;
        }
    }

    async fn release(&mut self, session: &Session, register: usize, granted: &Granted) -> bool {
        let request_id = self.request_id();
        let invoked = self.world.now();
        let lock = lock_name(register);
        let answer = release(
            &mut self.caller,
            &lock,
            session.id(),
            &granted.holder,
            &request_id,
        )
        .await;
        let input = FencedCall::Release {
            register,
            token: granted.token,
        };
        let result = answer.clone().map(|_| granted.token);
        self.run
            .calls
            .add(&self.world, &mut self.me, invoked, input, &result);
        answer == CallResult::Ok(true)
    }
}
