//! Lockgate's side: the state machine and the watches, without a cluster and a network.
//!
//! The code between ZooKeeper's requests and [`Store`] is what any front end has to do for ZooKeeper's
//! clients; it decides nothing that the state machine could decide.

mod calls;
mod reads;

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Result, bail};
use znode_store::{
    Command, EntryContext, Event, Identities, Identity, Password, RequestId, Restorer, SessionId, Store, Zxid,
};
use znode_watch::{WatchLimits, WatcherId, Watches};

use crate::program::{Relative, Step};
use crate::side::Side;
use crate::trace::{Effect, StepResult};
use crate::wire::{Notification, Outcome, Request};
use crate::zookeeper::relative_zxid;
use zk_front::translate::notification;

/// Session timeout of both sides: ZooKeeper's maximum, twenty ticks of two seconds.
const SESSION_TIMEOUT_MS: i32 = 40_000;

/// Time between two commands, so that they never have the same time by accident.
const TIME_STEP_MS: u64 = 1_000;

/// Znodes per part of a snapshot; small, since programs create few znodes, and snapshots should have several
/// parts.
const ZNODES_PER_PART: usize = 3;

/// Client address that ZooKeeper sees.
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Events beside a program's requests, which must stay invisible.
#[derive(Clone, Copy, Default)]
pub struct ReplicaOptions {
    /// Every request of a session has a request id, and is repeated.
    pub repeats: bool,
    /// Number of commands after which the state is replaced by a restored snapshot of itself.
    pub restores_after: Option<u64>,
}

/// State for one program.
pub struct Lockgate {
    store: Store,
    watches: Watches,
    time_ms: u64,
    sessions: Vec<Option<Session>>,
    drawn: u64,
    options: ReplicaOptions,
    commands: u64,
}

struct Session {
    id: SessionId,
    password: Password,
    connection: Option<Client>,
    seen: Vec<i64>,
    ended: bool,
}

struct Client {
    watcher: WatcherId,
    proven: Vec<Identity>,
}

impl Client {
    fn identities(&self) -> Identities {
        Identities::new(self.proven.iter().cloned())
    }
}

/// Reply, with the notifications that the request has caused.
struct CallResult {
    zxid: i64,
    outcome: Outcome,
    fired: Vec<(WatcherId, Notification)>,
}

impl Lockgate {
    /// Creates an empty state for a program with this number of sessions.
    pub fn new(sessions: usize, options: ReplicaOptions) -> Self {
        Self {
            store: Store::new(),
            watches: Watches::new(WatchLimits::default(), 0x5eed),
            time_ms: TIME_STEP_MS,
            sessions: (0..sessions).map(|_| None).collect(),
            drawn: 0,
            options,
            commands: 0,
        }
    }

    fn apply(
        &mut self,
        session: Option<SessionId>,
        caller: Identities,
        command: Command,
        fired: &mut Vec<(WatcherId, Notification)>,
    ) -> (Zxid, znode_store::Outcome) {
        self.commands += 1;
        self.time_ms += TIME_STEP_MS;
        let entry = EntryContext {
            time_ms: self.time_ms,
            term: 1,
        };
        let is_repeated =
            self.options.repeats && session.is_some() && !matches!(command, Command::CloseSession { .. });
        let request_id =
            is_repeated.then(|| RequestId::parse(&self.commands.to_string()).expect("a number is short"));
        let request = znode_store::Request {
            session,
            request_id,
            caller,
            command,
        };
        let again = is_repeated.then(|| request.clone());
        let mut events = Vec::new();
        let applied = self.store.apply(&entry, request, &mut events);
        if let Some(again) = again {
            let mut no_events = Vec::new();
            let second = self.store.apply(&entry, again, &mut no_events);
            assert_eq!(
                second.outcome, applied.outcome,
                "a repeated request gets the same response"
            );
            assert_eq!(no_events, [], "a repeated request changes nothing");
        }
        for event in &events {
            if let Event::Znode(event) = event {
                self.watches
                    .fire(applied.zxid, event, self.store.visibility(), |watcher, notice| {
                        fired.push((watcher, notification(&notice)))
                    });
            }
        }
        if self
            .options
            .restores_after
            .is_some_and(|after| self.commands.is_multiple_of(after))
        {
            self.restore();
        }
        (applied.zxid, applied.outcome)
    }

    /// Sweeps everything that is due, once, as a leader does. Returns the notifications of a session; `None`
    /// if nothing was due.
    pub fn sweep(&mut self, listening: usize) -> Option<Vec<Notification>> {
        let due = self.store.to_sweep(self.time_ms + 1, self.time_ms);
        if due.is_empty() {
            return None;
        }
        let mut fired = Vec::new();
        let (_, outcome) = self.apply(None, Identities::none(), Command::Sweep(due), &mut fired);
        outcome.expect("a sweep is never rejected");
        let received = self.received(listening, fired);
        Some(
            received
                .into_iter()
                .filter(|(session, _)| *session == listening)
                .flat_map(|(_, notifications)| notifications)
                .collect(),
        )
    }

    /// Replaces the state by a restored snapshot of itself.
    fn restore(&mut self) {
        let mut restorer = Restorer::new();
        self.store.begin_snapshot();
        while let Some(part) = self.store.next_snapshot_part(ZNODES_PER_PART) {
            restorer.add(part).expect("a part of a snapshot can be restored");
        }
        let restored = restorer.finish().expect("a complete snapshot can be restored");
        assert_eq!(
            restored.digest(),
            self.store.digest(),
            "a snapshot becomes the same state"
        );
        self.store = restored;
    }

    fn connect(&mut self) -> Client {
        let proven = vec![Identity::Ip(CLIENT)];
        Client {
            watcher: self.watches.connect(Identities::new(proven.iter().cloned())),
            proven,
        }
    }

    fn open(&mut self, session: usize) -> Result<Effect> {
        if self.sessions[session]
            .as_ref()
            .is_some_and(|session| !session.ended)
        {
            return Ok(Effect::Skipped);
        }
        self.drawn += 1;
        let (id, password) = (
            SessionId(self.drawn),
            Password(u128::from(self.drawn).to_be_bytes()),
        );
        let command = Command::OpenSession {
            session: id,
            password,
            timeout_ms: SESSION_TIMEOUT_MS.unsigned_abs(),
            name: "".into(),
            address: "".into(),
        };
        let (_, outcome) = self.apply(None, Identities::none(), command, &mut Vec::new());
        if let Err(refusal) = outcome {
            bail!("a session was not opened: {refusal}");
        }
        let connection = Some(self.connect());
        self.sessions[session] = Some(Session {
            id,
            password,
            connection,
            seen: Vec::new(),
            ended: false,
        });
        Ok(Effect::Opened {
            session_id: wire_session(id),
            timeout_ms: SESSION_TIMEOUT_MS,
        })
    }

    fn resume(&mut self, number: usize, wrong_password: bool) -> Effect {
        let Some(session) = &mut self.sessions[number] else {
            return Effect::Skipped;
        };
        if wrong_password && session.connection.is_some() {
            return Effect::Skipped;
        }
        let mut password = session.password;
        if wrong_password {
            password.0[0] ^= 1;
        }
        if let Some(older) = session.connection.take() {
            self.watches.disconnect(older.watcher);
        }
        let id = session.id;
        if self.store.session_password(id) != Some(password) {
            return Effect::Refused;
        }
        let client = self.connect();
        if let Some(session) = &mut self.sessions[number] {
            session.connection = Some(client);
        }
        Effect::Resumed {
            session_id: wire_session(id),
            timeout_ms: SESSION_TIMEOUT_MS,
        }
    }

    fn drop_connection(&mut self, number: usize) -> Effect {
        match self.sessions[number]
            .as_mut()
            .and_then(|session| session.connection.take())
        {
            Some(client) => {
                self.watches.disconnect(client.watcher);
                Effect::Dropped
            }
            None => Effect::Skipped,
        }
    }

    fn rewatched(&self, number: usize, relative: Relative) -> i64 {
        relative_zxid(
            self.sessions[number]
                .as_ref()
                .map_or(&[], |session| &session.seen),
            relative,
        )
    }
}

impl Side for Lockgate {
    fn step(&mut self, step: &Step) -> Result<StepResult> {
        let quiet = |effect| {
            Ok(StepResult {
                effect,
                received: Vec::new(),
            })
        };
        match step {
            Step::Open { session } => quiet(self.open(*session)?),
            Step::Drop { session } => quiet(self.drop_connection(*session)),
            Step::Resume {
                session,
                wrong_password,
            } => quiet(self.resume(*session, *wrong_password)),
            Step::Call { session, request } => self.call(*session, request),
            Step::Rewatch {
                session,
                relative,
                watches,
            } => {
                let relative_zxid = self.rewatched(*session, *relative);
                self.call(
                    *session,
                    &Request::SetWatches2 {
                        relative_zxid,
                        watches: watches.clone(),
                    },
                )
            }
            Step::Close { session } => self.call(*session, &Request::CloseSession),
            Step::End { session } => {
                let number = *session;
                match &self.sessions[number] {
                    Some(session) if !session.ended => {
                        if session.connection.is_none() {
                            self.resume(number, false);
                        }
                        self.call(number, &Request::CloseSession)
                    }
                    _ => quiet(Effect::Skipped),
                }
            }
        }
    }

    fn read_all(&mut self, requests: &[Request]) -> Result<Vec<Outcome>> {
        let caller = Identities::new([Identity::Super]);
        Ok(requests
            .iter()
            .map(|request| self.read_outcome(&caller, request))
            .collect())
    }
}

fn wire_zxid(zxid: Zxid) -> i64 {
    i64::try_from(zxid.0).expect("programs make few changes")
}

fn wire_session(session: SessionId) -> i64 {
    i64::try_from(session.0).expect("session ids are positive")
}
