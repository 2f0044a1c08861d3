//! Leases and bounds of holds:
//!
//! - A live lease has exactly one contender.
//! - A place in the queue that was promised to a lease is withdrawn only by its client.
//! - A hold ends by its maximum time only when that time has passed, provided that less than half of the wall clocks are wrong: a
//!   node that was restarted during the hold counts by the time of the state.
//! - A lock grants nothing within the minimum time of a hold, or within a lock-delay.
//!
//! The leader measures by its own clock; measured by a correct clock it may be earlier by as much as its clock is fast.

use std::collections::{BTreeMap, HashMap, HashSet};

use znode_store::{ContenderEnd, Event, HolderId, LockName, SessionId, Store};

use super::Check;
use super::session_expiry::OF_TIMEOUT;
use crate::time::{MILLI, Micros};

/// Checker of leases and bounds of holds.
#[derive(Default)]
pub struct Leases {
    /// Leases with a promised place in the queue.
    places: HashSet<SessionId>,
    /// Leases whose clients have sent a release.
    released: HashSet<SessionId>,
    /// Sessions whose contenders were withdrawn.
    withdrawn: HashSet<SessionId>,
    /// Times before which holds must not end by their maximum time.
    ends: HashMap<(LockName, HolderId), Micros>,
    /// Locks that grant nothing, and the times before which they must not open.
    closed: BTreeMap<LockName, Micros>,
    /// Less than half of the wall clocks are wrong.
    most_clocks_are_right: bool,
}

impl Leases {
    /// Creates the checker; the flag says whether less than half of the wall clocks of the run are wrong.
    pub fn new(most_clocks_are_right: bool) -> Self {
        Self {
            most_clocks_are_right,
            ..Self::default()
        }
    }

    /// Records that a client has sent the release of its lease.
    pub fn released(&mut self, session: SessionId) {
        self.released.insert(session);
    }

    /// Records that a lease was promised a place in the queue.
    pub fn note_place(&mut self, session: SessionId) -> Check {
        self.places.insert(session);
        self.check_place(session)
    }

    fn check_place(&self, session: SessionId) -> Check {
        let has_place = self.places.contains(&session) && !self.released.contains(&session);
        match has_place && self.withdrawn.contains(&session) {
            true => Err(format!("the place of {session} in the queue was withdrawn")),
            false => Ok(()),
        }
    }

    /// Checks the events of a command.
    pub fn check_events(&mut self, events: &[Event], store: &Store, now: Micros) -> Check {
        for event in events {
            match event {
                Event::HoldBegan(hold) => {
                    if self.closed.contains_key(&hold.lock) {
                        return Err(format!("{} was granted while it was closed", hold.lock));
                    }
                    let Some(bounded) = store.bounded_hold(&hold.lock, &hold.holder) else {
                        continue;
                    };
                    let max = Micros::from(bounded.bounds.max_ms) * MILLI;
                    let key = (bounded.lock, bounded.holder);
                    self.ends.insert(key, now + max * OF_TIMEOUT / 1000);
                    let closes =
                        |event: &Event| matches!(event, Event::LockClosed { lock, .. } if *lock == hold.lock);
                    if bounded.bounds.min_ms > 0 && !events.iter().any(closes) {
                        return Err(format!(
                            "{} is open within the minimum time of its hold",
                            hold.lock
                        ));
                    }
                }
                Event::HoldEnded { hold, how, .. } => {
                    let end = self.ends.remove(&(hold.lock.clone(), hold.holder.to_string()));
                    let is_early = self.most_clocks_are_right && end.is_none_or(|end| now < end);
                    if *how == ContenderEnd::MaxHold && is_early {
                        return Err(format!(
                            "the hold of {} ended at {now} us by its maximum time, which is over at {end:?} us",
                            hold.lock
                        ));
                    }
                }
                Event::ContenderEnded { session, how, .. } if *how == ContenderEnd::Withdrawn => {
                    self.withdrawn.insert(*session);
                    self.check_place(*session)?;
                }
                Event::LockOpened(lock) => {
                    let until = self.closed.remove(lock);
                    if until.is_some_and(|until| now < until) {
                        return Err(format!("{lock} opened at {now} us, before {until:?} us"));
                    }
                }
                _ => {}
            }
        }
        // A command may grant a lock and close it.
        for event in events {
            if let Event::LockClosed { lock, delay_ms } = event {
                let delay = Micros::from(*delay_ms) * MILLI;
                self.closed.insert(lock.clone(), now + delay * OF_TIMEOUT / 1000);
            }
        }
        Ok(())
    }

    /// Checks the leases of a state.
    pub fn check(store: &Store) -> Check {
        let leases = store.sessions().into_iter().filter(|session| session.is_lease);
        for lease in leases.filter(|lease| !store.is_ending(lease.session)) {
            let contenders = store.contenders_of(lease.session);
            if contenders.len() != 1 {
                return Err(format!(
                    "lease {} has the contenders {contenders:?}",
                    lease.session
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn withdrawn_place_is_a_violation_in_either_order_of_reports() {
        let left = Event::ContenderEnded {
            session: SessionId(1),
            lock: LockName::parse("a").expect("a name"),
            holder: "n".into(),
            how: ContenderEnd::Withdrawn,
        };
        let left = std::slice::from_ref(&left);
        let mut leases = Leases::default();
        assert_eq!(leases.check_events(left, &Store::new(), 0), Ok(()));
        assert!(leases.note_place(SessionId(1)).is_err());
        let mut leases = Leases::default();
        assert_eq!(leases.note_place(SessionId(1)), Ok(()));
        assert!(leases.check_events(left, &Store::new(), 0).is_err());
        leases.released(SessionId(1));
        assert_eq!(leases.check_events(left, &Store::new(), 0), Ok(()));
    }

    #[test]
    fn lock_that_opens_too_early_is_a_violation() {
        let lock = LockName::parse("a").expect("a name");
        let closed = Event::LockClosed {
            lock: lock.clone(),
            delay_ms: 1_000,
        };
        let opened = [Event::LockOpened(lock)];
        let mut leases = Leases::default();
        assert_eq!(
            leases.check_events(std::slice::from_ref(&closed), &Store::new(), 0),
            Ok(())
        );
        assert_eq!(leases.check_events(&opened, &Store::new(), 800 * MILLI), Ok(()));
        assert_eq!(
            leases.check_events(std::slice::from_ref(&closed), &Store::new(), 0),
            Ok(())
        );
        assert!(leases.check_events(&opened, &Store::new(), 799 * MILLI).is_err());
    }
}
