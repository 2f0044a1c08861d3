//! Bugs on purpose, to test the tests with: a suite that does not see these would not see others. They exist only with the
//! feature `planted`, which no ordinary build has; without it [`is`] is `false` at compile time and nothing is left of them.
//!
//! One process has one bug at most, from its start on. Every crate of the server has places for one; each place
//! names its [`Bug`].

/// A bug that can be planted. The numbers are what `LOCKGATE_PLANTED` gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// The log says that entries are durable without having synced them, so a power cut takes what was acknowledged.
    UnsyncedLog = 1,
    /// A vote is granted before it is on the disk, so a node that loses power may vote twice in a term.
    UnsyncedVote = 2,
    /// A read that must be linearizable is answered from the local state, without asking whether others are ahead.
    StaleRead = 3,
    /// A waiter keeps its place when its session ends, and is granted the lock although its client is gone.
    GrantToTheDead = 4,
    /// A release takes whatever hold the session has on the lock, also a later one than it names.
    ReleaseByName = 5,
    /// The leader confirms heartbeats without asking the others whether it still leads, and an expiry that a deposed leader
    /// proposed is executed under its successor.
    UnprovenLeader = 6,
    /// A snapshot leaves out how many children a znode has had, so that names of sequential children come again.
    ForgottenCounter = 7,
    /// A node drops all watches when the leader changes, and notifies no client.
    LostWatches = 8,
    /// A repeated request with the same id is executed again.
    Repeated = 9,
    /// Sessions that have ended are remembered in an order that is a replica's own.
    OwnOrder = 10,
    /// Times in the state are read from the replica's own wall clock.
    OwnClock = 11,
    /// The permits of a holder whose session ends are not released.
    LeakedPermits = 12,
    /// A shared contender is granted the lock past a writer that holds it or waits for it.
    OvertakingReader = 13,
    /// A leader takes it for consent if a follower cannot be reached, so what it commits alone is lost with it. The nearest
    /// equivalent, on our side of openraft, of a commit position that is counted wrongly.
    CountedAbsent = 14,
    /// A snapshot gets its name without a sync of the directory, and the log before it is purged all the same.
    UnsyncedName = 15,
    /// Access to a znode is checked with the rights of the moment at which the request came in, not with those of its
    /// position in the log.
    AccessAtTheDoor = 16,
    /// An exclusive lock is granted to a second contender.
    CrowdedLock = 17,
    /// The end of a session leaves one of its ephemeral znodes.
    KeptEphemeral = 18,
    /// A node that comes back with an older data directory is believed.
    TrustedReturn = 19,
    /// A node does not compare its state with the leader's.
    UncomparedState = 20,
    /// A forwarded heartbeat counts from when it arrives at the leader, however long it was on its way.
    HeartbeatAge = 21,
    /// A new leader does not take over how long sessions have been silent: each gets its whole timeout again.
    SilenceForgotten = 22,
    /// A new leader takes sessions to have been silent for longer than they were for sure.
    SilenceTooLong = 23,
    /// A leader confirms a heartbeat of a session whose silence is in the log without an entry that says so.
    SilenceKept = 24,
    /// A follower waits for a silent leader as long as on a quiet machine, whatever pauses it has seen.
    FixedPatience = 25,
    /// A leader is silenced by the time since a quorum answered, although it was only paused itself.
    MutedByPause = 26,
    /// Of a member that comes back only the count of its starts is compared, and not what it had acknowledged.
    CountedStarts = 27,
    /// A waiter is granted its lock although the owner of its session has no right to lock there any more.
    WaitOutlivesRight = 28,
    /// A waiter is granted its lock although its session has ended, as long as no entry has removed it.
    GrantWhileEnding = 29,
    /// A lease lives on after its contender was removed.
    LeaseWithoutLock = 30,
    /// Only the node that leads at the grant counts the maximum time of a hold, so after a change of leaders the hold does not end.
    HoldOutlivesBound = 31,
    /// The minimum time of a hold holds only if the lock was free at the call: a waiter's lock is granted again at once.
    MinHoldOfWaiters = 32,
    /// A place in the queue that belongs to a session or lease is withdrawn when the request for it is over.
    PlaceOfRequest = 33,
    /// A compare-and-delete of a Redis client deletes the key whatever value it has.
    UncomparedValue = 34,
    /// The usage of a namespace does not count what is deleted.
    UsageOutlivesZnode = 35,
}

impl Bug {
    /// All of them, by number.
    pub const ALL: [Self; 35] = [
        Self::UnsyncedLog,
        Self::UnsyncedVote,
        Self::StaleRead,
        Self::GrantToTheDead,
        Self::ReleaseByName,
        Self::UnprovenLeader,
        Self::ForgottenCounter,
        Self::LostWatches,
        Self::Repeated,
        Self::OwnOrder,
        Self::OwnClock,
        Self::LeakedPermits,
        Self::OvertakingReader,
        Self::CountedAbsent,
        Self::UnsyncedName,
        Self::AccessAtTheDoor,
        Self::CrowdedLock,
        Self::KeptEphemeral,
        Self::TrustedReturn,
        Self::UncomparedState,
        Self::HeartbeatAge,
        Self::SilenceForgotten,
        Self::SilenceTooLong,
        Self::SilenceKept,
        Self::FixedPatience,
        Self::MutedByPause,
        Self::CountedStarts,
        Self::WaitOutlivesRight,
        Self::GrantWhileEnding,
        Self::LeaseWithoutLock,
        Self::HoldOutlivesBound,
        Self::MinHoldOfWaiters,
        Self::PlaceOfRequest,
        Self::UncomparedValue,
        Self::UsageOutlivesZnode,
    ];

    /// The bug with this number.
    pub fn numbered(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|bug| *bug as u8 == number)
    }
}

#[cfg(feature = "planted")]
mod chosen {
    use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

    use super::Bug;

    /// The number of the bug, or 0.
    static CHOSEN: AtomicU8 = AtomicU8::new(0);

    /// Plants a bug in this process, or none.
    pub fn plant(bug: Option<Bug>) {
        CHOSEN.store(bug.map_or(0, |bug| bug as u8), Relaxed);
    }

    /// Returns whether this process has the bug.
    pub fn is(bug: Bug) -> bool {
        CHOSEN.load(Relaxed) == bug as u8
    }
}

#[cfg(feature = "planted")]
pub use chosen::{is, plant};

/// Returns whether this process has the bug: this build has none.
#[cfg(not(feature = "planted"))]
pub const fn is(_bug: Bug) -> bool {
    false
}

/// Returns whether the planted bug leaves ephemeral znodes without a session.
pub fn leaves_orphans() -> bool {
    is(Bug::GrantToTheDead) || is(Bug::KeptEphemeral)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_consecutive() {
        for (index, bug) in Bug::ALL.into_iter().enumerate() {
            assert_eq!(bug as usize, index + 1);
            assert_eq!(Bug::numbered(bug as u8), Some(bug));
        }
        assert_eq!(Bug::numbered(0), None);
        assert_eq!(Bug::numbered(Bug::ALL.len() as u8 + 1), None);
    }
}
