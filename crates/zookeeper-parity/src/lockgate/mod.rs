//! The side that is Lockgate: the state machine and the watches, without a cluster and a network around them.
//!
//! What stands here between ZooKeeper's requests and [`Store`] is what any front end has to do for ZooKeeper's
//! clients; it decides nothing that the state machine could decide.

mod translate;

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Result, bail};
use znode_store::{
    Command, EntryContext, Event, Identities, Identity, Op, Password, SessionId, Store, Zxid, ZPath,
};
use znode_watch::{WatchKind, WatchLimits, WatchLists, WatcherId, WatcherType, Watches};

use crate::generate::credentials;
use crate::program::{Relative, Step};
use crate::side::Side;
use crate::trace::{Happened, Moment};
use crate::wire::{CreateCall, ErrorCode, Notification, Outcome, Reply, Request, SetWatches};
use crate::zookeeper::{closes_connection, relative_zxid};
use translate::{FrontEndRefusal, code, notification, stat};

/// What both sides grant: ZooKeeper's most, twenty ticks of two seconds.
const SESSION_TIMEOUT_MS: i32 = 40_000;

/// Time passes from command to command, so that two commands never have the same time by accident.
const TIME_STEP_MS: u64 = 1_000;

/// Where ZooKeeper sees its clients come from.
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A state of its own for one program.
pub struct Lockgate {
    store: Store,
    watches: Watches,
    time_ms: u64,
    sessions: Vec<Option<Session>>,
    drawn: u64,
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

/// A reply, and who was told of what on the way.
struct Answered {
    zxid: i64,
    outcome: Outcome,
    told: Vec<(WatcherId, Notification)>,
}

impl Lockgate {
    /// An empty state, for a program with so many sessions.
    pub fn new(sessions: usize) -> Self {
        Self {
            store: Store::new(),
            watches: Watches::new(WatchLimits::default(), 0x5eed),
            time_ms: TIME_STEP_MS,
            sessions: (0..sessions).map(|_| None).collect(),
            drawn: 0,
        }
    }

    fn apply(
        &mut self,
        session: Option<SessionId>,
        caller: Identities,
        command: Command,
        told: &mut Vec<(WatcherId, Notification)>,
    ) -> (Zxid, znode_store::Outcome) {
        self.time_ms += TIME_STEP_MS;
        let entry = EntryContext { time_ms: self.time_ms, term: 1 };
        let mut events = Vec::new();
        let request = znode_store::Request { session, request_id: None, caller, command };
        let applied = self.store.apply(&entry, request, &mut events);
        for event in &events {
            if let Event::Znode(event) = event {
                self.watches
                    .fire(applied.zxid, event, |watcher, notice| told.push((watcher, notification(&notice))));
            }
        }
        (applied.zxid, applied.outcome)
    }

    fn connect(&mut self) -> Client {
        let proven = vec![Identity::Ip(CLIENT)];
        Client { watcher: self.watches.connect(Identities::new(proven.iter().cloned())), proven }
    }

    fn open(&mut self, session: usize) -> Result<Happened> {
        if self.sessions[session].as_ref().is_some_and(|session| !session.ended) {
            return Ok(Happened::Skipped);
        }
        self.drawn += 1;
        let (id, password) = (SessionId(self.drawn), Password(u128::from(self.drawn).to_be_bytes()));
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
        self.sessions[session] = Some(Session { id, password, connection, seen: Vec::new(), ended: false });
        Ok(Happened::Opened { session_id: wire_session(id), timeout_ms: SESSION_TIMEOUT_MS })
    }

    fn resume(&mut self, number: usize, wrong_password: bool) -> Happened {
        let Some(session) = &mut self.sessions[number] else {
            return Happened::Skipped;
        };
        if wrong_password && session.connection.is_some() {
            return Happened::Skipped;
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
            return Happened::Refused;
        }
        let client = self.connect();
        if let Some(session) = &mut self.sessions[number] {
            session.connection = Some(client);
        }
        Happened::Resumed { session_id: wire_session(id), timeout_ms: SESSION_TIMEOUT_MS }
    }

    fn drop_connection(&mut self, number: usize) -> Happened {
        match self.sessions[number].as_mut().and_then(|session| session.connection.take()) {
            Some(client) => {
                self.watches.disconnect(client.watcher);
                Happened::Dropped
            }
            None => Happened::Skipped,
        }
    }

    /// Carries out a request on a session's connection, if it has one.
    fn call(&mut self, number: usize, request: &Request) -> Result<Moment> {
        let skipped = Moment { happened: Happened::Skipped, heard: Vec::new() };
        let Some(session) = &self.sessions[number] else { return Ok(skipped) };
        let Some(client) = &session.connection else { return Ok(skipped) };
        let (id, watcher, caller) = (session.id, client.watcher, client.identities());

        let Answered { zxid, outcome, told } = match request {
            Request::Auth { scheme, auth } => self.auth(number, scheme, auth),
            Request::CloseSession => {
                let mut told = Vec::new();
                let command = Command::CloseSession { session: id };
                let (zxid, outcome) = self.apply(Some(id), caller, command, &mut told);
                let outcome = outcome.map(|_| Reply::Done).map_err(|refusal| code(&refusal));
                Answered { zxid: wire_zxid(zxid), outcome, told }
            }
            Request::Create { .. } | Request::Delete { .. } | Request::SetData { .. } | Request::SetAcl { .. } => {
                self.write(id, caller, request)
            }
            Request::Multi(items) => self.multi(id, caller, items),
            Request::SetWatches2 { relative_zxid, watches } => self.rewatch(watcher, *relative_zxid, watches)?,
            _ => {
                let outcome = self.read(id, watcher, &caller, request)?;
                Answered { zxid: wire_zxid(self.store.zxid()), outcome, told: Vec::new() }
            }
        };

        let heard = self.heard(number, told);
        let closed = closes_connection(request, &outcome);
        let session = self.sessions[number].as_mut().expect("it has made this call");
        session.seen.push(zxid);
        if closed {
            session.ended = *request == Request::CloseSession;
            session.connection = None;
            self.watches.disconnect(watcher);
        }
        Ok(Moment { happened: Happened::Replied { zxid, outcome, closed }, heard })
    }

    /// Sorts notifications by who was told, whoever acted first.
    fn heard(&self, acting: usize, told: Vec<(WatcherId, Notification)>) -> Vec<(usize, Vec<Notification>)> {
        let others = (0..self.sessions.len()).filter(|number| *number != acting);
        std::iter::once(acting)
            .chain(others)
            .filter_map(|number| {
                let watcher = self.sessions[number].as_ref()?.connection.as_ref()?.watcher;
                let its_own = told.iter().filter(|(told, _)| *told == watcher);
                let notifications = its_own.map(|(_, notification)| notification.clone()).collect::<Vec<_>>();
                (!notifications.is_empty()).then_some((number, notifications))
            })
            .collect()
    }

    fn auth(&mut self, number: usize, scheme: &str, auth: &str) -> Answered {
        let client = self.sessions[number].as_mut().and_then(|session| session.connection.as_mut());
        let client = client.expect("it has made this call");
        let outcome = if scheme == "digest" {
            let (digest, is_super) = credentials(auth);
            if is_super {
                client.proven.push(Identity::Super);
            }
            client.proven.push(Identity::Digest(digest.into()));
            self.watches.set_identities(client.watcher, client.identities());
            Ok(Reply::Done)
        } else {
            Err(ErrorCode::AUTH_FAILED)
        };
        Answered { zxid: 0, outcome, told: Vec::new() }
    }

    fn write(&mut self, session: SessionId, caller: Identities, request: &Request) -> Answered {
        let mut told = Vec::new();
        let op = match translate::op(request, false) {
            Ok(op) => op,
            // Refused by the front end: no command, and no zxid.
            Err(FrontEndRefusal(code)) => {
                return Answered { zxid: wire_zxid(self.store.zxid()), outcome: Err(code), told };
            }
        };
        let (zxid, outcome) = self.apply(Some(session), caller, Command::Write(op), &mut told);
        let with_stat = matches!(request, Request::Create { call, .. } if *call != CreateCall::Create);
        let outcome = match outcome {
            Ok(reply) => Ok(translate::reply(reply, with_stat)),
            Err(refusal) => Err(code(&refusal)),
        };
        Answered { zxid: wire_zxid(zxid), outcome, told }
    }

    /// An item that the front end refuses becomes one that the state machine refuses with the same code, for an
    /// earlier item may fail before it.
    fn multi(&mut self, session: SessionId, caller: Identities, items: &[Request]) -> Answered {
        let mut told = Vec::new();
        let ops = items
            .iter()
            .map(|item| translate::op(item, true).unwrap_or_else(|FrontEndRefusal(code)| refused_with(code)))
            .collect();
        let (zxid, outcome) = self.apply(Some(session), caller, Command::Multi(ops), &mut told);
        let results = match outcome {
            Ok(znode_store::Reply::Multi(replies)) => items
                .iter()
                .zip(replies)
                .map(|(item, reply)| Ok(translate::reply(reply, translate::has_stat_in_multi(item))))
                .collect(),
            Ok(other) => unreachable!("a multi was answered by {other:?}"),
            Err(refusal) => translate::failed_multi(&refusal, items.len()),
        };
        Answered { zxid: wire_zxid(zxid), outcome: Ok(Reply::Results(results)), told }
    }

    fn rewatch(&mut self, watcher: WatcherId, relative_zxid: i64, watches: &SetWatches) -> Result<Answered> {
        let parse = |paths: &[String]| paths.iter().map(|path| ZPath::parse(path)).collect::<Result<Vec<_>, _>>();
        let lists = WatchLists {
            data: parse(&watches.data)?,
            exists: parse(&watches.exist)?,
            children: parse(&watches.child)?,
            persistent: parse(&watches.persistent)?,
            recursive: parse(&watches.persistent_recursive)?,
        };
        let since = Zxid(relative_zxid.unsigned_abs());
        let mut told = Vec::new();
        self.watches
            .rearm(watcher, &self.store, since, &lists, |notice| told.push((watcher, notification(&notice))))?;
        Ok(Answered { zxid: wire_zxid(self.store.zxid()), outcome: Ok(Reply::Done), told })
    }

    fn arm(&mut self, watcher: WatcherId, kind: WatchKind, path: &ZPath) -> Result<()> {
        Ok(self.watches.arm(watcher, kind, path)?)
    }

    /// Answers a request that changes no znode.
    fn read(
        &mut self,
        session: SessionId,
        watcher: WatcherId,
        caller: &Identities,
        request: &Request,
    ) -> Result<Outcome> {
        match request {
            Request::Exists { path: text, watch } => {
                let Ok(path) = ZPath::parse(text) else {
                    let code = if text.contains('\0') { ErrorCode::BAD_ARGUMENTS } else { ErrorCode::NO_NODE };
                    return Ok(Err(code));
                };
                if *watch {
                    self.arm(watcher, WatchKind::Data, &path)?;
                }
                Ok(self.look_at(caller, request))
            }
            Request::GetData { path, watch }
            | Request::GetChildren { path, watch }
            | Request::GetChildren2 { path, watch } => {
                let outcome = self.look_at(caller, request);
                if *watch && outcome.is_ok() {
                    let kind = match request {
                        Request::GetData { .. } => WatchKind::Data,
                        _ => WatchKind::Children,
                    };
                    self.arm(watcher, kind, &ZPath::parse(path)?)?;
                }
                Ok(outcome)
            }
            Request::GetAcl { .. } | Request::GetAllChildrenNumber { .. } => Ok(self.look_at(caller, request)),
            Request::MultiRead(items) => {
                Ok(Ok(Reply::Results(items.iter().map(|item| self.look_at(caller, item)).collect())))
            }
            Request::GetEphemerals { prefix } => {
                let paths = self.store.seen_by(caller).ephemerals(session, prefix);
                let texts = paths.map(|paths| paths.iter().map(|path| path.as_str().to_owned()).collect());
                Ok(texts.map(Reply::Paths).map_err(|refusal| code(&refusal)))
            }
            Request::Sync { path } => Ok(Ok(Reply::Path(path.clone()))),
            Request::Ping => Ok(Ok(Reply::Done)),
            Request::WhoAmI => {
                Ok(Ok(Reply::Identities(caller.iter().map(translate::identity).collect())))
            }
            Request::AddWatch { path, mode } => {
                let kind = match mode {
                    0 => WatchKind::Persistent,
                    1 => WatchKind::PersistentRecursive,
                    _ => return Ok(Err(ErrorCode::MARSHALLING_ERROR)),
                };
                self.arm(watcher, kind, &ZPath::parse(path)?)?;
                Ok(Ok(Reply::Number(0)))
            }
            Request::CheckWatches { path, kind } => {
                let Some(which) = watcher_type(*kind) else { return Ok(Err(ErrorCode::MARSHALLING_ERROR)) };
                let is_armed = self.watches.is_armed(watcher, &ZPath::parse(path)?, which);
                Ok(if is_armed { Ok(Reply::Done) } else { Err(ErrorCode::NO_WATCHER) })
            }
            Request::RemoveWatches { path, kind } => {
                let Some(which) = watcher_type(*kind) else { return Ok(Err(ErrorCode::MARSHALLING_ERROR)) };
                let removed = self.watches.remove(watcher, &ZPath::parse(path)?, which);
                Ok(removed.map(|()| Reply::Done).map_err(|_| ErrorCode::NO_WATCHER))
            }
            other => bail!("programs do not contain {other}"),
        }
    }

    /// Answers a request that changes nothing and leaves no watch. No znode has a path that is none.
    fn look_at(&self, caller: &Identities, request: &Request) -> Outcome {
        let parse = |path: &str| ZPath::parse(path).map_err(|_| ErrorCode::NO_NODE);
        let view = self.store.seen_by(caller);
        let names = |names: Vec<std::sync::Arc<str>>| names.iter().map(|name| name.to_string()).collect();
        let reply = match request {
            Request::Exists { path, .. } => view.exists(&parse(path)?).map(|found| Reply::Stat(stat(&found))),
            Request::GetData { path, .. } => view
                .get(&parse(path)?)
                .map(|(data, found)| Reply::Data(Some(data.as_bytes().to_vec()), stat(&found))),
            Request::GetAcl { path } => {
                view.acl(&parse(path)?).map(|(acl, found)| Reply::Acl(translate::acl_entries(&acl), stat(&found)))
            }
            Request::GetChildren { path, .. } => view.children(&parse(path)?).map(|(found, _)| Reply::Names(names(found))),
            Request::GetChildren2 { path, .. } => {
                view.children(&parse(path)?).map(|(found, of)| Reply::NamesAndStat(names(found), stat(&of)))
            }
            Request::GetAllChildrenNumber { path } => view
                .descendants(&parse(path)?)
                .map(|number| Reply::Number(i32::try_from(number).expect("programs make few znodes"))),
            other => unreachable!("{other} is no look"),
        };
        reply.map_err(|refusal| code(&refusal))
    }
}

impl Side for Lockgate {
    fn step(&mut self, step: &Step) -> Result<Moment> {
        let quiet = |happened| Ok(Moment { happened, heard: Vec::new() });
        match step {
            Step::Open { session } => quiet(self.open(*session)?),
            Step::Drop { session } => quiet(self.drop_connection(*session)),
            Step::Resume { session, wrong_password } => quiet(self.resume(*session, *wrong_password)),
            Step::Call { session, request } => self.call(*session, request),
            Step::Rewatch { session, relative, watches } => {
                let relative_zxid = self.rewatched(*session, *relative);
                self.call(*session, &Request::SetWatches2 { relative_zxid, watches: watches.clone() })
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
                    _ => quiet(Happened::Skipped),
                }
            }
        }
    }

    fn look(&mut self, requests: &[Request]) -> Result<Vec<Outcome>> {
        let caller = Identities::new([Identity::Super]);
        Ok(requests.iter().map(|request| self.look_at(&caller, request)).collect())
    }
}

impl Lockgate {
    fn rewatched(&self, number: usize, relative: Relative) -> i64 {
        relative_zxid(self.sessions[number].as_ref().map_or(&[], |session| &session.seen), relative)
    }
}

/// An operation that is always refused, in a way that becomes this code.
fn refused_with(code: ErrorCode) -> Op {
    match code {
        ErrorCode::NO_NODE => Op::Check { path: ZPath::parse("/zookeeper/none").expect("it is a path"), version: -1 },
        _ => Op::Delete { path: ZPath::root(), version: -1 },
    }
}

fn watcher_type(kind: i32) -> Option<WatcherType> {
    match kind {
        1 => Some(WatcherType::Children),
        2 => Some(WatcherType::Data),
        3 => Some(WatcherType::Any),
        _ => None,
    }
}

fn wire_zxid(zxid: Zxid) -> i64 {
    i64::try_from(zxid.0).expect("programs make few changes")
}

fn wire_session(session: SessionId) -> i64 {
    i64::try_from(session.0).expect("session ids are positive")
}
