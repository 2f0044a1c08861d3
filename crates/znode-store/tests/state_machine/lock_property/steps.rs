//! Random steps of callers, operators, ZooKeeper clients and time.

use proptest::prelude::*;
use znode_store::WithdrawCause;

pub const LOCKS: [&str; 3] = ["a", "a/b", "c"];
pub const OWNERS: [&str; 2] = ["", "owner"];
pub const SESSIONS: u8 = 4;

#[derive(Debug, Clone)]
pub struct Step {
    pub session: u8,
    pub request: Option<u8>,
    pub lock: u8,
    pub what: What,
}

#[derive(Debug, Clone)]
pub enum What {
    Acquire {
        mode: u8,
        permits: u8,
        owner: u8,
        reentrant: bool,
        wait: bool,
        delay: bool,
    },
    Release(u8),
    Withdraw {
        contender: u8,
        attempt: u8,
        cause: WithdrawCause,
    },
    Break(u8),
    Downgrade(u8, bool),
    Upgrade {
        contender: u8,
        wait: bool,
    },
    WithdrawUpgrade {
        contender: u8,
        cause: WithdrawCause,
    },
    /// The step's lock and the next one, exclusive or shared.
    AcquireMany {
        shared: bool,
        owner: u8,
        wait: bool,
    },
    ReleaseMany(u8),
    WithdrawMany {
        contender: u8,
        cause: WithdrawCause,
    },
    Configure {
        limit: Option<Option<u8>>,
        draining: Option<bool>,
    },
    Revoke(Option<u8>),
    Answer(u8),
    /// All closed locks; a number of halves of their delays has passed.
    Pass(u8),
    /// Steps of ZooKeeper clients.
    Create(&'static str),
    Delete(u8),
    DeleteLock,
    /// A create and a delete, and perhaps something that fails.
    Multi {
        name: &'static str,
        contender: u8,
        fails: bool,
    },
    OpenSession,
    CloseSession,
    ExpireSessions(u8),
}

fn owner() -> impl Strategy<Value = u8> {
    prop_oneof![4 => Just(0u8), 1 => Just(1)]
}

fn mostly() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.8)
}

fn cause() -> impl Strategy<Value = WithdrawCause> {
    prop_oneof![Just(WithdrawCause::TimedOut), Just(WithdrawCause::Abandoned)]
}

pub fn any_step() -> impl Strategy<Value = Step> {
    let names = prop::sample::select(vec!["lock-", "x__READ__", "x__rlock__", "n_", "_c_1-lease-"]);
    let what = prop_oneof![
        12 => (0u8..10, 1u8..4, owner(), mostly(), mostly(), prop::bool::weighted(0.2)).prop_map(
            |(mode, permits, owner, reentrant, wait, delay)| {
                What::Acquire { mode, permits, owner, reentrant, wait, delay }
            }
        ),
        3 => (any::<u8>(), any::<bool>()).prop_map(|(contender, shared)| What::Downgrade(contender, shared)),
        4 => (any::<u8>(), mostly()).prop_map(|(contender, wait)| What::Upgrade { contender, wait }),
        2 => (any::<u8>(), cause()).prop_map(|(contender, cause)| What::WithdrawUpgrade { contender, cause }),
        3 => (any::<bool>(), owner(), mostly())
            .prop_map(|(shared, owner, wait)| What::AcquireMany { shared, owner, wait }),
        2 => any::<u8>().prop_map(What::ReleaseMany),
        2 => (any::<u8>(), cause()).prop_map(|(contender, cause)| What::WithdrawMany { contender, cause }),
        1 => prop::option::of(1u8..6).prop_map(|limit| What::Configure { limit: Some(limit), draining: None }),
        1 => any::<bool>().prop_map(|draining| What::Configure { limit: None, draining: Some(draining) }),
        1 => Just(What::Configure { limit: None, draining: Some(false) }),
        1 => prop::option::of(any::<u8>()).prop_map(What::Revoke),
        1 => any::<u8>().prop_map(What::Answer),
        3 => (0u8..3).prop_map(What::Pass),
        8 => any::<u8>().prop_map(What::Release),
        6 => (any::<u8>(), any::<u8>(), cause()).prop_map(|(contender, attempt, cause)| {
            What::Withdraw { contender, attempt, cause }
        }),
        1 => any::<u8>().prop_map(What::Break),
        2 => names.clone().prop_map(What::Create),
        1 => any::<u8>().prop_map(What::Delete),
        1 => Just(What::DeleteLock),
        2 => (names, any::<u8>(), any::<bool>())
            .prop_map(|(name, contender, fails)| What::Multi { name, contender, fails }),
        3 => Just(What::OpenSession),
        1 => Just(What::CloseSession),
        1 => any::<u8>().prop_map(What::ExpireSessions),
    ];
    (
        // One session and one lock more than the others, so that calls join each other.
        prop_oneof![Just(0), 0..SESSIONS],
        prop::option::weighted(0.3, 0u8..6),
        prop_oneof![Just(0), 0..LOCKS.len() as u8],
        what,
    )
        .prop_map(|(session, request, lock, what)| Step {
            session,
            // What other commands' repetitions do is no matter of locks.
            request: request.filter(|_| matches!(what, What::Acquire { .. })),
            lock,
            what,
        })
}
