//! The table of hot paths, and their implementation. Each path first creates its materials, then does its
//! work in `counted`, then checks the result, as a path that ends early takes few instructions.

mod material;

mod store;
mod locks;
mod watches;
mod log;
mod snapshot;
mod zookeeper;
mod documents;
mod requests;
mod connections;

use mad_turmoil::rand::set_rng;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::region::instructions_counted_here as counted;

/// Seed of every process' random numbers.
const SEED: u64 = 0x10c6_9a7e;

/// Work that is done for every request, or for every znode.
pub struct HotPath {
    /// Name in the file of counts.
    pub name: &'static str,
    /// Description of one operation.
    pub about: &'static str,
    /// Number of operations that are counted together.
    pub operations: u64,
    /// Function that runs the operations.
    body: fn(u64),
}

impl HotPath {
    const fn new(name: &'static str, about: &'static str, operations: u64, body: fn(u64)) -> Self {
        Self {
            name,
            about,
            operations,
            body,
        }
    }

    /// Runs the path.
    pub fn run(&self) {
        (self.body)(self.operations);
    }
}

/// Makes all random numbers of this process follow from the same seed.
pub fn seed_random_numbers() {
    set_rng(StdRng::seed_from_u64(SEED));
}

/// Returns all paths in the order of the output.
pub fn all() -> &'static [HotPath] {
    const ALL: &[HotPath] = &[
        HotPath::new(
            "store-create",
            "a znode of 100 bytes is created",
            1_000,
            store::create,
        ),
        HotPath::new(
            "store-set",
            "a znode among 10,000 gets other data",
            1_000,
            store::set,
        ),
        HotPath::new(
            "store-set-in-turn",
            "the same, by a connection of ZooKeeper's protocol",
            1_000,
            store::set_in_turn,
        ),
        HotPath::new(
            "store-multi",
            "a transaction of a check and a set",
            1_000,
            store::multi,
        ),
        HotPath::new(
            "store-get",
            "a znode among 10,000 is read, with its stat",
            1_000,
            store::get,
        ),
        HotPath::new(
            "store-children",
            "a page of 100 of 1,000 children, with their stats",
            20,
            store::children,
        ),
        HotPath::new(
            "store-session",
            "a session is opened and closed",
            500,
            store::session,
        ),
        HotPath::new(
            "lock-cycle",
            "a free lock is acquired and released",
            500,
            locks::cycle,
        ),
        HotPath::new(
            "lease-cycle",
            "a free lock is acquired by a new lease and released, as over Redis' protocol",
            500,
            locks::lease_cycle,
        ),
        HotPath::new(
            "lock-hand-over",
            "a lock is released to the first of 100 waiters",
            50,
            locks::hand_over,
        ),
        HotPath::new(
            "lock-semaphore",
            "a permit of a semaphore with 4 of 5 taken, and back",
            500,
            locks::semaphore,
        ),
        HotPath::new(
            "watch-fire-none",
            "a change that fires none of 1,000 watches",
            1_000,
            watches::none,
        ),
        HotPath::new(
            "watch-fire-1000",
            "a change that notifies 1,000 watchers",
            10,
            watches::many,
        ),
        HotPath::new(
            "command-encode",
            "a command encoded for the network and the log",
            1_000,
            log::encode_command,
        ),
        HotPath::new("command-decode", "the same, decoded", 1_000, log::decode_command),
        HotPath::new(
            "batch",
            "64 commands packed into an entry and unpacked",
            100,
            log::batch,
        ),
        HotPath::new(
            "log-record-write",
            "an entry of 64 commands as a record with checksums",
            100,
            log::write_record,
        ),
        HotPath::new(
            "log-record-read",
            "the same, checked and read",
            100,
            log::read_record,
        ),
        HotPath::new(
            "snapshot-draw",
            "a snapshot of 10,000 znodes, encoded",
            1,
            snapshot::draw,
        ),
        HotPath::new(
            "snapshot-restore",
            "10,000 znodes decoded and restored",
            1,
            snapshot::restore,
        ),
        HotPath::new(
            "zk-set",
            "setData of ZooKeeper's protocol read, its reply written",
            1_000,
            zookeeper::set,
        ),
        HotPath::new("zk-get", "getData read, its reply written", 1_000, zookeeper::get),
        HotPath::new(
            "zk-create",
            "create read, its reply written",
            1_000,
            zookeeper::create,
        ),
        HotPath::new(
            "json-acquire",
            "the body of acquire read and checked, the grant written",
            1_000,
            documents::acquire,
        ),
        HotPath::new("json-release", "the same of release", 1_000, documents::release),
        HotPath::new(
            "http-lock-cycle",
            "acquire and release, from the router to the log and back",
            100,
            requests::lock_cycle,
        ),
        HotPath::new(
            "http-heartbeat",
            "a heartbeat, confirmed by the leader",
            100,
            requests::heartbeat,
        ),
        HotPath::new(
            "http-set",
            "a znode set, from the router to the log and back",
            100,
            requests::set,
        ),
        HotPath::new("http-get", "a znode read", 200, requests::get),
        HotPath::new(
            "http-connection-cycle",
            "http-lock-cycle by a connection: hyper is counted",
            100,
            connections::lock_cycle,
        ),
        HotPath::new(
            "http-connection-cycles-64",
            "the same of 64 clients at once, whose proposals share rounds of consensus",
            10 * connections::MANY_CLIENTS,
            connections::many_lock_cycles,
        ),
        HotPath::new(
            "http-connection-heartbeat",
            "http-heartbeat by a connection",
            100,
            connections::heartbeat,
        ),
        HotPath::new(
            "http-connection-get",
            "http-get by a connection",
            200,
            connections::get,
        ),
    ];
    ALL
}

/// Returns the path of this name.
pub fn find(name: &str) -> Option<&'static HotPath> {
    all().iter().find(|path| path.name == name)
}
