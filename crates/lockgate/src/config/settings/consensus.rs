//! Raft, snapshots, disks and sessions. Part of the table of settings.

use lock_node::MIN_SEND_BYTES_PER_SECOND;

use super::{
    DefaultValue, Kind, MAX_SEGMENT_BYTES, MAX_TIME_MS, MIN_SEGMENT_BYTES, Reload, SampleForm, Section,
    Setting, UNBOUNDED,
};

pub(super) const RAFT: Section = Section {
    name: "raft",
    meaning: "",
    settings: &[
        Setting {
            name: "raft.heartbeat_ms",
            kind: Kind::Milliseconds { most: MAX_TIME_MS },
            default: DefaultValue::Literal("60"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Interval of the leader's heartbeats. An answer must return within the same time, so \
                use about twice the round trip between the farthest nodes, and never less than one; \
                docs/operate/high-latency.md has a table. A shorter interval costs messages without a \
                gain; at most a third of election_min_ms.",
        },
        Setting {
            name: "raft.election_min_ms",
            kind: Kind::Milliseconds { most: MAX_TIME_MS },
            default: DefaultValue::Literal("300"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "A node that has heard from the leader within this time believes in it, unless the \
                leader's address refuses connections. A shorter time makes pauses of the machine or \
                network (garbage collection, a stalled disk, a migrating VM) look like crashes. At least \
                three times heartbeat_ms. Must be equal on all nodes.",
        },
        Setting {
            name: "raft.election_max_ms",
            kind: Kind::Milliseconds { most: MAX_TIME_MS },
            default: DefaultValue::Literal("600"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Time without a message of the leader after which a node asks the others; if a \
                majority has lost it, there is a new leader at once. On a busy machine the node waits \
                three times the widest pause of the last minutes, at most five times this setting. (If the \
                leader's process has died, its address refuses connections, and nobody waits.) Halving \
                both times halves the interruption after the loss of a machine. Also the leader's lease. \
                Must be equal on all nodes.",
        },
    ],
};

pub(super) const SNAPSHOTS: Section = Section {
    name: "snapshots",
    meaning: "",
    settings: &[
        Setting {
            name: "snapshots.every_entries",
            kind: Kind::Number {
                least: 1,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("50000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Log entries after which the state is written to a snapshot and the log is shortened. \
                Fewer make restarts faster and write the whole state more often.",
        },
        Setting {
            name: "snapshots.every_bytes",
            kind: Kind::Number {
                least: 1,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("67108864"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "The same by bytes of log entries, or the size of the last snapshot if that is more, \
                so that a large state is not written more often than it changes. A restart reads the \
                snapshot and about this much of the log.",
        },
        Setting {
            name: "snapshots.keep_entries",
            kind: Kind::Number {
                least: 0,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("5000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Entries kept after a snapshot, for nodes that return soon; beyond that they get the \
                whole snapshot. More take more disk. (For a node that answers but lags, the log is kept up \
                to four times the interval between two snapshots.)",
        },
        Setting {
            name: "snapshots.keep_bytes",
            kind: Kind::Number {
                least: 0,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("16777216"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "The same limit in bytes of entries.",
        },
        Setting {
            name: "snapshots.send_bytes_per_second",
            kind: Kind::Number {
                least: MIN_SEND_BYTES_PER_SECOND,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("67108864"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Rate of sending snapshots, to all nodes together. A higher rate readies a new node \
                sooner, and takes network and disk from the others.",
        },
    ],
};

pub(super) const DISK: Section = Section {
    name: "disk",
    meaning: "Thresholds of full and slow disks. With too few healthy disks the cluster is read-only.",
    settings: &[
        Setting {
            name: "disk.low_water_bytes",
            kind: Kind::Number {
                least: 1,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("134217728"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Free space below which the disk counts as nearly full, in addition to one more \
                snapshot. It must suffice for the log until the next snapshot, and for other writers to \
                the same disk. With less, the log may run out of space.",
        },
        Setting {
            name: "disk.resume_bytes",
            kind: Kind::Number {
                least: 1,
                most: UNBOUNDED,
            },
            default: DefaultValue::Described("a quarter more than disk.low_water_bytes"),
            sample: SampleForm::Example("167772160"),
            reload: Reload::Live,
            meaning: "Free space from which the disk counts as healthy again, in addition to the same \
                snapshot.",
        },
        Setting {
            name: "disk.check_interval_ms",
            kind: Kind::Milliseconds { most: MAX_TIME_MS },
            default: DefaultValue::Literal("500"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Interval of the disk check, and of the leader's questions about the others' disks.",
        },
        Setting {
            name: "disk.stall_ms",
            kind: Kind::Milliseconds { most: MAX_TIME_MS },
            default: DefaultValue::Literal("1000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "A longer write to the log is a stall: a leader hands over to a node with a healthy \
                disk. At least about two election timeouts, or leadership moves when waiting would be \
                shorter.",
        },
        Setting {
            name: "disk.hand_over_pause_ms",
            kind: Kind::Milliseconds { most: MAX_TIME_MS },
            default: DefaultValue::Literal("10000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Time after the start of a leader's term, or after an attempt to hand over, in which \
                it does not hand over because of disks.",
        },
        Setting {
            name: "disk.segment_bytes",
            kind: Kind::Number {
                least: MIN_SEGMENT_BYTES,
                most: MAX_SEGMENT_BYTES,
            },
            default: DefaultValue::Literal("16777216"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Size of a log file, 4194304 to 268435456. A node has at least three, two of them \
                made ahead. Smaller ones suit a small disk, larger ones change less often.",
        },
    ],
};

pub(super) const SESSIONS: Section = Section {
    name: "sessions",
    meaning: "",
    settings: &[
        Setting {
            name: "sessions.min_ms",
            kind: Kind::Milliseconds { most: MAX_TIME_MS },
            default: DefaultValue::Literal("2000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Shortest session timeout (ttl_ms); a request outside the bounds is moved to the \
                nearer one. At least twice raft.election_max_ms: a failover could take all of a shorter \
                session's time.",
        },
        Setting {
            name: "sessions.max_ms",
            kind: Kind::Milliseconds { most: MAX_TIME_MS },
            default: DefaultValue::Literal("300000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Longest session timeout. With a long timeout, a dead client's locks stay held that \
                long.",
        },
        Setting {
            name: "sessions.default_ms",
            kind: Kind::Milliseconds { most: MAX_TIME_MS },
            default: DefaultValue::Literal("10000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Session timeout of clients that request none.",
        },
    ],
};

pub(super) const LEASES: Section = Section {
    name: "leases",
    meaning: "",
    settings: &[Setting {
        name: "leases.max_ms",
        kind: Kind::Milliseconds { most: MAX_TIME_MS },
        default: DefaultValue::Literal("86400000"),
        sample: SampleForm::Default,
        reload: Reload::Live,
        meaning: "Longest time to live of a lease (ttl_ms of an acquire without a session). The shortest is \
            sessions.min_ms; a request outside the bounds is moved to the nearer one.",
    }],
};

pub(super) const SWEEPS: Section = Section {
    name: "sweeps",
    meaning: "",
    settings: &[
        Setting {
            name: "sweeps.empty_for_ms",
            kind: Kind::Milliseconds { most: MAX_TIME_MS },
            default: DefaultValue::Literal("60000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Time after which empty containers that have had children, and unused locks, are \
                removed. A short time creates the same locks again and again, a long one keeps more of \
                them in memory.",
        },
        Setting {
            name: "sweeps.every_ms",
            kind: Kind::Milliseconds { most: MAX_TIME_MS },
            default: DefaultValue::Literal("10000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Interval at which the leader looks for them, and for znodes whose ttl_ms is over: \
                they live up to this much longer.",
        },
    ],
};
