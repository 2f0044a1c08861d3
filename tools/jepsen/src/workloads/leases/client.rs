//! One client of leases: it acquires, renews, writes to the register of the lock, and releases.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use lockgate_check::contenders::{Contender, Fact};
use lockgate_check::{ClientId, Nanos};
use serde_json::{Value, json};

use super::plan::{HoldEnd, LONGEST_TTL, Plan, TTLS_MS, Wait, lock_name};
use super::{CLIENTS, Leases, PER_SECOND};
use crate::client::{
    CallResult, Caller, Contend, LeaseAnswer, Reply, nanos, read_lease, release_lease, renew, session_of,
};
use crate::pace::Pace;
use crate::systems::caller;
use crate::workloads::contenders::Index;
use crate::workloads::fenced::Fences;
use crate::world::World;

/// Renewals in the time to live: two can be lost without consequences.
const RENEWALS_PER_TTL: u64 = 4;

/// Time limit of a renewal, so that there is time for another one.
const RENEWAL_TIMEOUT: Duration = Duration::from_millis(500);

/// Interval at which a holder checks whether a renewal is due.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Percentage of renewals that prolong the time to live.
const LONGER_PERCENT: u32 = 10;

/// Percentage of releases that are sent again, and of ended leases that are queried.
const AGAIN_PERCENT: u32 = 15;

/// Time that a paused client sleeps beyond the end of its lease.
const PAUSE_BEYOND_TTL: Duration = Duration::from_millis(800);

/// Wait of a request whose first connection is cut.
const DISCONNECTED_WAIT: Duration = Duration::from_secs(1);

/// Time limit within which a silent lease must be seen to end, before the client gives up.
const SILENT_FOR: Duration = Duration::from_secs(12);

struct Client {
    run: Arc<Leases>,
    world: World,
    caller: Caller,
    /// A caller for each node: renewals and releases are sent to any of them.
    nodes: Vec<Caller>,
    pace: Pace,
    rng: Rng,
    me: ClientId,
    requests: u64,
}

/// Lease of this client that holds its lock.
struct Lease {
    index: Index,
    text: String,
    ttl_ms: u64,
    token: u64,
    renewal_due: Nanos,
    /// Longer time to live that was requested without an answer, with the key of that request.
    open_change: Option<(u64, String)>,
    ended: bool,
}

/// Runs the client until the end of the run.
pub async fn run(run: Arc<Leases>, world: World, number: usize) {
    let nodes = world.endpoints.iter();
    let mut client = Client {
        run,
        caller: caller(&world, number),
        nodes: nodes.map(|endpoint| Caller::to_one(endpoint.http)).collect(),
        pace: Pace::new(&world, number, CLIENTS, PER_SECOND),
        rng: super::super::rng(&world, number),
        me: ClientId::try_from(number).expect("there are few clients"),
        requests: 0,
        world,
    };
    let mut values = super::super::unique_numbers(number);
    while client.pace.next().await {
        let plan = Plan::draw(&mut client.rng, number);
        match client.acquire(&plan).await {
            CallResult::Ok(mut lease) => client.use_lease(&plan, &mut lease, values()).await,
            CallResult::Failed(why) if why == "lock_busy" || why == "lock_timeout" => {}
            CallResult::Failed(_) | CallResult::Unknown(_) => {
                client.pace.back_off().await;
            }
        }
    }
}

impl Client {
    fn key(&mut self) -> String {
        self.requests += 1;
        format!("lease-{}-{}", self.me, self.requests)
    }

    /// Chooses a node for the next call.
    fn node(&mut self) -> &mut Caller {
        self.rng.choice(&mut self.nodes).expect("there are nodes")
    }

    fn learn(&self, lease: &Lease, invoked: Nanos, fact: Fact) {
        let contenders = &self.run.contenders;
        contenders.learn(lease.index, invoked, self.world.now(), fact);
    }

    fn count<T>(&self, answer: &CallResult<T>) {
        self.run.contenders.tally.count(self.world.now(), answer);
    }

    async fn acquire(&mut self, plan: &Plan) -> CallResult<Lease> {
        let lock = lock_name(plan.lock);
        let key = self.key();
        let (wait, cut) = match plan.wait {
            Wait::Try => (Duration::ZERO, None),
            Wait::For(time) => (time, None),
            Wait::UntilDisconnect(after) => (DISCONNECTED_WAIT, Some(after)),
        };
        let request = Contend {
            lock: &lock,
            fields: fields(plan, wait),
            key: &key,
        };
        let requested = self.world.now();
        let answer = request.send(&self.world, &mut self.caller, wait, cut).await;
        let answered = self.world.now();
        self.count(&answer);
        let contender = match answer {
            CallResult::Ok(contender) => contender,
            CallResult::Failed(why) => return CallResult::Failed(why),
            CallResult::Unknown(why) => return CallResult::Unknown(why),
        };
        let (Some(token), Some((text, promised))) = (contender.token, contender.lease) else {
            return CallResult::Unknown(format!("{} has no lease or no token", contender.holder));
        };
        let index = self.run.contenders.add(Contender {
            lock: lock.clone(),
            holder: contender.holder,
            client: self.me,
            request: key,
            requested,
            answered,
            ttl: Some(nanos(LONGEST_TTL)),
            min_hold: nanos(plan.min_hold),
            max_hold: plan.max_hold.map(nanos),
            evidence: Vec::new(),
        });
        let lease = Lease {
            index,
            text,
            ttl_ms: plan.ttl_ms,
            token,
            // A client that waited renews at once: its promise counts from the sending of the request.
            renewal_due: contender.sent + nanos(Duration::from_millis(plan.ttl_ms / RENEWALS_PER_TTL)),
            open_change: None,
            ended: false,
        };
        self.learn(&lease, contender.sent, Fact::Promised(promised));
        self.learn(&lease, contender.sent, Fact::Granted(token));
        CallResult::Ok(lease)
    }

    async fn use_lease(&mut self, plan: &Plan, lease: &mut Lease, value: u64) {
        let run = self.run.clone();
        let register = &run.registers[plan.lock];
        let read = register.lock().read(Fences::Checked, lease.token);
        if plan.end == HoldEnd::Pause {
            let pause = Duration::from_millis(lease.ttl_ms) + PAUSE_BEYOND_TTL;
            tokio::time::sleep(pause).await;
        } else {
            self.hold(lease, plan.hold).await;
        }
        if let Some(read) = read {
            let mut register = register.lock();
            register.write(Fences::Checked, self.me, lease.token, read, value);
        }
        match plan.end {
            HoldEnd::Release if !lease.ended => self.release(lease).await,
            HoldEnd::Release | HoldEnd::Pause => {}
            HoldEnd::Silence => self.watch_expiry(lease).await,
        }
        if lease.ended && self.rng.u32(0..100) < AGAIN_PERCENT {
            self.probe(lease).await;
        }
    }

    /// Holds the lock and renews the lease for a time, or until the lease has ended.
    async fn hold(&mut self, lease: &mut Lease, time: Duration) {
        let until = self.world.now() + nanos(time);
        while self.world.now() < until && !lease.ended {
            if self.world.now() >= lease.renewal_due {
                self.renew(lease).await;
                continue;
            }
            let next = until.min(lease.renewal_due).saturating_sub(self.world.now());
            if !self
                .pace
                .sleep(Duration::from_nanos(next).min(POLL_INTERVAL))
                .await
            {
                return;
            }
        }
    }

    async fn renew(&mut self, lease: &mut Lease) {
        // A time to live becomes only longer: a late copy of a shorter one would end the lease early.
        let longer: Vec<u64> = TTLS_MS.into_iter().filter(|ttl| *ttl > lease.ttl_ms).collect();
        let change = match lease.open_change.take() {
            Some(open) => Some(open),
            None if self.rng.u32(0..100) < LONGER_PERCENT => {
                self.rng.choice(longer).map(|ttl| (ttl, self.key()))
            }
            None => None,
        };
        let with_key = change.as_ref().map(|(ttl, key)| (*ttl, key.as_str()));
        let world = self.world.clone();
        let invoked = world.now();
        let (answer, result) = renew(&world, self.node(), &lease.text, with_key, RENEWAL_TIMEOUT).await;
        let is_ended = answer == LeaseAnswer::Ended;
        self.count(&if is_ended { CallResult::Ok(()) } else { result });
        match answer {
            LeaseAnswer::Lives { until, .. } => {
                if let Some((ttl_ms, _)) = change {
                    lease.ttl_ms = ttl_ms;
                }
                let interval = Duration::from_millis(lease.ttl_ms / RENEWALS_PER_TTL);
                lease.renewal_due = invoked + nanos(interval);
                self.learn(lease, invoked, Fact::Promised(until.unwrap_or(0)));
            }
            LeaseAnswer::Ended => self.ended(lease, invoked),
            LeaseAnswer::Open => {
                lease.open_change = change;
                lease.renewal_due = self.world.now();
                self.learn(lease, invoked, Fact::Attempted);
                self.pace.back_off().await;
            }
        }
    }

    fn ended(&self, lease: &mut Lease, invoked: Nanos) {
        lease.ended = true;
        self.learn(lease, invoked, Fact::Gone(None));
    }

    async fn release(&mut self, lease: &mut Lease) {
        let key = self.key();
        let text = lease.text.clone();
        let invoked = self.world.now();
        let answer = release_lease(self.node(), &text, &key).await;
        self.count(&answer);
        match answer {
            // It had ended before, which is no consequence of this request.
            CallResult::Ok(false) => return self.ended(lease, invoked),
            CallResult::Ok(true) => {
                self.learn(lease, invoked, Fact::Leaving);
                self.learn(lease, invoked, Fact::Left);
                lease.ended = true;
            }
            CallResult::Failed(_) | CallResult::Unknown(_) => {
                return self.learn(lease, invoked, Fact::Leaving);
            }
        }
        if self.rng.u32(0..100) < AGAIN_PERCENT {
            let key = self.key();
            let again = release_lease(self.node(), &text, &key).await;
            self.count(&again);
            if again == CallResult::Ok(false) {
                self.run.contradictions.lock().push(format!(
                    "client {} released its lease with token {} twice, and the second answer was that it had expired",
                    self.me, lease.token
                ));
            }
        }
    }

    /// Watches a lease that is no longer renewed until it has ended.
    async fn watch_expiry(&mut self, lease: &mut Lease) {
        let give_up = self.world.now() + nanos(SILENT_FOR);
        while !lease.ended && self.world.now() < give_up {
            let text = lease.text.clone();
            let invoked = self.world.now();
            let (answer, result) = read_lease(self.node(), &text).await;
            let is_ended = answer == LeaseAnswer::Ended;
            self.count(&if is_ended { CallResult::Ok(()) } else { result });
            match answer {
                LeaseAnswer::Lives { .. } => self.learn(lease, invoked, Fact::Alive),
                LeaseAnswer::Ended => self.ended(lease, invoked),
                LeaseAnswer::Open => {}
            }
            if !self
                .pace
                .sleep(Duration::from_millis(self.rng.u64(50..400)))
                .await
            {
                return;
            }
        }
    }

    /// Queries a lease that has ended: its session must have ended as well, and a renewal must fail.
    async fn probe(&mut self, lease: &mut Lease) {
        if self.rng.bool() {
            return self.renew(lease).await;
        }
        let Some(session) = session_of(&lease.text) else {
            return;
        };
        let path = format!("/v1/sessions/{session}?linearizable=true");
        let invoked = self.world.now();
        let reply = self.node().get(&path).await;
        let answer = match &reply {
            Reply::Refused(code, _) if code == "session_expired" || code == "no_session" => {
                CallResult::Ok(())
            }
            reply => reply.clone().done().map(drop),
        };
        self.count(&answer);
        if let Reply::Done(_) = reply {
            self.learn(lease, invoked, Fact::Alive);
        }
    }
}

fn fields(plan: &Plan, wait: Duration) -> Value {
    let mut fields = json!({"ttl_ms": plan.ttl_ms});
    if plan.wait != Wait::Try {
        fields["wait_ms"] = json!(wait.as_millis());
    }
    if !plan.min_hold.is_zero() {
        fields["min_hold_ms"] = json!(plan.min_hold.as_millis());
    }
    if let Some(max_hold) = plan.max_hold {
        fields["max_hold_ms"] = json!(max_hold.as_millis());
    }
    fields
}
