//! The list of workloads: what each is called, what it is for, and what a run of it has to show.

use std::sync::Arc;

use super::Workload;
use super::access::Rights;
use super::exactly_once::ExactlyOnce;
use super::fenced::{Fenced, Fences};
use super::locks::{Locks, Mix};
use super::recipe::Recipe;
use super::register::Register;
use super::sessions::Sessions;
use super::set::Set;
use super::unique_ids::UniqueIds;
use super::watches::Watches;
use crate::client::Freshness;
use crate::systems::{ALL as EVERY, System};

/// Enough that faults meet calls under way: runs below it prove little.
const LEAST_RATE: f64 = 300.0;

/// A workload that can be run.
pub struct Kind {
    /// As it is called on the command line.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub about: &'static str,
    /// A run that must be found wrong, because something is left out on purpose: it shows that the checker sees.
    pub control: bool,
    /// Below so many successful calls in a second before the faults a run is invalid.
    pub least_rate: f64,
    /// Which systems can do it.
    pub systems: &'static [System],
    make: fn(System) -> Arc<dyn Workload>,
}

impl Kind {
    /// A fresh run of it.
    pub fn make(&self, system: System) -> Arc<dyn Workload> {
        (self.make)(system)
    }
}

/// All of them.
pub fn all() -> &'static [Kind] {
    ALL
}

/// The one of this name.
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
        about: "control: reads of what the asked node knows are not linearizable, and are caught",
        control: true,
        least_rate: LEAST_RATE,
        systems: EVERY,
        make: |system| Arc::new(Register::new(system, Freshness::Local)),
    },
    Kind {
        name: "set",
        about: "nothing that was appended is lost, doubled or invented",
        control: false,
        least_rate: LEAST_RATE,
        systems: EVERY,
        make: |system| Arc::new(Set::new(system)),
    },
    Kind {
        name: "unique-ids",
        about: "numbers of sequential znodes are given once and rise, also after deletions",
        control: false,
        least_rate: LEAST_RATE,
        systems: EVERY,
        make: |system| Arc::new(UniqueIds::new(system)),
    },
    Kind {
        name: "exclusive",
        about: "one holder at a time, in order of arrival, with tokens that rise; clients die and give up",
        control: false,
        least_rate: LEAST_RATE,
        systems: &[System::Lockgate],
        make: |_| Arc::new(Locks::new(Mix::Exclusive)),
    },
    Kind {
        name: "recipe",
        about: "exclusive locks as each system's own client takes them: no two of them believe that they hold",
        control: false,
        least_rate: LEAST_RATE / 2.0,
        systems: EVERY,
        make: |system| Arc::new(Recipe::new(system)),
    },
    Kind {
        name: "shared",
        about: "readers together, writers alone, nobody overtaken",
        control: false,
        least_rate: LEAST_RATE,
        systems: &[System::Lockgate],
        make: |_| Arc::new(Locks::new(Mix::Shared)),
    },
    Kind {
        name: "semaphore",
        about: "never more permits than there are, and none is lost",
        control: false,
        least_rate: LEAST_RATE,
        systems: &[System::Lockgate],
        make: |_| Arc::new(Locks::new(Mix::Semaphore)),
    },
    Kind {
        name: "fenced",
        about: "a register that checks fencing tokens loses no update, whoever is paused",
        control: false,
        least_rate: LEAST_RATE,
        systems: &[System::Lockgate],
        make: |_| Arc::new(Fenced::new(Fences::Checked)),
    },
    Kind {
        name: "unfenced",
        about: "control: a register that does not check them loses updates, and that is seen",
        control: true,
        least_rate: LEAST_RATE,
        systems: &[System::Lockgate],
        make: |_| Arc::new(Fenced::new(Fences::Ignored)),
    },
    Kind {
        name: "sessions",
        about: "who was confirmed lives, who is silent ends, and nothing of the dead is left",
        control: false,
        least_rate: LEAST_RATE,
        systems: &[System::Lockgate],
        make: |_| Arc::new(Sessions::new()),
    },
    Kind {
        name: "watches",
        about: "each watch tells once, in time, and nothing is passed over in silence",
        control: false,
        least_rate: LEAST_RATE,
        systems: &[System::Lockgate],
        make: |_| Arc::new(Watches::new()),
    },
    Kind {
        name: "exactly-once",
        about: "what is sent again under its request id is done once, and answered the same",
        control: false,
        least_rate: LEAST_RATE,
        systems: &[System::Lockgate],
        make: |_| Arc::new(ExactlyOnce::new()),
    },
    Kind {
        name: "access",
        about: "a right that is taken away is gone at once, at every node",
        control: false,
        least_rate: LEAST_RATE,
        systems: &[System::Lockgate],
        make: |_| Arc::new(Rights::new()),
    },
];
