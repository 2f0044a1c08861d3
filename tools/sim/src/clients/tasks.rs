//! What clients have to do: drawn from the seed, one thing after the other.

use znode_store::{
    Acl, ContenderNames, CreateMode, CreatePath, Data, Grant, LockMode, LockName, LockWish, Op, ZPath,
};

use crate::dice::Dice;

/// Znodes that all clients write, read and watch.
pub const REGISTERS: [&str; 3] = ["/r0", "/r1", "/r2"];

/// Below this one clients create what is counted at the end.
pub const UNIQUE: &str = "/unique";

/// The locks that are held exclusively, shared and upgradeable, and the semaphores with their limits.
const MIXED: [&str; 3] = ["a", "b", "c"];
const SEMAPHORES: [(&str, u32); 2] = [("two", 2), ("three", 3)];

/// All locks.
pub fn locks() -> Vec<LockName> {
    let semaphores = SEMAPHORES.iter().map(|(name, _)| *name);
    MIXED.into_iter().chain(semaphores).map(name).collect()
}

fn name(text: &str) -> LockName {
    LockName::parse(text).expect("it is a name")
}

/// One thing to do.
#[derive(Debug, Clone)]
pub enum Task {
    /// To get locks, and to hold them for a while.
    Acquire {
        /// Which, and how.
        wishes: Vec<LockWish>,
        /// For how long to wait.
        wait_ms: Option<u64>,
    },
    /// To change something.
    Write(Vec<Op>),
    /// To create something that is counted at the end.
    CreateUnique(Op),
    /// To look at a znode.
    Read(ZPath),
    /// To be told of its next change.
    Watch {
        /// Which.
        path: ZPath,
        /// For how long to wait.
        wait_ms: u64,
    },
    /// To end the session.
    Close,
}

/// What comes next, for a client that holds nothing.
pub fn draw(dice: &mut Dice, client: u64) -> Task {
    match dice.between(0..100) {
        0..40 => {
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
        82..90 => Task::Read(register(dice)),
        90..98 => Task::Watch {
            path: register(dice),
            wait_ms: dice.between(50..800),
        },
        _ => Task::Close,
    }
}

/// A write that counts only while the lock is held.
pub fn guarded(dice: &mut Dice, grant: &Grant) -> Vec<Op> {
    let held = Op::Held {
        lock: grant.lock.clone(),
        fencing_token: grant.fencing_token,
    };
    vec![held, set(dice)]
}

/// The registers, to begin with.
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

fn register(dice: &mut Dice) -> ZPath {
    path(dice.pick::<&str>(&REGISTERS))
}

fn path(text: &str) -> ZPath {
    ZPath::parse(text).expect("it is a path")
}

fn set(dice: &mut Dice) -> Op {
    Op::Set {
        path: register(dice),
        data: data(dice),
        // Some expect a version that it seldom has.
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
        path: CreatePath::parse(path, mode.is_sequential()).expect("it is a path"),
        data: "".into(),
        acl: Acl::open(),
        mode,
        parents: false,
    }
}
