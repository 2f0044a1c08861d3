//! What is modelled: how many groups and machines there are, who asks for what, and what is lost.

use crate::{Costs, Nanos, SECOND};

/// See the module. The defaults are one group on three machines of two cores.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The same seed gives the same run.
    pub seed: u64,
    /// How many groups.
    pub groups: usize,
    /// How many members each has.
    pub members: usize,
    /// How many machines.
    pub machines: usize,
    /// How many cores each machine has.
    pub cores: usize,
    /// What every step costs.
    pub costs: Costs,
    /// Entries of a group that may be on their way at a time, as in raft-node.
    pub pipeline: usize,
    /// Operations of an entry at most, as in raft-node.
    pub largest_batch: usize,
    /// How requests come.
    pub load: Load,
    /// Whether clients take their part of the (first) machine's cores, as in a measurement on one machine.
    pub clients_share: bool,
    /// The part of requests that are reads at any member.
    pub reads: f64,
    /// The part of writes that take several locks one after the other, in the order of their groups, and how many.
    pub multi: (f64, usize),
    /// How many names there are.
    pub names: usize,
    /// How unequally they are wanted: see [`Names::new`](crate::names::Names::new).
    pub skew: f64,
    /// A machine that is lost.
    pub lost: Option<Lost>,
    /// How long before anything is counted.
    pub warmup: Nanos,
    /// For how long it is counted.
    pub measured: Nanos,
}

/// How requests come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// So many clients, each of which asks again as soon as it is answered.
    Closed {
        /// How many.
        clients: usize,
    },
    /// So many in a second, at random times, whatever becomes of those before.
    Open {
        /// How many.
        per_second: f64,
    },
}

/// A machine that is lost, and when, from the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// Which.
    pub machine: usize,
    /// When.
    pub at: Nanos,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            seed: 1,
            groups: 1,
            members: 3,
            machines: 3,
            cores: 2,
            costs: Costs::measured(),
            pipeline: 4,
            largest_batch: 512,
            load: Load::Closed { clients: 64 },
            clients_share: false,
            reads: 0.0,
            multi: (0.0, 2),
            names: 100_000,
            skew: 0.0,
            lost: None,
            warmup: SECOND / 5,
            measured: SECOND,
        }
    }
}
