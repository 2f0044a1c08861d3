//! Conversion of a backup's state into the first state of a new cluster. Its position moves forward. Its sessions end, or stay and
//! get their full timeout again. The caller decides how far the position moves, because the store does not know the age of the backup.

use alloc::vec::Vec;

use crate::apply::context::EntryWork;
use crate::model::command::{Command, Request};
use crate::model::entry::{EntryContext, Rules};
use crate::model::ids::Zxid;
use crate::model::reply::Reply;
use crate::model::session::SessionView;
use crate::store::Store;

/// Last position to which a state can be moved. Positions are JSON numbers, so they must stay below 2⁵³. The other half of that range is left for
/// commands: 140 years of a million commands per second.
pub const LAST_MOVED_POSITION: Zxid = Zxid(1 << 52);

/// Error for a position that cannot be moved that far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "position {from} cannot be moved forward by {by}: no state is moved beyond position {LAST_MOVED_POSITION}"
)]
pub struct TooFar {
    /// Position of the state.
    pub from: Zxid,
    /// Requested distance.
    pub by: u64,
}

impl Store {
    /// Moves the position forward without a command. The next command gets a position, and so a fencing token, that is
    /// larger than all skipped ones. The tree does not change.
    ///
    /// Only for a state that no node serves: watchers and clients of a running node would not notice the skipped positions.
    pub fn move_position(&mut self, by: u64) -> Result<Zxid, TooFar> {
        let from = self.zxid();
        let to = from.0.checked_add(by).filter(|to| *to <= LAST_MOVED_POSITION.0);
        self.zxid = Zxid(to.ok_or(TooFar { from, by })?);
        Ok(self.zxid)
    }

    /// Takes all sessions off the record of silence, so that each has its full timeout from the start of the new cluster. The time until then must
    /// not count as silence.
    ///
    /// Only for a state that no node serves, because its replicas would differ.
    pub fn forget_silences(&mut self) {
        self.sessions.forget_silences();
    }

    /// Ends all sessions in one command, as if all were silent, and returns their number. No waiter is granted a lock meanwhile. If there
    /// are more than [`crate::MAX_ENDED_SESSIONS`], the ends of those that were opened last are recorded.
    ///
    /// Only for a state that no node serves, because no client is notified.
    pub fn end_all_sessions(&mut self) -> u32 {
        let mut sessions = self.sessions();
        let ending: Vec<_> = self.sessions.ending().collect();
        if sessions.is_empty() && ending.is_empty() {
            return 0;
        }
        sessions.sort_unstable_by_key(|view: &SessionView| (view.opened_at_ms, view.session));
        // The entry of the command has a term of no leader, and the time of the command before.
        let entry = EntryContext { time_ms: 0, term: 0 };
        let command = Command::ExpireSessions {
            sessions: ending
                .into_iter()
                .chain(sessions.iter().map(|view| view.session))
                .collect(),
            term: entry.term,
            as_of: self.zxid,
        };
        // One command removes all znodes, however many, because no client waits.
        let (work, request) = (&mut EntryWork::default(), Request::internal(command));
        match self
            .apply_by(Rules::Former, &entry, work, request, &mut Vec::new())
            .outcome
        {
            Ok(Reply::SessionsExpired(ended)) => ended,
            other => unreachable!("sessions that live are ended in the entry's own term, not {other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{Password, SessionId};

    #[test]
    fn kept_sessions_are_on_no_record_of_silence() {
        let (mut store, session) = (Store::new(), SessionId(7));
        let entry = EntryContext { time_ms: 1, term: 1 };
        let apply = |store: &mut Store, command| {
            let applied = store.apply(&entry, Request::internal(command), &mut Vec::new());
            assert!(applied.outcome.is_ok(), "{:?}", applied.outcome);
        };
        let open = Command::OpenSession {
            session,
            password: Password([0; 16]),
            timeout_ms: 10_000,
            name: "test".into(),
            address: "here".into(),
        };
        apply(&mut store, open.clone());
        let mut fresh = Store::new();
        apply(&mut fresh, open);
        let as_of = store.zxid();
        let record = Command::RecordSilence {
            sessions: alloc::vec![(session, 6_000)],
            term: 1,
            as_of,
        };
        apply(&mut store, record);
        assert!(store.silence(session).is_some());
        store.forget_silences();
        assert_eq!(store.silence(session), None);
        assert_eq!(store.sessions(), fresh.sessions());
    }

    #[test]
    fn a_position_is_moved_up_to_the_last_one_and_not_beyond() {
        let mut store = Store::new();
        assert_eq!(store.move_position(0), Ok(Zxid(0)));
        assert_eq!(store.move_position(5), Ok(Zxid(5)));
        assert_eq!(
            store.move_position(LAST_MOVED_POSITION.0 - 5),
            Ok(LAST_MOVED_POSITION)
        );
        for by in [1, u64::MAX] {
            let from = LAST_MOVED_POSITION;
            assert_eq!(store.move_position(by), Err(TooFar { from, by }));
        }
        assert_eq!(store.zxid(), LAST_MOVED_POSITION);
    }
}
