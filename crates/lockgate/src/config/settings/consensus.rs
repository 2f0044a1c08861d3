//! Raft, snapshots, disks and sessions. Part of the table of settings.

use raft_node::MIN_SEND_BYTES_PER_SECOND;

use super::{
    ANY, Kind, MAX_SEGMENT_BYTES, MIN_SEGMENT_BYTES, Reload, Section, Setting, Shown, Usual, YEAR_MS,
};

pub(super) const RAFT: Section = Section {
    name: "raft",
    meaning: "",
    settings: &[
        Setting {
            name: "raft.heartbeat_ms",
            kind: Kind::Milliseconds { most: YEAR_MS },
            usual: Usual::Is("60"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "How often the leader shows that it lives. An answer has to come back within the same time, so it is \
                about twice the round trip between the nodes that are farthest apart, and never less than one; \
                docs/operate/high-latency.md has a table. Shorter costs messages and gains nothing; at most a third of \
                election_min_ms.",
        },
        Setting {
            name: "raft.election_min_ms",
            kind: Kind::Milliseconds { most: YEAR_MS },
            usual: Usual::Is("300"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "A node that has heard nothing of the leader for less than this believes in \
                it, unless its address refuses connections. Shorter makes pauses of the machine or the \
                network (garbage collection elsewhere, a stalled disk, a migrating VM) look like \
                crashes. At least three times heartbeat_ms. Must be the same on all nodes.",
        },
        Setting {
            name: "raft.election_max_ms",
            kind: Kind::Milliseconds { most: YEAR_MS },
            usual: Usual::Is("600"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "After so long without a message of the leader a node asks the others, and if \
                a majority has lost it, there is a new one at once. On a busy machine the node waits longer: \
                three times the widest pause of the last minutes, and at most five times this setting. (If the leader's \
                process has died, its address says so, and nobody waits.) Halving both halves the time without a \
                leader after the loss of a machine. Also the leader's lease. Must be the same on all nodes.",
        },
    ],
};

pub(super) const SNAPSHOTS: Section = Section {
    name: "snapshots",
    meaning: "",
    settings: &[
        Setting {
            name: "snapshots.every_entries",
            kind: Kind::Number { least: 1, most: ANY },
            usual: Usual::Is("50000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "After so many log entries the state is written to a file and the log is shortened. \
                Fewer make restarts faster and write the whole state more often.",
        },
        Setting {
            name: "snapshots.every_bytes",
            kind: Kind::Number { least: 1, most: ANY },
            usual: Usual::Is("67108864"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "The same after so many bytes of log entries, or as many as the last snapshot has, if \
                that is more: so a large state is not written more often than it was changed. A restart \
                reads the snapshot and then at most about so much of the log.",
        },
        Setting {
            name: "snapshots.keep_entries",
            kind: Kind::Number { least: 0, most: ANY },
            usual: Usual::Is("5000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "At most so many entries that a snapshot covers are kept all the same, for \
                nodes that come back soon: beyond that they have to be sent the whole \
                snapshot. More take more disk. (For a node that answers and lags the log is \
                kept until it is four times as long as between two snapshots.)",
        },
        Setting {
            name: "snapshots.keep_bytes",
            kind: Kind::Number { least: 0, most: ANY },
            usual: Usual::Is("16777216"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "At most so many bytes of such entries.",
        },
        Setting {
            name: "snapshots.send_bytes_per_second",
            kind: Kind::Number {
                least: MIN_SEND_BYTES_PER_SECOND,
                most: ANY,
            },
            usual: Usual::Is("67108864"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "So many bytes per second of snapshots this node sends, to all together. More get a new \
                node ready sooner, and take network and disk from the others.",
        },
    ],
};

pub(super) const DISK: Section = Section {
    name: "disk",
    meaning: "When the disk counts as nearly full or slow. With too few healthy disks the cluster takes only \
        what gives space back.",
    settings: &[
        Setting {
            name: "disk.low_water_bytes",
            kind: Kind::Number { least: 1, most: ANY },
            usual: Usual::Is("134217728"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "With less free space, beside room for one more snapshot, the disk counts as nearly \
                full. It has to suffice for the log until the next snapshot, and for what others write to \
                the same disk meanwhile. Less risks a log that has no room at all; more takes nothing but \
                leaves more unused.",
        },
        Setting {
            name: "disk.resume_bytes",
            kind: Kind::Number { least: 1, most: ANY },
            usual: Usual::Said("a quarter more than disk.low_water_bytes"),
            sample: Shown::Example("167772160"),
            reload: Reload::Live,
            meaning: "It counts so until there is as much as this, beside the same room.",
        },
        Setting {
            name: "disk.check_interval_ms",
            kind: Kind::Milliseconds { most: YEAR_MS },
            usual: Usual::Is("500"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "How often a node looks at its disk, and the leader asks the others how theirs are.",
        },
        Setting {
            name: "disk.stall_ms",
            kind: Kind::Milliseconds { most: YEAR_MS },
            usual: Usual::Is("1000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "A write to the log that takes longer than this is a stall: a leader hands over to a \
                node whose disk is well. At least about two election timeouts, or leadership moves where \
                waiting would have been shorter.",
        },
        Setting {
            name: "disk.hand_over_pause_ms",
            kind: Kind::Milliseconds { most: YEAR_MS },
            usual: Usual::Is("10000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "After a leader has begun, or has tried to hand over, it does not hand over for so long \
                because of disks.",
        },
        Setting {
            name: "disk.segment_bytes",
            kind: Kind::Number {
                least: MIN_SEGMENT_BYTES,
                most: MAX_SEGMENT_BYTES,
            },
            usual: Usual::Is("16777216"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "How long a file of the log is; from 4194304 to 268435456. A node has at least three, \
                two of them made ahead. Smaller ones suit a small disk, larger ones change less often.",
        },
    ],
};

pub(super) const SESSIONS: Section = Section {
    name: "sessions",
    meaning: "",
    settings: &[
        Setting {
            name: "sessions.min_ms",
            kind: Kind::Milliseconds { most: YEAR_MS },
            usual: Usual::Is("2000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "The shortest timeout of a session (ttl_ms): a wish outside of the bounds is \
                moved to the nearer one. At least twice raft.election_max_ms: a failover could \
                take all of a shorter session's time.",
        },
        Setting {
            name: "sessions.max_ms",
            kind: Kind::Milliseconds { most: YEAR_MS },
            usual: Usual::Is("300000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "The longest one. A long timeout keeps a dead client's locks closed for that \
                long.",
        },
        Setting {
            name: "sessions.default_ms",
            kind: Kind::Milliseconds { most: YEAR_MS },
            usual: Usual::Is("10000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "For clients that do not say.",
        },
    ],
};

pub(super) const SWEEPS: Section = Section {
    name: "sweeps",
    meaning: "",
    settings: &[
        Setting {
            name: "sweeps.empty_for_ms",
            kind: Kind::Milliseconds { most: YEAR_MS },
            usual: Usual::Is("60000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "Containers that have had children and have none are swept after so long, and so are \
                locks that nobody uses. A short time has the same locks created again and again, a long one \
                keeps more of them in memory.",
        },
        Setting {
            name: "sweeps.every_ms",
            kind: Kind::Milliseconds { most: YEAR_MS },
            usual: Usual::Is("10000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "So often the leader looks for them, and for znodes whose ttl_ms is over: they live up \
                to so much longer.",
        },
    ],
};
