//! Share of the sessions in the digest of the state: the sum of the shares of all live sessions, and the sessions that have ended lately.
//!
//! The sum is kept while sessions change. A hundred thousand sessions would otherwise stop a node for 90 ms at each digest.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

use crate::model::ids::SessionId;
use crate::sessions::{Session, Sessions};
use crate::stable_hash;

/// Maximum number of changed sessions without a computed share. A share takes about a microsecond, so a digest takes less than a millisecond. While
/// fewer sessions than this are busy, no command computes a share.
const MAX_CHANGED: usize = 512;

/// Shares of live sessions in the digest.
#[derive(Default)]
pub(super) struct DigestShares {
    /// Sum of the shares of the sessions that are not `changed`, each of which has its share recorded.
    sum: u64,
    /// Sessions that have changed since their share was computed, or are new.
    changed: BTreeSet<SessionId>,
}

impl Session {
    /// Computes the session's share.
    fn digest(&self, id: SessionId) -> u64 {
        let hash = stable_hash::of_words([
            stable_hash::of(&self.record(id)),
            self.ephemerals.len() as u64,
            self.remembered.digest(),
        ]);
        // Former versions have none of these, so a state without them has the same digest there.
        let silence = self.silence.map_or(0, |silence| stable_hash::of(&(id, silence)));
        let certificate = self.certificate.as_ref();
        let certificate = certificate.map_or(0, |certificate| stable_hash::of(&(id, certificate)));
        let ending = self.ending.map_or(0, |ending| stable_hash::of(&(id, ending)));
        let lease = match self.is_lease {
            true => stable_hash::of(&(id, "lease")),
            false => 0,
        };
        hash.wrapping_add(silence)
            .wrapping_add(certificate)
            .wrapping_add(ending)
            .wrapping_add(lease)
    }
}

impl Sessions {
    /// Returns a session to be changed.
    pub(crate) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.limit_changed();
        let session = self.live.get_mut(&id).map(Box::as_mut)?;
        if let Some(share) = session.digest_share.take() {
            self.shares.sum = self.shares.sum.wrapping_sub(share);
            self.shares.changed.insert(id);
        }
        Some(session)
    }

    /// Adds a new session to the shares.
    pub(super) fn add_share(&mut self, id: SessionId) {
        self.limit_changed();
        self.shares.changed.insert(id);
    }

    /// Removes a session from the shares that is about to be removed.
    pub(super) fn remove_share(&mut self, id: SessionId) {
        // It is among the changed ones now.
        self.get_mut(id);
        self.shares.changed.remove(&id);
    }

    /// Computes the share of a changed session if there are as many as the maximum.
    fn limit_changed(&mut self) {
        if self.shares.changed.len() >= MAX_CHANGED
            && let Some(id) = self.shares.changed.pop_first()
            && let Some(session) = self.live.get_mut(&id)
        {
            let share = session.digest(id);
            session.digest_share = Some(share);
            self.shares.sum = self.shares.sum.wrapping_add(share);
        }
    }

    /// Returns the sessions' share of the digest.
    pub(crate) fn digest(&self) -> u64 {
        let changed = self.shares.changed.iter();
        let live = changed.fold(self.shares.sum, |sum, &id| {
            sum.wrapping_add(self.live[&id].digest(id))
        });
        let released = self.ended_order.iter().filter(|id| self.was_released(**id));
        let live = released.fold(live, |sum, id| {
            sum.wrapping_add(stable_hash::of(&(id, "released")))
        });
        stable_hash::of_words([live, stable_hash::of(&self.ended_order)])
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    use super::*;
    use crate::model::access::principal::Principal;
    use crate::model::address::CallerAddress;
    use crate::model::ids::{Password, Zxid};
    use crate::model::session::Turn;
    use crate::sessions::SessionRecord;
    use crate::sessions::request_cache::CachedRequests;

    fn open(sessions: &mut Sessions, id: SessionId) {
        let record = SessionRecord {
            session: id,
            password: Password([7; 16]),
            timeout_ms: 6_000,
            name: Arc::from("worker"),
            address: CallerAddress::default(),
            opened_at_ms: id.0,
            owner: Principal::Nobody,
            turn: Turn {
                since: Zxid(1),
                number: 0,
            },
            heard_at: Zxid(1),
            requests: CachedRequests::default(),
        };
        let session = Session::of(record, sessions.empty_cache());
        sessions.insert(id, session);
    }

    /// Checks the digest against that of new sessions in the same state, whose shares are all to be computed.
    fn check(sessions: &Sessions, heard: &BTreeMap<SessionId, Zxid>) {
        let mut copy = Sessions::default();
        for (&id, &at) in heard {
            open(&mut copy, id);
            copy.get_mut(id).unwrap().heard_at = at;
        }
        for ended in sessions.ended() {
            copy.remember_ended(ended);
        }
        assert_eq!(sessions.digest(), copy.digest());
        let unchanged = sessions
            .live
            .values()
            .filter(|session| session.digest_share.is_some());
        assert_eq!(unchanged.count() + sessions.shares.changed.len(), sessions.len());
        assert!(sessions.shares.changed.len() <= MAX_CHANGED);
    }

    #[test]
    fn digest_is_that_of_the_same_sessions_whatever_changed_before() {
        let (mut sessions, mut heard) = (Sessions::default(), BTreeMap::new());
        let count = 4 * MAX_CHANGED as u64;
        for step in 0..10 * count {
            let id = SessionId(1 + stable_hash::of_words([step]) % count);
            match heard.get_mut(&id) {
                None => {
                    open(&mut sessions, id);
                    heard.insert(id, Zxid(1));
                }
                Some(_) if step % 11 == 0 => {
                    sessions.forget(id);
                    heard.remove(&id);
                }
                Some(_) if step % 13 == 0 => {
                    sessions.remove(id);
                    heard.remove(&id);
                }
                Some(at) => {
                    *at = Zxid(step);
                    sessions.get_mut(id).unwrap().heard_at = *at;
                }
            }
            if step % count == 0 {
                check(&sessions, &heard);
            }
        }
        let all: Vec<SessionId> = heard.keys().copied().collect();
        assert!(all.len() > MAX_CHANGED, "{}", all.len());
        for id in all {
            sessions.forget(id);
            heard.remove(&id);
        }
        check(&sessions, &heard);
        assert_eq!(
            sessions.shares.sum, 0,
            "nothing is left of sessions that are gone"
        );
    }
}
