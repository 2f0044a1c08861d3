//! List of workloads with the name, purpose and minimum rate of each.

use std::sync::Arc;

use super::Workload;
use super::access::Rights;
use super::exactly_once::ExactlyOnce;
use super::fenced::{Fenced, Fences};
use super::leases::Leases;
use super::locks::{Locks, Mix};
use super::queued::Queued;
use super::recipe::Recipe;
use super::redis::RedisLocks;
use super::register::Register;
use super::sessions::Sessions;
use super::set::Set;
use super::unique_ids::UniqueIds;
use super::watches::Watches;
use crate::client::Freshness;
use crate::systems::{ALL as EVERY, System};

/// Minimum rate at which faults interrupt calls in flight; slower runs prove little.
const LEAST_RATE: f64 = 300.0;

/// Kind of workload.
pub struct Kind {
    /// Name on the command line.
    pub name: &'static str,
    /// Description in one sentence.
    pub about: &'static str,
    /// Control run that must be found wrong because it omits something on purpose: it proves that the checker
    /// works.
    pub control: bool,
    /// Minimum of successful calls per second before the faults; a slower run is invalid.
    pub least_rate: f64,
    /// Systems that support the workload.
    pub systems: &'static [System],
    make: fn(System) -> Arc<dyn Workload>,
}

impl Kind {
    /// Creates a run of the workload.
    pub fn make(&self, system: System) -> Arc<dyn Workload> {
        (self.make)(system)
    }
}

/// Returns all kinds.
pub fn all() -> &'static [Kind] {
    ALL
}

/// Returns the kind with this name.
pub fn named(name: &str) -> Option<&'static Kind> {
    ALL.iter().find(|kind| kind.name == name)
}

static ALL: &[Kind] = &[
    Kind {
        name: "register",
        about: "reads, writes and writes by version are linearizable",
        control: false,
        least_rate: LEAST_RATE,
        systems: EVERY,
        make: |system| Arc::new(Register::new(system, Freshness::Linearizable)),
    },
    Kind {
        name: "register-stale",
        about: "control: local reads are not linearizable, which the checker must detect",
        control: true,
        least_rate: LEAST_RATE,
        systems: EVERY,
        make: |system| Arc::new(Register::new(system, Freshness::Local)),
    },
    Kind {
        name: "set",
        about: "no appended value is lost, duplicated or invented",
        control: false,
        least_rate: LEAST_RATE,
        systems: EVERY,
        make: |system| Arc::new(Set::new(system)),
    },
    Kind {
        name: "unique-ids",
        about: "numbers of sequential znodes are unique and increase, also after deletions",
        control: false,
        least_rate: LEAST_RATE,
        systems: EVERY,
        make: |system| Arc::new(UniqueIds::new(system)),
    },
    Kind {
        name: "exclusive",
        about: "one holder at a time, in order of arrival, with increasing tokens; clients crash and time out",
        control: false,
        least_rate: LEAST_RATE,
        systems: &[System::Lockgate],
        make: |_| Arc::new(Locks::new(Mix::Exclusive)),
    },
    Kind {
        name: "recipe",
        about: "exclusive locks through each system's own client: no two clients believe that they hold one",
        control: false,
        least_rate: LEAST_RATE / 2.0,
        systems: EVERY,
        make: |system| Arc::new(Recipe::new(system)),
    },
    Kind {
        name: "redis",
        about: "locks of Redis clients: no two believe that they hold one, and no late release takes another's",
        control: false,
        least_rate: LEAST_RATE / 3.0,
        systems: &[System::Lockgate],
        make: |_| Arc::new(RedisLocks::new()),
    },
    Kind {
        name: "shared",
        about: "readers share, writers are exclusive, no contender is overtaken",
        control: false,
        least_rate: LEAST_RATE,
        systems: &[System::Lockgate],
        make: |_| Arc::new(Locks::new(Mix::Shared)),
    },
    Kind {
        name: "semaphore",
        about: "the limit of permits is never exceeded, and no permit is lost",
        control: false,
        least_rate: LEAST_RATE,
        systems: &[System::Lockgate],
        make: |_| Arc::new(Locks::new(Mix::Semaphore)),
    },
    Kind {
        name: "fenced",
        about: "a register that checks fencing tokens loses no update, even if holders are paused",
        control: false,
        least_rate: LEAST_RATE,
        systems: &[System::Lockgate],
        make: |_| Arc::new(Fenced::new(Fences::Checked)),
    },
    Kind {
        name: "unfenced",
        about: "control: a register that ignores fencing tokens loses updates, which the checker must detect",
        control: true,
        least_rate: LEAST_RATE,
        systems: &[System::Lockgate],
        make: |_| Arc::new(Fenced::new(Fences::Ignored)),
    },
    Kind {
        name: "leases",
        about: "a lease lasts as promised, within the bounds of its hold, and its repeated requests have one effect",
        control: false,
        least_rate: LEAST_RATE / 1.5,
        systems: &[System::Lockgate],
        make: |_| Arc::new(Leases::new()),
    },
    Kind {
        name: "queued",
        about: "a place in the queue without a connection lasts as long as its lease or session, and keeps its order",
        control: false,
        least_rate: LEAST_RATE / 1.5,
        systems: &[System::Lockgate],
        make: |_| Arc::new(Queued::new()),
    },
    Kind {
        name: "sessions",
        about: "a renewed session lives, a silent session expires, and none of its znodes remain",
        control: false,
        least_rate: LEAST_RATE,
        systems: &[System::Lockgate],
        make: |_| Arc::new(Sessions::new()),
    },
    Kind {
        name: "watches",
        about: "each watch fires once and in time, and no change is missed without notice",
        control: false,
        least_rate: LEAST_RATE,
        systems: &[System::Lockgate],
        make: |_| Arc::new(Watches::new()),
    },
    Kind {
        name: "exactly-once",
        about: "a request that is repeated with its request id is executed once, with the same response",
        control: false,
        least_rate: LEAST_RATE,
        systems: &[System::Lockgate],
        make: |_| Arc::new(ExactlyOnce::new()),
    },
    Kind {
        name: "access",
        about: "a revoked permission is denied at once, at every node",
        control: false,
        least_rate: LEAST_RATE,
        systems: &[System::Lockgate],
        make: |_| Arc::new(Rights::new()),
    },
];
