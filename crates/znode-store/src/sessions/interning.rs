//! Values that many sessions share and that exist once: clients of one kind use the same name, and most never send a request id. Nothing
//! visible depends on what is shared.

use alloc::sync::Arc;

use crate::sessions::request_cache::RequestCache;

/// Shared values of sessions.
pub(crate) struct Interner {
    /// Name of the session that was opened last. The next session often has the same.
    name: Arc<str>,
    /// Request cache of all sessions without recorded outcomes. The first outcome of a session copies it ([`Arc::make_mut`]).
    nothing: Arc<RequestCache>,
}

impl Default for Interner {
    fn default() -> Self {
        Self {
            name: Arc::default(),
            nothing: Arc::new(RequestCache::of_session()),
        }
    }
}

impl Interner {
    /// Returns the empty request cache, which sessions share.
    pub(crate) fn nothing(&self) -> Arc<RequestCache> {
        self.nothing.clone()
    }

    /// Returns an equal name, which shares the memory of the previous session's name if the two are equal.
    pub(crate) fn name(&mut self, name: Arc<str>) -> Arc<str> {
        if *name != *self.name {
            self.name = name;
        }
        self.name.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::entry::Rules;
    use crate::model::ids::{Password, SessionId, Zxid};
    use crate::model::session::Turn;
    use crate::sessions::request_cache::CachedRequests;
    use crate::sessions::{Session, SessionRecord, Sessions};
    use crate::stable_hash;
    use crate::{Principal, Reply, RequestId};

    fn open(sessions: &mut Sessions, id: u64, name: &str) {
        let record = SessionRecord {
            session: SessionId(id),
            password: Password([0; 16]),
            timeout_ms: 1_000,
            name: name.into(),
            address: "192.0.2.1:1".into(),
            opened_at_ms: 0,
            owner: Principal::Nobody,
            turn: Turn {
                since: Zxid(id),
                number: 0,
            },
            heard_at: Zxid(id),
            requests: CachedRequests::default(),
        };
        let session = Session::of(record, sessions.empty_cache());
        sessions.insert(SessionId(id), session);
    }

    #[test]
    fn equal_names_share_one_allocation() {
        let mut sessions = Sessions::default();
        for (id, name) in [(1, "worker"), (2, "worker"), (3, "clerk"), (4, "clerk")] {
            open(&mut sessions, id, name);
        }
        let name = |id| &sessions.get(SessionId(id)).unwrap().name;
        assert!(Arc::ptr_eq(name(1), name(2)));
        assert!(Arc::ptr_eq(name(3), name(4)));
        assert_eq!((&**name(2), &**name(4)), ("worker", "clerk"));
    }

    #[test]
    fn recorded_outcomes_are_not_shared_between_sessions() {
        let mut sessions = Sessions::default();
        for id in [1, 2] {
            open(&mut sessions, id, "worker");
        }
        let memory = |sessions: &Sessions, id| sessions.get(SessionId(id)).unwrap().remembered.clone();
        assert!(Arc::ptr_eq(&memory(&sessions, 1), &memory(&sessions, 2)));
        let key = (&RequestId::parse("mine").unwrap()).into();
        let first = sessions.get_mut(SessionId(1)).unwrap();
        Arc::make_mut(&mut first.remembered).insert(
            key,
            stable_hash::of("asked"),
            Ok(Reply::SessionClosed),
            Rules::Current,
        );
        open(&mut sessions, 3, "worker");
        assert_eq!([1, 2, 3].map(|id| memory(&sessions, id).len()), [1, 0, 0]);
    }
}
