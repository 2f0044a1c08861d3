//! Tasks of the clients, drawn from the seed.

use znode_store::{
    Acl, ContenderNames, CreateMode, CreatePath, Data, Grant, HoldBounds, LockMode, LockName, LockWish, Op,
    ZPath,
};

use super::LeaseWait;
use crate::dice::Dice;

/// Znodes that all clients write, read and watch.
pub const REGISTERS: [&str; 3] = ["/r0", "/r1", "/r2"];

/// Parent of the znodes that are counted at the end.
pub const UNIQUE: &str = "/unique";

/// Locks that are used in exclusive, shared and upgradeable mode. The semaphores with their limits follow.
const MIXED: [&str; 3] = ["a", "b", "c"];
const SEMAPHORES: [(&str, u32); 2] = [("two", 2), ("three", 3)];

/// Returns all locks.
pub fn locks() -> Vec<LockName> {
    let semaphores = SEMAPHORES.iter().map(|(name, _)| *name);
    MIXED.into_iter().chain(semaphores).map(name).collect()
}

fn name(text: &str) -> LockName {
    LockName::parse(text).expect("the text is a valid lock name")
}

/// Task of a client.
#[derive(Debug, Clone)]
pub enum Task {
    /// Acquires locks and holds them for a while.
    Acquire {
        /// The locks with their modes.
        wishes: Vec<LockWish>,
        /// Maximum wait; `None` for a try.
        wait_ms: Option<u64>,
    },
    /// Acquires a lock by a lease.
    Lease {
        /// The lock with its mode.
        wish: LockWish,
        /// Bounds of the hold.
        bounds: HoldBounds,
        /// Time to live.
        ttl_ms: u64,
        /// Wait for the lock.
        wait: LeaseWait,
    },
    /// Makes changes.
    Write(Vec<Op>),
    /// Creates a znode that is counted at the end.
    CreateUnique(Op),
    /// Reads a znode.
    Read(ZPath),
    /// Waits for the next change of a znode.
    Watch {
        /// The znode.
        path: ZPath,
        /// Maximum wait.
        wait_ms: u64,
    },
    /// Closes the session.
    Close,
}

/// Draws the next task of a client that holds nothing.
pub fn draw(dice: &mut Dice, client: u64) -> Task {
    match dice.between(0..100) {
        0..10 => lease(dice),
        10..40 => {
            let mut wishes = vec![wish(dice)];
            if dice.chance(200) {
                let other = wish(dice);
                if other.lock != wishes[0].lock {
                    wishes.push(other);
                }
            }
            let wait_ms = (!dice.chance(200)).then(|| dice.between(20..1_500));
            Task::Acquire { wishes, wait_ms }
        }
        40..52 => Task::CreateUnique(create(
            &format!("{UNIQUE}/c{client}-"),
            CreateMode::PersistentSequential,
        )),
        52..70 => Task::Write(vec![set(dice)]),
        70..76 => {
            let mode = match dice.chance(500) {
                true => CreateMode::EphemeralSequential,
                false => CreateMode::Ephemeral,
            };
            Task::Write(vec![create(
                &format!("/mine/c{client}-{}-", dice.between(0..4)),
                mode,
            )])
        }
        76..82 => {
            let path = path(&format!("/mine/c{client}-{}-", dice.between(0..4)));
            Task::Write(vec![Op::Delete { path, version: -1 }])
        }
        82..90 => Task::Read(draw_register(dice)),
        90..98 => Task::Watch {
            path: draw_register(dice),
            wait_ms: dice.between(50..800),
        },
        _ => Task::Close,
    }
}

/// Draws an acquire by a lease. A wait on the connection is so short that the node does not renew the lease meanwhile.
fn lease(dice: &mut Dice) -> Task {
    let mut wish = wish(dice);
    wish.reentrant = false;
    let ms = |dice: &mut Dice, chance, most| match dice.chance(chance) {
        true => dice.between(1..most) as u32,
        false => 0,
    };
    let bounds = HoldBounds {
        min_ms: match wish.mode {
            LockMode::Exclusive => ms(dice, 300, 1_500),
            _ => 0,
        },
        max_ms: ms(dice, 300, 4_000),
    };
    Task::Lease {
        wish,
        bounds,
        ttl_ms: dice.between(2_000..6_000),
        wait: match dice.between(0..3) {
            0 => LeaseWait::Try,
            1 => LeaseWait::For(dice.between(20..400)),
            _ => LeaseWait::Queue,
        },
    }
}

/// Returns a write that is applied only while the lock is held.
pub fn guarded(dice: &mut Dice, grant: &Grant) -> Vec<Op> {
    let held = Op::Held {
        lock: grant.lock.clone(),
        fencing_token: grant.fencing_token,
    };
    vec![held, set(dice)]
}

/// Returns the creation of the registers and the parents.
pub fn registers() -> Vec<Op> {
    let registers = REGISTERS.iter().map(|path| create(path, CreateMode::Persistent));
    let parents = [UNIQUE, "/mine"].into_iter();
    let parents = parents.map(|path| create(path, CreateMode::Persistent));
    registers.chain(parents).collect()
}

fn wish(dice: &mut Dice) -> LockWish {
    let (lock, mode, permits) = match dice.chance(350) {
        true => {
            let (name, limit) = *dice.pick(&SEMAPHORES);
            let permits = dice.between(1..u64::from(limit) + 1) as u32;
            (name, LockMode::Semaphore { limit }, permits)
        }
        false => {
            let modes = [
                LockMode::Exclusive,
                LockMode::Exclusive,
                LockMode::Shared,
                LockMode::Upgradeable,
            ];
            (*dice.pick(&MIXED), *dice.pick(&modes), 1)
        }
    };
    LockWish {
        lock: name(lock),
        mode,
        permits,
        owner: "".into(),
        reentrant: true,
        note: "".into(),
        address: "".into(),
        lock_delay_ms: if dice.chance(250) {
            dice.between(1..1_500) as u32
        } else {
            0
        },
        names: ContenderNames::default(),
    }
}

/// Draws a znode that all clients use.
pub fn draw_register(dice: &mut Dice) -> ZPath {
    path(dice.pick::<&str>(&REGISTERS))
}

fn path(text: &str) -> ZPath {
    ZPath::parse(text).expect("the text is a valid path")
}

fn set(dice: &mut Dice) -> Op {
    Op::Set {
        path: draw_register(dice),
        data: data(dice),
        // Some writes expect a version that the znode seldom has.
        version: if dice.chance(200) {
            dice.between(0..50) as i32
        } else {
            -1
        },
    }
}

fn data(dice: &mut Dice) -> Data {
    let bytes = vec![b'x'; dice.between(0..200) as usize];
    Data::from(bytes)
}

fn create(path: &str, mode: CreateMode) -> Op {
    Op::Create {
        path: CreatePath::parse(path, mode.is_sequential()).expect("the text is a valid path"),
        data: "".into(),
        acl: Acl::open(),
        mode,
        parents: false,
    }
}
