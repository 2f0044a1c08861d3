//! One client in the queues: it gets a place, polls for the grant, and releases. Half of the clients have
//! leases, the others a session.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use lockgate_check::contenders::{Contender, Fact};
use lockgate_check::{ClientId, Nanos};
use serde_json::json;

use super::plan::{Plan, WaitEnd, lock_name};
use super::{CLIENTS, PER_SECOND, Queued};
use crate::client::{
    CallResult, Caller, Contend, LeaseAnswer, Polled, Session, nanos, poll, read_lease, release,
    release_lease, renew,
};
use crate::pace::Pace;
use crate::systems::caller;
use crate::workloads::contenders::Index;
use crate::world::World;

/// Time to live of leases and sessions: the shortest that a server grants.
const TTL: Duration = Duration::from_secs(2);

/// Renewals in the time to live: two can be lost without consequences.
const RENEWALS_PER_TTL: u32 = 4;

/// Time limit of a renewal, so that there is time for another one.
const RENEWAL_TIMEOUT: Duration = Duration::from_millis(500);

/// Interval at which a holder checks whether a renewal is due.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Time after which a client that still waits leaves the queue.
const WAIT_LIMIT: Duration = Duration::from_secs(12);

/// Percentage of polls whose connection is cut.
const CUT_PERCENT: u32 = 20;

/// Percentage of polls before which a client reads its lease, linearizably.
const READ_PERCENT: u32 = 20;

struct Client {
    run: Arc<Queued>,
    world: World,
    number: usize,
    caller: Caller,
    /// A caller for each node: polls, renewals and releases are sent to any of them.
    nodes: Vec<Caller>,
    pace: Pace,
    rng: Rng,
    me: ClientId,
    requests: u64,
    /// Session of a client that has no leases.
    session: Option<Session>,
}

/// Owner of a place.
enum Owner {
    Lease { text: String, renewal_due: Nanos },
    Session(Session),
}

/// Place of this client in a queue, or its hold.
struct Place {
    index: Index,
    lock: String,
    holder: String,
    key: String,
    requested: Nanos,
    owner: Owner,
    is_renewed: bool,
}

/// State of a place at the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    Holds,
    Gone,
}

/// Runs the client until the end of the run.
pub async fn run(run: Arc<Queued>, world: World, number: usize) {
    let nodes = world.endpoints.iter();
    let mut client = Client {
        run,
        caller: caller(&world, number),
        nodes: nodes.map(|endpoint| Caller::to_one(endpoint.http)).collect(),
        pace: Pace::new(&world, number, CLIENTS, PER_SECOND),
        rng: super::super::rng(&world, number),
        me: ClientId::try_from(number).expect("there are few clients"),
        requests: 0,
        session: None,
        number,
        world,
    };
    while client.pace.next().await {
        let plan = Plan::draw(&mut client.rng, number);
        match client.queue(&plan).await {
            Some((place, state)) => client.follow(&plan, place, state).await,
            None => {
                client.pace.back_off().await;
            }
        }
    }
    if let Some(session) = client.session {
        session.close(&mut client.caller).await;
    }
}

impl Client {
    fn key(&mut self) -> String {
        self.requests += 1;
        format!("queued-{}-{}", self.me, self.requests)
    }

    /// Chooses a node for the next call.
    fn node(&mut self) -> &mut Caller {
        self.rng.choice(&mut self.nodes).expect("there are nodes")
    }

    fn learn(&self, place: &Place, invoked: Nanos, fact: Fact) {
        let contenders = &self.run.contenders;
        contenders.learn(place.index, invoked, self.world.now(), fact);
    }

    fn count<T>(&self, answer: &CallResult<T>) {
        self.run.contenders.tally.count(self.world.now(), answer);
    }

    /// Every other client has leases.
    fn has_leases(&self) -> bool {
        self.number.is_multiple_of(2)
    }

    /// Returns the session of a client without leases, which lives as far as the client knows.
    async fn session(&mut self) -> Option<Session> {
        match self.session.take().filter(Session::is_alive) {
            Some(session) => Some(session),
            None => Session::open(&self.world, self.number, &mut self.caller, TTL)
                .await
                .ok(),
        }
    }

    /// Gets a place in the queue, or the lock.
    async fn queue(&mut self, plan: &Plan) -> Option<(Place, State)> {
        let (lock, key) = (lock_name(plan.lock), self.key());
        let session = match self.has_leases() {
            true => None,
            false => Some(self.session().await?),
        };
        let request = Contend {
            lock: &lock,
            fields: match &session {
                Some(session) => json!({"session": session.id(), "wait": "queue"}),
                None => json!({"ttl_ms": TTL.as_millis(), "wait": "queue"}),
            },
            key: &key,
        };
        let requested = self.world.now();
        let answer = request
            .send(&self.world, &mut self.caller, Duration::ZERO, plan.cut)
            .await;
        let answered = self.world.now();
        self.count(&answer);
        // A session with a contender that its client does not know is abandoned.
        let contender = answer.ok()?;
        let (owner, promised) = match (session, contender.lease) {
            (Some(session), None) => {
                let deadline = session.liveness().deadline();
                (Owner::Session(session), deadline)
            }
            (None, Some((text, until))) => {
                let renewal_due = contender.sent + nanos(TTL / RENEWALS_PER_TTL);
                (Owner::Lease { text, renewal_due }, until)
            }
            _ => return None,
        };
        let index = self.run.contenders.add(Contender {
            lock: lock.clone(),
            holder: contender.holder.clone(),
            client: self.me,
            request: key.clone(),
            requested,
            answered,
            ttl: matches!(owner, Owner::Lease { .. }).then(|| nanos(TTL)),
            min_hold: 0,
            max_hold: None,
            evidence: Vec::new(),
        });
        let place = Place {
            index,
            lock,
            holder: contender.holder,
            key,
            requested,
            owner,
            is_renewed: true,
        };
        self.learn(&place, contender.sent, Fact::Promised(promised));
        let state = match contender.token {
            Some(token) => {
                self.learn(&place, contender.sent, Fact::Granted(token));
                State::Holds
            }
            None => State::Waits,
        };
        Some((place, state))
    }

    /// Follows a place to its end. The session continues if nothing of it is left.
    async fn follow(&mut self, plan: &Plan, mut place: Place, state: State) {
        if plan.wait == WaitEnd::Silence {
            place.stop_renewals();
        }
        let state = match state {
            State::Waits => self.wait(plan, &mut place).await,
            state => state,
        };
        let left = match state {
            State::Gone => true,
            State::Waits => self.leave(&mut place).await,
            State::Holds => {
                self.hold(&mut place, plan.hold).await;
                match plan.is_silent_at_end || !place.is_renewed {
                    true => false,
                    false => self.release(&mut place).await,
                }
            }
        };
        if let Owner::Session(session) = &place.owner {
            let deadline = session.liveness().deadline();
            self.learn_promise_of_session(&place, deadline);
        }
        if let Owner::Session(session) = place.owner
            && left
            && place.is_renewed
        {
            self.session = Some(session);
        }
    }

    /// Waits until the place is granted or gone, or until the client leaves the queue.
    async fn wait(&mut self, plan: &Plan, place: &mut Place) -> State {
        let limit = match plan.wait {
            WaitEnd::GiveUp(after) => after,
            WaitEnd::Grant | WaitEnd::Silence => WAIT_LIMIT,
        };
        let give_up = self.world.now() + nanos(limit);
        while self.world.now() < give_up && !self.world.stop.is_cancelled() {
            if place.is_renewed && self.renew_if_due(place).await == State::Gone {
                return State::Gone;
            }
            if self.rng.u32(0..100) < READ_PERCENT && self.read(place).await == State::Gone {
                return State::Gone;
            }
            match self.poll(place, give_up).await {
                State::Waits => {}
                state => return state,
            }
        }
        State::Waits
    }

    /// Polls once for the grant, until the next renewal is due at the latest.
    async fn poll(&mut self, place: &Place, give_up: Nanos) -> State {
        let until = match &place.owner {
            Owner::Lease { renewal_due, .. } if place.is_renewed => give_up.min(*renewal_due),
            _ => give_up,
        };
        let left = Duration::from_nanos(until.saturating_sub(self.world.now()));
        let wait = Duration::from_millis(self.rng.u64(50..1500)).min(left);
        let cut = (self.rng.u32(0..100) < CUT_PERCENT).then(|| Duration::from_millis(self.rng.u64(1..300)));
        let (lock, holder) = (place.lock.clone(), place.holder.clone());
        let invoked = self.world.now();
        let node = self.node();
        let polled = match cut {
            None => Some(poll(node, &lock, &holder, wait).await),
            Some(after) => {
                let polled = tokio::time::timeout(after, poll(node, &lock, &holder, wait)).await;
                if polled.is_err() {
                    node.disconnect();
                }
                polled.ok()
            }
        };
        let Some((polled, answer)) = polled else {
            return State::Waits;
        };
        self.count(&answer);
        match polled {
            Polled::Granted(token) => {
                self.learn(place, invoked, Fact::Granted(token));
                State::Holds
            }
            Polled::Gone(end) => {
                self.gone(place, invoked, Fact::Gone(end));
                State::Gone
            }
            Polled::Waits => State::Waits,
            Polled::Open => {
                self.pace.back_off().await;
                State::Waits
            }
        }
    }

    /// Records the end of a place, with what its session was promised at that moment.
    fn gone(&self, place: &Place, invoked: Nanos, fact: Fact) {
        if let Owner::Session(session) = &place.owner {
            self.learn_promise_of_session(place, session.liveness().deadline());
        }
        self.learn(place, invoked, fact);
    }

    /// Heartbeats say that the session lives, and not at which time its contender did.
    fn learn_promise_of_session(&self, place: &Place, deadline: Nanos) {
        self.learn(place, place.requested, Fact::Promised(deadline));
    }

    async fn renew_if_due(&mut self, place: &mut Place) -> State {
        let now = self.world.now();
        let text = match &place.owner {
            Owner::Lease { text, renewal_due } if now >= *renewal_due => text.clone(),
            Owner::Session(session) if !session.is_alive() => {
                place.is_renewed = false;
                return State::Waits;
            }
            _ => return State::Waits,
        };
        let world = self.world.clone();
        let (answer, result) = renew(&world, self.node(), &text, None, RENEWAL_TIMEOUT).await;
        let state = self.heard_of_lease(place, now, &answer, result);
        match answer {
            LeaseAnswer::Open => {
                self.learn(place, now, Fact::Attempted);
                self.pace.back_off().await;
            }
            _ => place.set_renewal_due(now + nanos(TTL / RENEWALS_PER_TTL)),
        }
        state
    }

    /// Reads the lease of a place.
    async fn read(&mut self, place: &mut Place) -> State {
        let Owner::Lease { text, .. } = &place.owner else {
            return State::Waits;
        };
        let text = text.clone();
        let invoked = self.world.now();
        let (answer, result) = read_lease(self.node(), &text).await;
        self.heard_of_lease(place, invoked, &answer, result)
    }

    fn heard_of_lease(
        &self,
        place: &Place,
        invoked: Nanos,
        answer: &LeaseAnswer,
        result: CallResult<()>,
    ) -> State {
        let is_ended = *answer == LeaseAnswer::Ended;
        self.count(&if is_ended { CallResult::Ok(()) } else { result });
        match answer {
            LeaseAnswer::Lives { until, token } => {
                let fact = match (until, token) {
                    (Some(until), _) => Fact::Promised(*until),
                    (None, Some(_)) => Fact::Alive,
                    (None, None) => Fact::Waiting,
                };
                self.learn(place, invoked, fact);
                State::Waits
            }
            LeaseAnswer::Ended => {
                self.learn(place, invoked, Fact::Gone(None));
                State::Gone
            }
            LeaseAnswer::Open => State::Waits,
        }
    }

    /// Holds the lock for a time, or until it is lost as far as the client knows.
    async fn hold(&mut self, place: &mut Place, time: Duration) {
        let until = self.world.now() + nanos(time);
        while self.world.now() < until {
            if place.is_renewed && self.renew_if_due(place).await == State::Gone {
                place.is_renewed = false;
                return;
            }
            let left = Duration::from_nanos(until.saturating_sub(self.world.now()));
            if !self.pace.sleep(left.min(POLL_INTERVAL)).await {
                return;
            }
        }
    }

    /// Leaves the queue; returns whether the place is gone for certain.
    async fn leave(&mut self, place: &mut Place) -> bool {
        let Owner::Session(session) = &place.owner else {
            return self.release(place).await;
        };
        let (lock, key) = (place.lock.clone(), place.key.clone());
        let request = Contend {
            lock: &lock,
            fields: json!({"session": session.id()}),
            key: &key,
        };
        let invoked = self.world.now();
        let world = self.world.clone();
        let answer = request.withdraw(&world, self.node()).await;
        self.count(&answer);
        match answer {
            CallResult::Ok(None) => {
                self.learn(place, invoked, Fact::Leaving);
                self.learn(place, invoked, Fact::Left);
                true
            }
            // The grant was faster.
            CallResult::Ok(Some(contender)) => {
                if let Some(token) = contender.token {
                    self.learn(place, invoked, Fact::Granted(token));
                }
                self.release(place).await
            }
            CallResult::Failed(_) | CallResult::Unknown(_) => {
                self.learn(place, invoked, Fact::Leaving);
                false
            }
        }
    }

    /// Releases the lock, or the place of a lease; returns whether it is gone for certain.
    async fn release(&mut self, place: &mut Place) -> bool {
        let key = self.key();
        let invoked = self.world.now();
        let answer = match &place.owner {
            Owner::Lease { text, .. } => {
                let text = text.clone();
                release_lease(self.node(), &text, &key).await
            }
            Owner::Session(session) => {
                let (lock, holder, id) = (place.lock.clone(), place.holder.clone(), session.id().to_owned());
                release(self.node(), &lock, &id, &holder, &key).await
            }
        };
        self.count(&answer);
        match answer {
            CallResult::Ok(true) => {
                self.learn(place, invoked, Fact::Leaving);
                self.learn(place, invoked, Fact::Left);
                true
            }
            // It had ended before, which is no consequence of this request.
            CallResult::Ok(false) => {
                self.gone(place, invoked, Fact::Gone(None));
                true
            }
            CallResult::Failed(_) | CallResult::Unknown(_) => {
                self.learn(place, invoked, Fact::Leaving);
                false
            }
        }
    }
}

impl Place {
    /// Stops all renewals, as a crashed client does.
    fn stop_renewals(&mut self) {
        self.is_renewed = false;
        if let Owner::Session(session) = &mut self.owner {
            session.stop_heartbeats();
        }
    }

    fn set_renewal_due(&mut self, due: Nanos) {
        if let Owner::Lease { renewal_due, .. } = &mut self.owner {
            *renewal_due = due;
        }
    }
}
