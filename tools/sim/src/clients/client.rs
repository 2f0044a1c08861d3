//! Client of the simulation: its current task, the response that it waits for, and its timeouts. It does one
//! thing at a time, beside its heartbeats.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use lock_api::Leased;
use znode_store::{
    Downgraded, Grant, HolderId, LeaseChange, LeaseContender, LeaseKey, LockMode, LockName, Refusal, Reply,
    RequestId, SessionId,
};

use super::tasks::{self, Task};
use super::{ClientId, ClientRequest, ClientResponse, LeaseWait, OpId, send};
use crate::agenda::Event;
use crate::clients::messages::ClientTimer;
use crate::dice::Dice;
use crate::invariants::Ledger;
use crate::network::Shared;
use crate::time::{MILLI, Micros};

/// Limit of attempts before a client gives a request up.
const ATTEMPTS: u16 = 8;

/// Environment of a client.
pub struct Environment {
    /// Network to the nodes.
    pub network: Shared,
    /// Ledger in which it records the responses.
    pub ledger: Rc<RefCell<Ledger>>,
    /// Number of nodes.
    pub machines: usize,
}

struct Session {
    id: SessionId,
    timeout: Micros,
}

/// Request that a client waits for.
struct Current {
    action: Action,
    request_id: RequestId,
    retry: u16,
    op: OpId,
    machine: usize,
    /// Time at which this attempt was sent.
    sent: Micros,
    /// Highest acknowledged position when the request began.
    floor: u64,
    /// Number of snapshots that had replaced the machine's state when this attempt was sent.
    replacements: u64,
}

/// Lease of a client, beside its session.
struct HeldLease {
    key: LeaseKey,
    contender: (LockName, HolderId),
    is_granted: bool,
}

#[derive(Clone)]
enum Action {
    Open,
    Setup,
    Task(Task),
    Guarded(Vec<znode_store::Op>),
    Upgrade {
        held: Grant,
        wait_ms: u64,
    },
    Downgrade(Grant, Downgraded),
    Release,
    Close,
    AwaitGrant {
        contender: (LockName, HolderId),
        wait_ms: u64,
    },
    RenewLease {
        lease: LeaseKey,
        ttl_ms: Option<u64>,
    },
    ReleaseLease(LeaseKey),
    ChangeLease {
        lock: LockName,
        lease: SessionId,
        change: LeaseChange,
    },
}

/// Client of the simulation.
pub struct Client {
    id: ClientId,
    /// Pauses after heartbeats, in a thousand.
    pauses: u64,
    dice: Dice,
    session: Option<Session>,
    holding: Vec<Grant>,
    lease: Option<HeldLease>,
    current: Option<Current>,
    heartbeats: BTreeMap<OpId, SessionId>,
    /// Time before which it begins nothing.
    still_until: Micros,
    next_op: OpId,
    next_request: u64,
    /// The one machine that gets its heartbeats and the first attempt of everything else. Half of the clients
    /// have one, as most real clients do. A client whose home is an isolated leader learns nothing of its
    /// successor.
    home: Option<u64>,
    /// It has yet to create the znodes that all clients need.
    sets_up: bool,
    /// It begins nothing new.
    no_new_calls: bool,
}

impl Client {
    /// Creates a client that has not done anything yet.
    pub fn new(id: ClientId, pauses: u64, mut dice: Dice) -> Self {
        let home = dice.chance(500).then(|| dice.between(0..u64::MAX));
        Self {
            home,
            id,
            pauses,
            dice,
            session: None,
            holding: Vec::new(),
            lease: None,
            current: None,
            heartbeats: BTreeMap::new(),
            still_until: 0,
            next_op: 0,
            next_request: 0,
            sets_up: true,
            no_new_calls: false,
        }
    }

    /// Stops beginning anything new, even heartbeats.
    pub fn stop_new_calls(&mut self) {
        self.no_new_calls = true;
    }

    /// Handles a timer.
    pub fn timer(&mut self, timer: ClientTimer, world: &Environment) {
        match timer {
            ClientTimer::Next if world.network.lock().agenda.now() < self.still_until => {
                let left = self.still_until - world.network.lock().agenda.now();
                self.next_after(world, left);
            }
            ClientTimer::Next if self.current.is_none() && !self.no_new_calls => self.begin(world),
            ClientTimer::Next => {}
            ClientTimer::Heartbeat(session) => self.heartbeat(session, world),
            ClientTimer::GiveUp(op) => {
                if self.heartbeats.remove(&op).is_some() {
                    self.unheard(world);
                }
                if let Some(current) = self.current.as_ref().filter(|current| current.op == op) {
                    if self.dice.chance(700) {
                        let (machine, client) = (current.machine, self.id);
                        let mut network = world.network.lock();
                        let delay = network.client_delay();
                        let disconnect = Event::Disconnect { machine, client, op };
                        network.agenda.after(delay, disconnect);
                    }
                    self.again(world);
                }
            }
        }
    }

    fn begin(&mut self, world: &Environment) {
        let action = match (&self.session, self.sets_up) {
            (_, true) => Action::Setup,
            (None, false) => Action::Open,
            (Some(_), false) => match self.holding.first() {
                Some(held) => {
                    let held = held.clone();
                    self.with(held)
                }
                None if self.lease.is_some() && self.dice.chance(700) => self.with_lease(),
                None => match tasks::draw(&mut self.dice, self.id) {
                    Task::Close => Action::Close,
                    // One at a time.
                    Task::Lease { .. } if self.lease.is_some() => self.with_lease(),
                    task => Action::Task(task),
                },
            },
        };
        self.next_request += 1;
        let request_id = format!("c{}-{}", self.id, self.next_request);
        if let Action::Task(Task::CreateUnique(_)) = action {
            world.ledger.borrow_mut().exactly_once.note_request(&request_id);
        }
        let floor = world.ledger.borrow().acknowledged.floor();
        self.current = Some(Current {
            action,
            request_id: RequestId::parse(&request_id).expect("the text is a valid request id"),
            retry: 0,
            op: 0,
            machine: 0,
            sent: 0,
            floor,
            replacements: 0,
        });
        self.attempt(world);
    }

    /// Draws the next action with a held lock.
    fn with(&mut self, held: Grant) -> Action {
        match (self.dice.between(0..10), held.mode) {
            (0..2, LockMode::Upgradeable) => Action::Upgrade {
                held,
                wait_ms: self.dice.between(20..2_000),
            },
            (2, LockMode::Exclusive | LockMode::Upgradeable) => Action::Downgrade(held, Downgraded::Shared),
            (3, LockMode::Exclusive) => Action::Downgrade(held, Downgraded::Upgradeable),
            (4..6, _) => Action::Guarded(tasks::guarded(&mut self.dice, &held)),
            _ => Action::Release,
        }
    }

    /// Draws the next action with a lease. Some are forgotten, and expire.
    fn with_lease(&mut self) -> Action {
        let held = self.lease.as_ref().expect("it has a lease");
        let (lease, contender) = (held.key, held.contender.clone());
        let change = |change| Action::ChangeLease {
            lock: contender.0.clone(),
            lease: lease.session,
            change,
        };
        match (self.dice.between(0..10), held.is_granted) {
            (0..5, false) => Action::AwaitGrant {
                contender,
                wait_ms: self.dice.between(0..800),
            },
            (0..2, true) => Action::ReleaseLease(lease),
            (2, true) | (5, false) => {
                let ttl_ms = Some(self.dice.between(2_000..6_000));
                Action::RenewLease { lease, ttl_ms }
            }
            (3, true) => change(LeaseChange::Rewrite {
                note: "rewritten".into(),
                timeout_ms: self.dice.between(2_000..6_000) as u32,
            }),
            (4, true) => change(LeaseChange::ReleaseOwn),
            (9, false) => Action::ReleaseLease(lease),
            (8, _) => {
                self.lease = None;
                Action::Task(Task::Read(tasks::draw_register(&mut self.dice)))
            }
            _ => Action::RenewLease { lease, ttl_ms: None },
        }
    }

    /// Sends the current request to a node.
    fn attempt(&mut self, world: &Environment) {
        let op = self.next_op();
        let is_first = self.current.as_ref().is_some_and(|current| current.retry == 0);
        let machine = self.machine(world, is_first);
        let Some(ask) = self.ask() else {
            self.current = None;
            return self.next_after(world, 10 * MILLI);
        };
        let current = self.current.as_mut().expect("a request is current");
        current.op = op;
        current.machine = machine;
        current.sent = world.network.lock().agenda.now();
        current.replacements = world.ledger.borrow().watches.replacements(machine);
        let patience = match &current.action {
            Action::Task(Task::Acquire { wait_ms, .. }) => wait_ms.unwrap_or_default(),
            Action::Task(Task::Lease {
                wait: LeaseWait::For(wait_ms),
                ..
            })
            | Action::Task(Task::Watch { wait_ms, .. })
            | Action::AwaitGrant { wait_ms, .. }
            | Action::Upgrade { wait_ms, .. } => *wait_ms,
            _ => 0,
        };
        let patience = patience * MILLI + self.dice.between(100..1_500) * MILLI;
        match &ask {
            // It may be applied from now on, whether it is answered or not.
            ClientRequest::RenewLease {
                lease,
                ttl_ms: Some(ttl_ms),
                ..
            } => {
                let mut ledger = world.ledger.borrow_mut();
                ledger
                    .sessions
                    .may_shorten(lease.session, current.sent, ttl_ms * MILLI);
            }
            ClientRequest::ChangeLease {
                lease,
                change: LeaseChange::Rewrite { timeout_ms, .. },
                ..
            } => {
                let timeout = Micros::from(*timeout_ms) * MILLI;
                let mut ledger = world.ledger.borrow_mut();
                ledger.sessions.may_shorten(*lease, current.sent, timeout);
            }
            ClientRequest::ReleaseLease { lease, .. } => {
                world.ledger.borrow_mut().leases.released(lease.session)
            }
            ClientRequest::ChangeLease { lease, .. } => world.ledger.borrow_mut().leases.released(*lease),
            _ => {}
        }
        let mut network = world.network.lock();
        send(&mut network, machine, self.id, op, ask);
        network
            .agenda
            .after(patience, Event::Client(self.id, ClientTimer::GiveUp(op)));
    }

    /// Returns the request; `None` if it needs a session that has ended.
    fn ask(&mut self) -> Option<ClientRequest> {
        let session = self.session.as_ref().map(|session| session.id);
        let current = self.current.as_ref().expect("a request is current");
        let (request_id, retry) = (current.request_id.clone(), current.retry);
        Some(match current.action.clone() {
            Action::Open => ClientRequest::Open {
                timeout_ms: self.dice.between(2_000..6_000),
                request_id,
            },
            Action::Setup => ClientRequest::Write {
                session: None,
                ops: tasks::registers(),
                request_id,
            },
            Action::Task(Task::Acquire { wishes, wait_ms }) => ClientRequest::Acquire {
                session: session?,
                wishes,
                wait_ms,
                request_id,
                retry,
            },
            Action::Task(Task::Lease {
                wish,
                bounds,
                ttl_ms,
                wait,
            }) => ClientRequest::AcquireLease {
                wish,
                bounds,
                ttl_ms,
                wait,
                request_id,
                retry,
            },
            Action::AwaitGrant { contender, wait_ms } => ClientRequest::AwaitGrant { contender, wait_ms },
            Action::RenewLease { lease, ttl_ms } => ClientRequest::RenewLease {
                lease,
                ttl_ms,
                request_id,
            },
            Action::ReleaseLease(lease) => ClientRequest::ReleaseLease { lease, request_id },
            Action::ChangeLease { lock, lease, change } => ClientRequest::ChangeLease {
                lock,
                lease,
                change,
                request_id,
            },
            Action::Task(Task::Write(ops)) | Action::Guarded(ops) => ClientRequest::Write {
                session: Some(session?),
                ops,
                request_id,
            },
            Action::Task(Task::CreateUnique(op)) => ClientRequest::Write {
                session: Some(session?),
                ops: vec![op],
                request_id,
            },
            Action::Task(Task::Read(path)) => ClientRequest::Read(path),
            Action::Task(Task::Watch { path, wait_ms }) => ClientRequest::Watch { path, wait_ms },
            Action::Task(Task::Close) | Action::Close => ClientRequest::Close {
                session: session?,
                request_id,
            },
            Action::Upgrade { held, wait_ms } => ClientRequest::Upgrade {
                session: session?,
                held: (held.lock, held.holder),
                wait_ms,
                request_id,
                retry,
            },
            Action::Downgrade(held, to) => ClientRequest::Downgrade {
                session: session?,
                held: (held.lock, held.holder),
                to,
                request_id,
            },
            Action::Release => {
                let held = self.holding.iter();
                ClientRequest::Release {
                    session: session?,
                    holders: held
                        .map(|grant| (grant.lock.clone(), grant.holder.clone()))
                        .collect(),
                    request_id,
                }
            }
        })
    }

    /// Handles a missing or inconclusive response: repeats the request on another node, or gives it up.
    fn again(&mut self, world: &Environment) {
        let Some(current) = &mut self.current else { return };
        // A watch is not repeated: another one would be about another moment.
        let repeatable = !matches!(current.action, Action::Task(Task::Watch { .. } | Task::Read(_)));
        current.retry += 1;
        if repeatable && current.retry < ATTEMPTS {
            return self.attempt(world);
        }
        let action = current.action.clone();
        self.current = None;
        if matches!(
            action,
            Action::AwaitGrant { .. }
                | Action::RenewLease { .. }
                | Action::ReleaseLease(_)
                | Action::ChangeLease { .. }
        ) {
            self.lease = None;
        }
        let leaves_something = matches!(
            action,
            Action::Task(Task::Acquire { .. }) | Action::Upgrade { .. } | Action::Release | Action::Close
        );
        if leaves_something {
            // A lock that the client may hold without knowing ends with the session, whose heartbeats it
            // stops.
            self.lose_session();
        }
        self.next_after(world, 50 * MILLI);
    }

    /// Handles an unanswered heartbeat. Occasionally it stays the last one for a long time, while it may
    /// still arrive.
    fn unheard(&mut self, world: &Environment) {
        if let Some(timeout) = self.session.as_ref().map(|session| session.timeout)
            && self.dice.chance(self.pauses * 2)
        {
            let pause = self.dice.between(timeout..timeout * 2);
            self.still_until = world.network.lock().agenda.now() + pause;
        }
    }

    fn heartbeat(&mut self, id: SessionId, world: &Environment) {
        let Some(session) = self.session.as_ref().filter(|session| session.id == id) else {
            return;
        };
        let timeout = session.timeout;
        if self.no_new_calls {
            return;
        }
        let now = world.network.lock().agenda.now();
        if now < self.still_until {
            let mut network = world.network.lock();
            let again = Event::Client(self.id, ClientTimer::Heartbeat(id));
            return network.agenda.after(self.still_until - now, again);
        }
        // Occasionally a client pauses, in half of the cases for longer than its session lives. Some pause
        // their other requests as well: each request of a session counts as a heartbeat.
        let pause = match self.dice.chance(self.pauses) {
            true => {
                let pause = self.dice.between(timeout / 2..timeout * 2);
                if self.dice.chance(500) {
                    self.still_until = now + pause;
                }
                pause
            }
            false => timeout / 3,
        };
        let op = self.next_op();
        let machine = self.machine(world, true);
        self.heartbeats.insert(op, id);
        let mut network = world.network.lock();
        send(&mut network, machine, self.id, op, ClientRequest::Heartbeat(id));
        network
            .agenda
            .after(timeout / 3, Event::Client(self.id, ClientTimer::GiveUp(op)));
        network
            .agenda
            .after(pause, Event::Client(self.id, ClientTimer::Heartbeat(id)));
    }

    /// Handles a response. A late one, which the client no longer waits for, is still valid evidence.
    pub fn answered(&mut self, op: OpId, answer: ClientResponse, world: &Environment) {
        match &answer {
            ClientResponse::Refreshed(session, sent, timeout)
            | ClientResponse::Opened(session, sent, timeout) => {
                world.ledger.borrow_mut().note_activity(*session, *sent, *timeout);
            }
            ClientResponse::Ended(session) => world.ledger.borrow_mut().reported_ended(*session),
            _ => {}
        }
        if self.heartbeats.remove(&op).is_some() {
            if let ClientResponse::Ended(session) = answer {
                self.ended(session);
            }
            return;
        }
        if self.current.as_ref().is_none_or(|current| current.op != op) {
            return;
        }
        match answer {
            ClientResponse::Unavailable | ClientResponse::Unknown => {
                let mut network = world.network.lock();
                // Repeats the attempt shortly, as after its timeout.
                let timer = Event::Client(self.id, ClientTimer::GiveUp(op));
                network.agenda.after(30 * MILLI, timer);
            }
            answer => {
                let current = self.current.take().expect("the request was checked above");
                self.take(current, answer, world);
            }
        }
    }

    fn take(&mut self, current: Current, answer: ClientResponse, world: &Environment) {
        let mut pause = self.dice.between(1..60) * MILLI;
        let mut ledger = world.ledger.borrow_mut();
        match (&current.action, answer) {
            (Action::Open, ClientResponse::Opened(id, _, timeout)) => {
                self.session = Some(Session { id, timeout });
                let mut network = world.network.lock();
                let timer = Event::Client(self.id, ClientTimer::Heartbeat(id));
                network.agenda.after(timeout / 3, timer);
            }
            (action, ClientResponse::Applied(applied)) => {
                let check = ledger.acknowledged.command(current.floor, &applied);
                ledger.note("acknowledged writes", check);
                if applied.outcome.is_ok()
                    && !matches!(action, Action::Setup | Action::Close)
                    && let Some(session) = &self.session
                {
                    // An executed request counts as a heartbeat.
                    ledger.note_activity(session.id, current.sent, session.timeout);
                }
                match (action, &applied.outcome) {
                    (Action::Task(Task::CreateUnique(_)), Ok(Reply::Created { path, .. })) => {
                        let check = ledger.exactly_once.created(current.request_id.as_str(), path);
                        ledger.note("exactly once", check);
                    }
                    (Action::Setup, Ok(_) | Err(_)) => self.sets_up = false,
                    (Action::Close, _) => self.lose_session(),
                    (_, Err(Refusal::SessionEnded(session) | Refusal::NoSession(session))) => {
                        self.ended(*session);
                    }
                    _ => {}
                }
            }
            (Action::Task(Task::Lease { .. }), ClientResponse::Leased(leased, lives_from)) => {
                ledger.acknowledged.other();
                let Leased {
                    lease,
                    contender,
                    expires_in,
                } = leased;
                let session = lease.key.session;
                let is_granted = matches!(contender, LeaseContender::Holds(_));
                if let Some(lives_from) = lives_from {
                    let lives = expires_in.as_micros() as Micros;
                    ledger.note_activity(session, lives_from, lives);
                }
                if !is_granted {
                    ledger.note_place(session);
                }
                let contender = match contender {
                    LeaseContender::Holds(grant) => (grant.lock, grant.holder),
                    LeaseContender::Waits(place) => (place.lock, place.holder),
                };
                self.lease = Some(HeldLease {
                    key: lease.key,
                    contender,
                    is_granted,
                });
            }
            (Action::RenewLease { .. }, ClientResponse::LeaseRenewed(session, sent, lives)) => {
                ledger.note_activity(session, sent, lives);
            }
            // A repetition has the answer of the first call, and renews nothing.
            (Action::ChangeLease { .. }, ClientResponse::LeaseRenewed(..)) => {}
            (Action::AwaitGrant { .. }, ClientResponse::Granted(_)) => {
                ledger.acknowledged.other();
                if let Some(lease) = &mut self.lease {
                    lease.is_granted = true;
                }
            }
            (Action::AwaitGrant { .. }, ClientResponse::StillWaits) => {}
            (
                Action::AwaitGrant { .. }
                | Action::RenewLease { .. }
                | Action::ReleaseLease(_)
                | Action::ChangeLease { .. },
                _,
            ) => self.lease = None,
            (Action::Upgrade { .. } | Action::Downgrade(..), ClientResponse::Granted(grants)) => {
                for grant in grants {
                    self.holding.retain(|held| held.lock != grant.lock);
                    self.holding.push(grant);
                }
            }
            (_, ClientResponse::Granted(grants)) => {
                ledger.acknowledged.other();
                self.holding = grants;
                pause = self.dice.between(1..400) * MILLI;
            }
            (_, ClientResponse::Released) => {
                ledger.acknowledged.other();
                self.holding.clear();
            }
            (_, ClientResponse::Ended(session)) => self.ended(session),
            (_, ClientResponse::ReadAt(position)) => {
                let check = ledger.acknowledged.read(current.floor, position.0);
                ledger.note("linearizable reads", check);
            }
            (Action::Task(Task::Watch { path, .. }), ClientResponse::Notified(read, notified)) => {
                let surely = ledger.watches.replacements(current.machine) == current.replacements;
                let check = ledger.watches.notified(path, read, notified, surely);
                ledger.note("watches", check);
            }
            (Action::Task(Task::Watch { path, .. }), ClientResponse::NotNotified(read, now)) => {
                let check = ledger.watches.not_notified(path, read, now);
                ledger.note("watches", check);
            }
            (Action::Release, ClientResponse::Refused(_)) => self.holding.clear(),
            _ => {}
        }
        drop(ledger);
        self.next_after(world, pause);
    }

    fn ended(&mut self, session: SessionId) {
        if self.session.as_ref().is_some_and(|own| own.id == session) {
            self.lose_session();
        }
    }

    fn lose_session(&mut self) {
        self.session = None;
        self.holding.clear();
        self.heartbeats.clear();
    }

    /// Returns the target machine: the home, if the client has one and `wants_home`, or any other.
    fn machine(&mut self, world: &Environment, wants_home: bool) -> usize {
        let anywhere = self.dice.between(0..world.machines as u64);
        let number = self.home.filter(|_| wants_home).unwrap_or(anywhere);
        (number % world.machines as u64) as usize
    }

    fn next_op(&mut self) -> OpId {
        self.next_op += 1;
        self.next_op
    }

    fn next_after(&mut self, world: &Environment, pause: Micros) {
        let mut network = world.network.lock();
        network
            .agenda
            .after(pause, Event::Client(self.id, ClientTimer::Next));
    }
}
