//! Short programs of commands, with the answers that their tests look at.

use znode_store::*;

/// A store with what the commands of a program need.
pub struct Program {
    pub store: Store,
    guid: u128,
    /// Remaining work of the present entry, if several commands share one.
    work: Option<EntryWork>,
}

/// Outcome of an `acquire`.
pub struct Acquired(Outcome);

impl Acquired {
    /// The contender's name.
    pub fn holder(self) -> HolderId {
        match self.0 {
            Ok(Reply::Granted(grant)) => grant.holder,
            Ok(Reply::Queued(place)) => place.holder,
            other => panic!("{other:?}"),
        }
    }
}

const ENTRY: EntryContext = EntryContext { time_ms: 1, term: 1 };

impl Program {
    /// A store with the sessions 1 to `count`.
    pub fn with_sessions(count: u64) -> Self {
        let mut program = Self {
            store: Store::new(),
            guid: 0,
            work: None,
        };
        for session in 1..=count {
            let command = Command::OpenSession {
                session: SessionId(session),
                password: Password([0; 16]),
                timeout_ms: 1000,
                name: "".into(),
                address: "".into(),
            };
            program.apply(None, None, command).expect("the session is new");
        }
        program
    }

    /// Gives a namespace no limits, so that its usage is counted.
    pub fn set_quotas(&mut self, namespace: &str) {
        let command = Command::SetQuotas {
            namespace: NamespaceName::parse(namespace).expect("the name is legal"),
            quotas: Some(Quotas::default()),
        };
        self.apply(None, None, command).expect("there are few");
    }

    fn apply(&mut self, session: Option<u64>, request_id: Option<RequestId>, command: Command) -> Outcome {
        let request = Request {
            session: session.map(SessionId),
            request_id,
            ..Request::anonymous(command)
        };
        let work = &mut EntryWork::default();
        let work = self.work.as_mut().unwrap_or(work);
        let applied = (self.store).apply_by(Rules::Current, &ENTRY, work, request, &mut Vec::new());
        applied.outcome
    }

    /// Applies commands in one entry, which removes so many ephemeral znodes of ended sessions.
    pub fn entry(&mut self, removals: usize, commands: impl FnOnce(&mut Self)) {
        self.work = Some(EntryWork::of(removals));
        commands(self);
        self.work = None;
    }

    fn lock() -> LockName {
        LockName::parse("orders").expect("a name")
    }

    /// Queues for the one lock of the program.
    pub fn acquire(&mut self, session: u64, mode: LockMode) -> Acquired {
        self.guid += 1;
        let command = LockCommand::Acquire {
            wish: LockWish {
                lock: Self::lock(),
                mode,
                permits: 1,
                owner: "".into(),
                reentrant: false,
                note: "".into(),
                address: "".into(),
                lock_delay_ms: 0,
                names: ContenderNames::default(),
            },
            guid: self.guid,
            attempt: AttemptId(self.guid as u64),
            wait: true,
        };
        Acquired(self.apply(Some(session), None, Command::Lock(command)))
    }

    pub fn release(&mut self, session: u64, holder: &str) -> Outcome {
        let command = LockCommand::Release {
            lock: Self::lock(),
            holder: holder.into(),
        };
        self.apply(Some(session), None, Command::Lock(command))
    }

    /// The sessions that hold the lock.
    pub fn holders(&self) -> Vec<SessionId> {
        self.store
            .holds_of(&Self::lock())
            .iter()
            .map(|hold| hold.session)
            .collect()
    }

    pub fn expire(&mut self, sessions: &[u64]) {
        self.expire_in_term(sessions, ENTRY.term);
    }

    /// As if the leader of this term had proposed it.
    pub fn expire_in_term(&mut self, sessions: &[u64], term: u64) {
        let sessions = sessions.iter().copied().map(SessionId).collect();
        // Whether it is refused is what the tests look for.
        let _ = self.apply(
            None,
            None,
            Command::ExpireSessions {
                sessions,
                term,
                as_of: znode_store::Zxid(u64::MAX),
            },
        );
    }

    /// Creates a sequential child of `/q`, and returns its path.
    pub fn sequential(&mut self) -> String {
        self.sequential_as(None)
    }

    pub fn sequential_as(&mut self, request_id: Option<RequestId>) -> String {
        self.create(None, request_id, "/q/n", CreateMode::PersistentSequential)
    }

    pub fn ephemeral(&mut self, session: u64, path: &str) {
        self.create(Some(session), None, path, CreateMode::Ephemeral);
    }

    fn create(
        &mut self,
        session: Option<u64>,
        id: Option<RequestId>,
        path: &str,
        mode: CreateMode,
    ) -> String {
        let op = Op::Create {
            path: CreatePath::parse(path, mode.is_sequential()).expect("a path"),
            data: Data::empty(),
            acl: Acl::open(),
            mode,
            parents: true,
        };
        match self.apply(session, id, Command::Write(op)) {
            Ok(Reply::Created { path, .. }) => path.as_str().into(),
            other => panic!("{other:?}"),
        }
    }

    pub fn delete(&mut self, path: &str) {
        let path = ZPath::parse(path).expect("a path");
        let deleted = self.apply(None, None, Command::Write(Op::Delete { path, version: -1 }));
        assert_eq!(deleted, Ok(Reply::Deleted));
    }

    /// The state as it comes out of a snapshot.
    pub fn restored(&mut self) -> Store {
        self.store.begin_snapshot();
        let mut restorer = Restorer::new();
        while let Some(part) = self.store.next_snapshot_part(100) {
            restorer.add(part).expect("it was just drawn");
        }
        restorer.finish().expect("it was just drawn")
    }
}
