//! Grants to live sessions only: a session that has ended is granted nothing, also while its ephemeral znodes are still being removed.

use znode_store::{Hold, Store};

use super::Check;

/// Checks a grant against the state after its command.
pub fn check(hold: &Hold, store: &Store) -> Check {
    match store.session(hold.session) {
        Some(_) => Ok(()),
        None => Err(format!(
            "{} was granted {}, and its session has ended",
            hold.holder, hold.lock
        )),
    }
}

#[cfg(test)]
mod tests {
    use znode_store::{
        AttemptId, Command, EntryContext, EntryWork, LockCommand, LockMode, LockName, LockWish, Password,
        Request, Rules, SessionId,
    };

    use super::*;

    const SESSION: SessionId = SessionId(7);

    fn acquire(name: &str) -> Request {
        let wish = LockWish {
            lock: LockName::parse(name).expect("a name"),
            mode: LockMode::Exclusive,
            permits: 1,
            owner: "".into(),
            reentrant: false,
            note: "".into(),
            address: "".into(),
            lock_delay_ms: 0,
            names: Default::default(),
        };
        let acquire = LockCommand::Acquire {
            wish,
            guid: 1_u64.into(),
            attempt: AttemptId(1),
            wait: false,
        };
        Request {
            session: Some(SESSION),
            ..Request::anonymous(Command::Lock(acquire))
        }
    }

    #[test]
    fn grant_to_a_session_that_is_ending_is_a_violation() {
        let mut store = Store::new();
        let open = Command::OpenSession {
            session: SESSION,
            password: Password([0; 16]),
            timeout_ms: 2_000,
            name: "".into(),
            address: "".into(),
        };
        let close = Command::CloseSession { session: SESSION };
        let requests = [
            Request::anonymous(open),
            acquire("a"),
            acquire("b"),
            Request::anonymous(close),
        ];
        let entry = EntryContext { time_ms: 1, term: 1 };
        let mut check_after = |request| {
            let (mut work, mut events) = (EntryWork::of(1), Vec::new());
            let applied = store.apply_by(Rules::Current, &entry, &mut work, request, &mut events);
            assert!(applied.outcome.is_ok(), "{applied:?}");
            let holds = store.holds_of(&LockName::parse("b").expect("a name"));
            holds.first().map(|hold| check(hold, &store))
        };
        let checks = requests.map(&mut check_after);
        assert!(
            matches!(checks, [None, None, Some(Ok(())), Some(Err(_))]),
            "{checks:?}"
        );
    }
}
