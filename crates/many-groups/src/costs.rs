//! What each step of a request costs: the model's only knowledge of the real program.

use crate::{MICROSECOND, Nanos};

/// See the module. All but the last four are times on a core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Costs {
    /// To take a request in and to send its answer, at the leader.
    pub front: Nanos,
    /// To make an entry, at the leader: its log, and a message to each follower. And for each operation in it.
    pub entry: Nanos,
    /// See `entry`.
    pub entry_operation: Nanos,
    /// To take an entry over and to apply it, at each follower. And for each operation in it.
    pub follow: Nanos,
    /// See `follow`.
    pub follow_operation: Nanos,
    /// To apply an entry, at the leader. And for each operation in it.
    pub apply: Nanos,
    /// See `apply`.
    pub apply_operation: Nanos,
    /// A read at any member, from its memory.
    pub read: Nanos,
    /// A heartbeat of a session, at the leader.
    pub heartbeat: Nanos,
    /// The client's part of an operation, where it shares the machine.
    pub client: Nanos,
    /// One sync of a disk.
    pub sync: Nanos,
    /// From one machine to another, or between processes of one.
    pub hop: Nanos,
    /// What threads of a node take to wake each other on the way of one entry.
    pub wake: Nanos,
    /// How long names wait whose leader's machine is lost: until it is noticed and another member leads.
    pub failover: Nanos,
}

impl Costs {
    /// Of the program on a machine of two cores with three nodes and all clients on it (docs/performance.md describes it), over ZooKeeper's
    /// protocol, a hundred bytes a write.
    ///
    /// | from | |
    /// |---|---|
    /// | `client`, `read` | `bench zookeeper --workloads get,set --clients 64`: processor time of that program and of the nodes for one: 7 and 10 µs |
    /// | `entry…`, `follow…`, `apply…`, `front` | the same with `set`: processor time of the leader and of a follower for one operation, 29.8 and 20.5 µs where an entry has 5.2 of them (16 clients), 15.2 and 10.3 µs where it has 14.5 (64 clients). So an entry costs the leader 117 µs and a follower 81 µs, and an operation in it 7 and 5 µs. A third of a `front` is in both, as clients are spread over the nodes; it costs what a read does, nearly all of which is the connection. How the leader's are parted between log and applying: perf |
    /// | `heartbeat` | `bench sessions`: the leader's 16 % of a core for 3,157 in a second |
    /// | `sync` | `wal_bench` |
    /// | `hop` | what a `get` of one client takes beyond that on loopback, half of it. Machines are further apart: see [`Costs::with_hop`] |
    /// | `wake` | what is missing to the time that one client's `set` takes: the one value that was fitted, and to that |
    /// | `failover` | `bench failover`, median |
    pub fn measured() -> Self {
        Self {
            front: 9 * MICROSECOND,
            entry: 85 * MICROSECOND,
            entry_operation: 2 * MICROSECOND,
            follow: 81 * MICROSECOND,
            follow_operation: 2 * MICROSECOND,
            apply: 32 * MICROSECOND,
            apply_operation: 2 * MICROSECOND,
            read: 10 * MICROSECOND,
            heartbeat: 52 * MICROSECOND,
            client: 7 * MICROSECOND,
            sync: 97 * MICROSECOND,
            hop: 10 * MICROSECOND,
            wake: 20 * MICROSECOND,
            failover: 1_040_000 * MICROSECOND,
        }
    }

    /// The same with machines so far apart.
    pub fn with_hop(self, hop: Nanos) -> Self {
        Self { hop, ..self }
    }
}
