//! The operations that the clients of a load repeat, independent of the protocol. `http` and `zookeeper` implement them.

/// Operation that the clients repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Acquire and release, each client its own exclusive lock, without waiting.
    Lock,
    /// Acquire and release, all clients the same exclusive lock: all but one wait.
    Contended,
    /// Acquire and release, all clients the same lock in shared mode, without waiting.
    Shared,
    /// Acquire and release, all clients the same semaphore.
    Semaphore {
        /// Number of permits.
        permits: u32,
    },
    /// Acquire and release several locks at once, each client its own.
    Multi {
        /// Number of locks.
        locks: usize,
    },
    /// Acquire several locks by one batch, and release them by another, each client its own. Only over HTTP.
    Batch {
        /// Number of locks.
        locks: usize,
    },
    /// Create a persistent znode.
    Create,
    /// Set the data of the client's own znode.
    Set,
    /// Read the data of the client's own znode.
    Get,
    /// Read or set the data of the client's own znode.
    Mixed {
        /// Percentage of reads.
        reads: u32,
    },
    /// Create and delete an ephemeral sequential znode. Only over ZooKeeper's protocol: over HTTP it is half
    /// of a lock.
    Sequential,
}

impl Workload {
    /// Returns the name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Lock => "lock",
            Workload::Contended => "contended",
            Workload::Shared => "shared",
            Workload::Semaphore { .. } => "semaphore",
            Workload::Multi { .. } => "multi",
            Workload::Batch { .. } => "batch",
            Workload::Create => "create",
            Workload::Set => "set",
            Workload::Get => "get",
            Workload::Mixed { .. } => "mixed",
            Workload::Sequential => "sequential",
        }
    }

    /// Returns whether all clients compete for one exclusive lock.
    pub fn hands_over(self) -> bool {
        self == Workload::Contended
    }

    /// Returns whether the clients acquire locks, and therefore need sessions over HTTP.
    pub fn takes_locks(self) -> bool {
        match self {
            Workload::Lock
            | Workload::Contended
            | Workload::Shared
            | Workload::Semaphore { .. }
            | Workload::Multi { .. }
            | Workload::Batch { .. } => true,
            Workload::Create
            | Workload::Set
            | Workload::Get
            | Workload::Mixed { .. }
            | Workload::Sequential => false,
        }
    }
}

/// Distribution of the reads of a mixed load. They are spread evenly, so that every hundred operations have
/// the same share and clients need no random numbers.
#[derive(Debug)]
pub struct Mix {
    reads: u32,
    credit: u32,
}

impl Mix {
    /// Creates a distribution with this percentage of reads. Clients begin at different points of the
    /// pattern.
    pub fn new(reads: u32, client: usize) -> Self {
        Self {
            reads,
            credit: (client as u32).wrapping_mul(37) % 100,
        }
    }

    /// Returns whether the next operation is a read.
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
    fn mix_has_the_requested_share_of_reads() {
        for reads in [0, 1, 50, 90, 100] {
            for client in 0..5 {
                let mut mix = Mix::new(reads, client);
                let found = (0..1000).filter(|_| mix.next_reads()).count();
                assert_eq!(found as u32, reads * 10, "{reads} {client}");
            }
        }
    }
}
