//! The rules of the tree and of sessions, written down as plainly as possible: a map of paths that is
//! copied when something may have to be taken back. It is slow, keeps no index, and shares no code with the
//! store (but for what a list of rights means). The lock protocol and quotas are not in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use znode_store::{
    Acl, Command, CreateMode, CreatePath, Data, EntryContext, EphemeralOwner, Event, Op, Outcome, Perms,
    Refusal, Reply, Request, RequestId, SessionId, Stat, ZPath, ZnodeEvent, ZnodeEventKind, Zxid,
};

/// The state.
#[derive(Debug, Clone)]
pub struct Model {
    pub zxid: u64,
    pub time_ms: u64,
    pub nodes: BTreeMap<ZPath, Znode>,
    /// Live sessions with their timeouts.
    pub sessions: BTreeMap<SessionId, u32>,
    pub ended: Vec<SessionId>,
    /// Position of each session's latest command.
    heard_at: BTreeMap<SessionId, Zxid>,
    /// First outcomes, with what was asked.
    requests: BTreeMap<(Option<SessionId>, RequestId), (RequestKind, Outcome)>,
}

/// Identity of a request: all that the client said, and nothing that its node drew.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RequestKind {
    Session(u32, Arc<str>),
    Other(Command),
}

/// A znode, with what its `Stat` does not tell.
#[derive(Debug, Clone)]
pub struct Znode {
    pub data: Data,
    pub stat: Stat,
    pub creations: u64,
    pub mode: CreateMode,
    pub acl: Acl,
    pub emptied_at_ms: u64,
}

impl Model {
    /// Sessions, znodes, bytes of data, entries of access control lists.
    pub fn size(&self) -> [usize; 4] {
        let of_nodes = |size: fn(&Znode) -> usize| self.nodes.values().map(size).sum();
        [
            self.sessions.len(),
            self.nodes.len(),
            of_nodes(|node| node.data.len()),
            of_nodes(|node| node.acl.entries().len()),
        ]
    }

    pub fn new() -> Self {
        let mut nodes = BTreeMap::new();
        for (path, children, acl) in [
            ("/", 1, Acl::open()),
            ("/zookeeper", 2, Acl::open()),
            ("/zookeeper/config", 0, Acl::read_only()),
            ("/zookeeper/quota", 0, Acl::open()),
        ] {
            let mut node = Znode::new(Data::empty(), CreateMode::Persistent, acl, None, 0, 0);
            // They were never created, as far as counters go.
            node.stat.num_children = children;
            node.stat.cversion = -(children as i32);
            node.stat.aversion = if path.ends_with("config") { -1 } else { 0 };
            nodes.insert(ZPath::parse(path).expect("it is one"), node);
        }
        Self {
            zxid: 0,
            time_ms: 0,
            nodes,
            sessions: BTreeMap::new(),
            ended: Vec::new(),
            heard_at: BTreeMap::new(),
            requests: BTreeMap::new(),
        }
    }

    /// Returns the expected answer of the store, and its expected events.
    pub fn apply(&mut self, entry: &EntryContext, request: &Request) -> (Outcome, Vec<Event>) {
        self.zxid += 1;
        self.time_ms = self.time_ms.max(entry.time_ms);
        let mut events = Vec::new();
        let outcome = self.answer(entry, request, &mut events);
        (outcome, events)
    }

    /// The names of a znode's children.
    pub fn children(&self, parent: &ZPath) -> Vec<String> {
        self.nodes
            .keys()
            .filter(|path| path.parent().as_ref() == Some(parent))
            .map(|path| path.name().to_owned())
            .collect()
    }

    fn answer(&mut self, entry: &EntryContext, request: &Request, events: &mut Vec<Event>) -> Outcome {
        if let Some(session) = request.session {
            self.require(session)?;
            self.heard_at.insert(session, Zxid(self.zxid));
        }
        let Some(id) = &request.request_id else {
            return self.execute(entry, request, events);
        };
        let key = (request.session, id.clone());
        // All of what was said, not what is shown of it: data that is no text is shown by its length alone.
        let asked = match &request.command {
            Command::OpenSession { timeout_ms, name, .. } => RequestKind::Session(*timeout_ms, name.clone()),
            command => RequestKind::Other(command.clone()),
        };
        if let Some((before, outcome)) = self.requests.get(&key) {
            if *before != asked {
                return Err(Refusal::RequestIdReused);
            }
            // Clients open sessions without one.
            if request.session.is_none()
                && let Ok(Reply::SessionOpened { session, .. }) = outcome
                && self.sessions.contains_key(session)
            {
                self.heard_at.insert(*session, Zxid(self.zxid));
            }
            return outcome.clone();
        }
        let outcome = self.execute(entry, request, events);
        let final_answer = !matches!(outcome, Err(Refusal::SessionIdTaken(_) | Refusal::StaleLeader));
        if final_answer
            && request
                .session
                .is_none_or(|session| self.sessions.contains_key(&session))
        {
            self.requests.insert(key, (asked, outcome.clone()));
        }
        outcome
    }

    fn require(&self, session: SessionId) -> Result<(), Refusal> {
        if self.sessions.contains_key(&session) {
            Ok(())
        } else if self.ended.contains(&session) {
            Err(Refusal::SessionEnded(session))
        } else {
            Err(Refusal::NoSession(session))
        }
    }

    fn execute(&mut self, entry: &EntryContext, request: &Request, events: &mut Vec<Event>) -> Outcome {
        match &request.command {
            Command::OpenSession {
                session, timeout_ms, ..
            } => {
                if self.sessions.contains_key(session) || self.ended.contains(session) {
                    return Err(Refusal::SessionIdTaken(*session));
                }
                self.sessions.insert(*session, *timeout_ms);
                self.heard_at.insert(*session, Zxid(self.zxid));
                events.push(Event::SessionOpened(*session));
                Ok(Reply::SessionOpened {
                    session: *session,
                    timeout_ms: *timeout_ms,
                })
            }
            Command::CloseSession { session } => {
                self.require(*session)?;
                self.end_session(*session, false, events);
                Ok(Reply::SessionClosed)
            }
            Command::ExpireSessions {
                sessions,
                term,
                as_of,
            } => {
                if *term != entry.term {
                    return Err(Refusal::StaleLeader);
                }
                let before = self.sessions.len();
                for session in sessions {
                    if self.sessions.contains_key(session) && self.heard_at[session] <= *as_of {
                        self.end_session(*session, true, events);
                    }
                }
                Ok(Reply::SessionsExpired((before - self.sessions.len()) as u32))
            }
            Command::Write(op) => self.write(request, op, events),
            Command::Multi(ops) => {
                let before = self.clone();
                let mut replies = Vec::new();
                for (index, op) in ops.iter().enumerate() {
                    match self.write(request, op, events) {
                        Ok(reply) => replies.push(reply),
                        Err(refusal) => {
                            *self = before;
                            events.clear();
                            return Err(Refusal::Multi {
                                index: index as u32,
                                refusal: Box::new(refusal),
                            });
                        }
                    }
                }
                Ok(Reply::Multi(replies))
            }
            Command::Sweep(paths) => {
                let mut swept = 0;
                for path in paths {
                    let due = |node: &Znode| {
                        node.is_empty_container()
                            || node.expires_at_ms().is_some_and(|end| end <= self.time_ms)
                    };
                    if self.nodes.get(path).is_some_and(due) {
                        self.remove(path, events);
                        swept += 1;
                    }
                }
                Ok(Reply::Swept(swept))
            }
            Command::Access(_) => unreachable!("the model is of an open state"),
            Command::RecordSilence { .. } | Command::NoteHeartbeats { .. } => {
                unreachable!("the model has no leaders")
            }
            Command::SetLimits(_) => unreachable!("the model has no limits"),
            Command::Mirror(_) | Command::SetQuotas { .. } => {
                unreachable!("it has a property of its own")
            }
            Command::Lock(_) | Command::RenewLease { .. } | Command::ReleaseLease { .. } => {
                unreachable!("the model has no locks")
            }
            Command::Reconnect { .. } | Command::InTurn { .. } => {
                unreachable!("the model has no connections")
            }
        }
    }

    fn end_session(&mut self, session: SessionId, expired: bool, events: &mut Vec<Event>) {
        let mut owned: Vec<(Zxid, ZPath)> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.stat.ephemeral_owner.session() == Some(session))
            .map(|(path, node)| (node.stat.czxid, path.clone()))
            .collect();
        owned.sort();
        for (_, path) in owned {
            self.remove(&path, events);
        }
        self.sessions.remove(&session);
        self.requests.retain(|(owner, _), _| *owner != Some(session));
        self.ended.push(session);
        events.push(Event::SessionEnded { session, expired });
    }

    fn write(&mut self, request: &Request, op: &Op, events: &mut Vec<Event>) -> Outcome {
        match op {
            Op::Create {
                path,
                data,
                acl,
                mode,
                parents,
            } => self.create(request, path, data, acl, *mode, *parents, events),
            Op::Delete { path, version } => {
                self.may_delete(request, path)?;
                self.check(path, *version)?;
                if !self.children(path).is_empty() {
                    return Err(Refusal::NotEmpty(path.clone()));
                }
                self.remove(path, events);
                Ok(Reply::Deleted)
            }
            Op::DeleteRecursive { path } => {
                self.may_delete(request, path)?;
                self.check(path, -1)?;
                let below = |other: &ZPath| other.to_string().starts_with(&format!("{path}/"));
                let parents = self
                    .nodes
                    .iter()
                    .filter(|(other, node)| (*other == path || below(other)) && node.stat.num_children > 0);
                for (parent, _) in parents {
                    if self.require_right(request, Perms::DELETE, parent).is_err() {
                        return Err(Refusal::NoAuth(path.clone()));
                    }
                }
                self.remove_all(path, events);
                Ok(Reply::Deleted)
            }
            Op::Set { path, data, version } => {
                self.check(path, -1)?;
                self.require_right(request, Perms::WRITE, path)?;
                self.check(path, *version)?;
                let node = self.nodes.get_mut(path).expect("it was checked");
                node.data = data.clone();
                node.stat.data_length = data.len() as u32;
                node.stat.version += 1;
                node.stat.mzxid = Zxid(self.zxid);
                node.stat.mtime_ms = self.time_ms;
                events.push(event(ZnodeEventKind::DataChanged, path, &node.acl));
                Ok(Reply::Set(node.stat.clone()))
            }
            Op::SetAcl { path, acl, aversion } => {
                self.check(path, -1)?;
                self.require_right(request, Perms::ADMIN, path)?;
                let node = self.nodes.get_mut(path).expect("it was checked");
                let actual = node.stat.aversion;
                if *aversion != -1 && *aversion != actual {
                    return Err(Refusal::BadVersion {
                        path: path.clone(),
                        expected: *aversion,
                        actual,
                    });
                }
                node.acl = acl.clone();
                node.stat.aversion += 1;
                Ok(Reply::AclSet(node.stat.clone()))
            }
            Op::Check { path, version } => {
                self.check(path, -1)?;
                self.require_right(request, Perms::READ, path)?;
                self.check(path, *version)?;
                Ok(Reply::Checked)
            }
            Op::Held { .. } => unreachable!("the model has no locks"),
        }
    }

    fn require_right(&self, request: &Request, perms: Perms, path: &ZPath) -> Result<(), Refusal> {
        match self.nodes[path].acl.allows(perms, &request.caller) {
            true => Ok(()),
            false => Err(Refusal::NoAuth(path.clone())),
        }
    }

    fn may_delete(&self, request: &Request, path: &ZPath) -> Result<(), Refusal> {
        let special = ["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"];
        let parent = path.parent().filter(|_| !special.contains(&path.as_str()));
        let parent = parent.ok_or_else(|| Refusal::Undeletable(path.clone()))?;
        self.check(&parent, -1)?;
        self.require_right(request, Perms::DELETE, &parent)
    }

    fn check(&self, path: &ZPath, version: i32) -> Result<(), Refusal> {
        match self.nodes.get(path).map(|node| node.stat.version) {
            None => Err(Refusal::NoNode(path.clone())),
            Some(actual) if version != -1 && version != actual => Err(Refusal::BadVersion {
                path: path.clone(),
                expected: version,
                actual,
            }),
            Some(_) => Ok(()),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "each is a part of what is asked")]
    fn create(
        &mut self,
        request: &Request,
        path: &CreatePath,
        data: &Data,
        acl: &Acl,
        mode: CreateMode,
        parents: bool,
        events: &mut Vec<Event>,
    ) -> Outcome {
        if mode.is_ephemeral() && request.session.is_none() {
            return Err(Refusal::SessionRequired);
        }
        let mut missing = Vec::new();
        let mut ancestor = path.parent.clone();
        while !self.nodes.contains_key(&ancestor) {
            missing.push(ancestor.clone());
            ancestor = ancestor.parent().expect("the root exists");
        }
        if !missing.is_empty() && !parents {
            return Err(Refusal::NoNode(path.parent.clone()));
        }
        self.require_right(request, Perms::CREATE, &ancestor)?;
        if let Some(deepest) = missing.first()
            && !acl.allows(Perms::CREATE, &request.caller)
        {
            return Err(Refusal::NoAuth(deepest.clone()));
        }
        let number = self.nodes.get(&path.parent).map_or(0, |parent| parent.creations);
        let name = if mode.is_sequential() {
            format!("{}{number:010}", path.name)
        } else {
            path.name.to_string()
        };
        let path = path.parent.join(&name).expect("the test has legal names");
        if self.nodes.contains_key(&path) {
            return Err(Refusal::NodeExists(path));
        }
        if self.nodes[&ancestor].stat.ephemeral_owner.session().is_some() {
            return Err(Refusal::NoChildrenForEphemerals(ancestor));
        }
        for parent in missing.into_iter().rev() {
            self.insert(&parent, Data::empty(), CreateMode::Container, acl, None, events);
        }
        self.insert(&path, data.clone(), mode, acl, request.session, events);
        let stat = self.nodes[&path].stat.clone();
        Ok(Reply::Created { path, stat })
    }

    fn insert(
        &mut self,
        path: &ZPath,
        data: Data,
        mode: CreateMode,
        acl: &Acl,
        session: Option<SessionId>,
        events: &mut Vec<Event>,
    ) {
        self.nodes.insert(
            path.clone(),
            Znode::new(data, mode, acl.clone(), session, self.zxid, self.time_ms),
        );
        let parent_path = path.parent().expect("not the root");
        let parent = self.nodes.get_mut(&parent_path).expect("it was looked for");
        parent.creations += 1;
        parent.stat.cversion += 1;
        parent.stat.num_children += 1;
        parent.stat.pzxid = Zxid(self.zxid);
        events.extend([
            event(ZnodeEventKind::Created, path, acl),
            event(ZnodeEventKind::ChildrenChanged, &parent_path, &parent.acl),
        ]);
    }

    fn remove(&mut self, path: &ZPath, events: &mut Vec<Event>) {
        let node = self.nodes.remove(path).expect("it exists");
        let parent_path = path.parent().expect("not the root");
        let parent = self.nodes.get_mut(&parent_path).expect("a node has a parent");
        parent.stat.cversion += 1;
        parent.stat.num_children -= 1;
        parent.stat.pzxid = Zxid(self.zxid);
        parent.emptied_at_ms = self.time_ms;
        events.extend([
            event(ZnodeEventKind::Deleted, path, &node.acl),
            event(ZnodeEventKind::ChildrenChanged, &parent_path, &parent.acl),
        ]);
    }

    fn remove_all(&mut self, path: &ZPath, events: &mut Vec<Event>) {
        for child in self.children(path) {
            self.remove_all(&path.join(&child).expect("it exists"), events);
        }
        self.remove(path, events);
    }
}

impl Znode {
    fn new(
        data: Data,
        mode: CreateMode,
        acl: Acl,
        session: Option<SessionId>,
        zxid: u64,
        time_ms: u64,
    ) -> Self {
        let owner = match (mode, session) {
            (CreateMode::Container, _) => i64::MIN,
            (CreateMode::Ttl { ttl_ms } | CreateMode::TtlSequential { ttl_ms }, _) => {
                (0xff << 56 | ttl_ms) as i64
            }
            (CreateMode::Ephemeral | CreateMode::EphemeralSequential, Some(session)) => session.0 as i64,
            _ => 0,
        };
        let stat = Stat {
            czxid: Zxid(zxid),
            mzxid: Zxid(zxid),
            pzxid: Zxid(zxid),
            ctime_ms: time_ms,
            mtime_ms: time_ms,
            version: 0,
            cversion: 0,
            aversion: 0,
            ephemeral_owner: EphemeralOwner::from_wire(owner).expect("it is one"),
            data_length: data.len() as u32,
            num_children: 0,
        };
        Self {
            data,
            stat,
            creations: 0,
            mode,
            acl,
            emptied_at_ms: 0,
        }
    }

    pub fn is_empty_container(&self) -> bool {
        self.mode == CreateMode::Container && self.creations > 0 && self.stat.num_children == 0
    }

    pub fn expires_at_ms(&self) -> Option<u64> {
        match self.mode {
            CreateMode::Ttl { ttl_ms } | CreateMode::TtlSequential { ttl_ms }
                if self.stat.num_children == 0 =>
            {
                Some(self.stat.mtime_ms + ttl_ms)
            }
            _ => None,
        }
    }
}

fn event(kind: ZnodeEventKind, path: &ZPath, acl: &Acl) -> Event {
    Event::Znode(ZnodeEvent {
        kind,
        path: path.clone(),
        acl: acl.clone(),
    })
}
