//! The operations that the clients of a load repeat, independent of the protocol. `http` and `zookeeper` implement them.

/// What the clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Acquire and release, each its own exclusive lock: nobody waits.
    Lock,
    /// All the same: all but one wait.
    Contended,
    /// All the same, shared: nobody waits.
    Shared,
    /// All the same semaphore, of so many permits: the others wait.
    Semaphore {
        /// How many hold it at a time.
        permits: u32,
    },
    /// Each so many locks of its own at once.
    Multi {
        /// How many.
        locks: usize,
    },
    /// One more persistent znode.
    Create,
    /// New data for the client's own znode.
    Set,
    /// The data of the client's own znode.
    Get,
    /// Some of them read the client's own znode, and the others write it.
    Mixed {
        /// How many of a hundred read.
        reads: u32,
    },
    /// An ephemeral sequential znode, created and deleted. Only over ZooKeeper's protocol: over HTTP it is half of a lock.
    Sequential,
}

impl Workload {
    /// As it is called on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Lock => "lock",
            Workload::Contended => "contended",
            Workload::Shared => "shared",
            Workload::Semaphore { .. } => "semaphore",
            Workload::Multi { .. } => "multi",
            Workload::Create => "create",
            Workload::Set => "set",
            Workload::Get => "get",
            Workload::Mixed { .. } => "mixed",
            Workload::Sequential => "sequential",
        }
    }

    /// Whether all want one lock that only one of them can have.
    pub fn hands_over(self) -> bool {
        self == Workload::Contended
    }

    /// Whether it takes locks, and so needs sessions over HTTP.
    pub fn takes_locks(self) -> bool {
        match self {
            Workload::Lock
            | Workload::Contended
            | Workload::Shared
            | Workload::Semaphore { .. }
            | Workload::Multi { .. } => true,
            Workload::Create
            | Workload::Set
            | Workload::Get
            | Workload::Mixed { .. }
            | Workload::Sequential => false,
        }
    }
}

/// Which operations of a mixed load read: spread evenly, so that every hundred are alike and no client needs random numbers.
#[derive(Debug)]
pub struct Mix {
    reads: u32,
    credit: u32,
}

impl Mix {
    /// So many of a hundred read. Clients begin at different places of the pattern.
    pub fn new(reads: u32, client: usize) -> Self {
        Self {
            reads,
            credit: (client as u32).wrapping_mul(37) % 100,
        }
    }

    /// Whether the next one reads.
    pub fn next_reads(&mut self) -> bool {
        self.credit += self.reads;
        let reads = self.credit >= 100;
        if reads {
            self.credit -= 100;
        }
        reads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_what_it_is_said_to_be() {
        for reads in [0, 1, 50, 90, 100] {
            for client in 0..5 {
                let mut mix = Mix::new(reads, client);
                let found = (0..1000).filter(|_| mix.next_reads()).count();
                assert_eq!(found as u32, reads * 10, "{reads} {client}");
            }
        }
    }
}
