//! Limits and admission control. Part of the table of settings.

use znode_store::MAX_DATA_BYTES;

use super::{DefaultValue, Kind, MAX_AGE_MS, MAX_TIME_MS, Reload, SampleForm, Section, Setting, UNBOUNDED};

pub(super) const LIMITS: Section = Section {
    name: "limits",
    meaning: "Limits of the tree. The leader's values apply to the whole cluster shortly after its \
        election, so use the same on all nodes. Existing items above a new limit stay; new ones are \
        rejected.",
    settings: &[
        Setting {
            name: "limits.data_bytes",
            kind: Kind::Number {
                least: 1,
                most: MAX_DATA_BYTES as u64,
            },
            default: DefaultValue::Literal("1048575"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Data of one znode in bytes, at most 1048575 as in ZooKeeper. Each write sends and \
                stores all of it: large znodes delay everybody.",
        },
        Setting {
            name: "limits.children",
            kind: Kind::Number {
                least: 1,
                most: u32::MAX as u64,
            },
            default: DefaultValue::Literal("1000000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Children of one znode, contenders of a lock included. Each takes some 250 bytes of \
                memory.",
        },
        Setting {
            name: "limits.ephemerals",
            kind: Kind::Number {
                least: 1,
                most: u32::MAX as u64,
            },
            default: DefaultValue::Literal("100000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Ephemeral znodes of one session; each contender is one. The end of a session removes \
                500 of them in each log entry.",
        },
        Setting {
            name: "limits.sessions",
            kind: Kind::Number {
                least: 1,
                most: u32::MAX as u64,
            },
            default: DefaultValue::Literal("100000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Sessions. A session with many requests takes up to 40 KB of memory, because its last \
                outcomes are remembered.",
        },
    ],
};

pub(super) const WATCHES: Section = Section {
    name: "watches",
    meaning: "Limits of this node's watches.",
    settings: &[
        Setting {
            name: "watches.per_watcher",
            kind: Kind::Number {
                least: 1,
                most: u32::MAX as u64,
            },
            default: DefaultValue::Literal("100000"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Watches of one connected client. (A long poll over HTTP is a client with one watch.) \
                A watch on a path of more than 1 KiB counts once for each KiB begun, here and in the next \
                two settings.",
        },
        Setting {
            name: "watches.per_node",
            kind: Kind::Number {
                least: 1,
                most: u32::MAX as u64,
            },
            default: DefaultValue::Literal("1000000"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Watches of all clients together. One million takes some 40 MB, and as much again if \
                all are at different paths.",
        },
        Setting {
            name: "watches.backlog",
            kind: Kind::Number {
                least: 1,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("100000"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Queued notifications of a client that does not read them, some 3 MB. With one more \
                it loses its watches.",
        },
    ],
};

pub(super) const EVENTS: Section = Section {
    name: "events",
    meaning: "Events kept by this node for streams of session events (GET /v1/sessions/{session}/events) \
        and for the event feed.",
    settings: &[
        Setting {
            name: "events.backlog",
            kind: Kind::Number {
                least: 1,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("32768"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Events of all locks and sessions kept for reconnecting clients, of this node or another \
                one, and for the event feed (GET /v1/events), which shows the latest 8192 of them. A client that \
                reconnects later gets the current state instead.",
        },
        Setting {
            name: "events.backlog_bytes",
            kind: Kind::Number {
                least: 1,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("16777216"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Memory of these events: 16 MiB.",
        },
        Setting {
            name: "events.streams_per_session",
            kind: Kind::Number {
                least: 1,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("8"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Streams of one session at this node.",
        },
        Setting {
            name: "events.streams_per_node",
            kind: Kind::Number {
                least: 1,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("10000"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Streams of all sessions at this node.",
        },
    ],
};

pub(super) const LOAD: Section = Section {
    name: "load",
    meaning: "Load shedding at this node. Requests above a limit are rejected before they are in the log: \
        503 with Retry-After over HTTP; the node stops reading from ZooKeeper clients for a while. \
        Heartbeats, releases, withdrawals and ends of sessions have separate permits.",
    settings: &[
        Setting {
            name: "load.target_ms",
            kind: Kind::Milliseconds { most: MAX_TIME_MS },
            default: DefaultValue::Literal("250"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Target time of a request. While requests take longer, fewer are admitted. A \
                longer time lets requests wait longer before any is rejected; keep it a small part of the \
                shortest session.",
        },
        Setting {
            name: "load.max_outstanding",
            kind: Kind::Number {
                least: 1,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("10000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "New requests in progress; four times as many of the others.",
        },
        Setting {
            name: "load.max_outstanding_bytes",
            kind: Kind::Number {
                least: 1,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("67108864"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Bytes of the requests in progress, of each kind.",
        },
        Setting {
            name: "load.session_openings_per_second",
            kind: Kind::Number {
                least: 1,
                most: u32::MAX as u64,
            },
            default: DefaultValue::Literal("1000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Sessions opened per second at this node, sustained; more get 503. Each is a commit.",
        },
        Setting {
            name: "load.session_openings_at_once",
            kind: Kind::Number {
                least: 1,
                most: u32::MAX as u64,
            },
            default: DefaultValue::Literal("20000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Sessions opened at once after a pause.",
        },
        Setting {
            name: "load.session_openings_share",
            kind: Kind::Number {
                least: 1,
                most: u32::MAX as u64,
            },
            default: DefaultValue::Literal("2"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "One address may use one part in this many of both; more gets 429.",
        },
        Setting {
            name: "load.large_writes_kib_per_second",
            kind: Kind::Number {
                least: 1,
                most: u32::MAX as u64,
            },
            default: DefaultValue::Literal("4096"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Data of one caller's writes of 16 KiB or more per second, in KiB, while other callers send \
                commands to this node. Further large writes wait. Machines with more cores and faster disks can take more.",
        },
    ],
};

pub(super) const HISTORY: Section = Section {
    name: "history",
    meaning: "Lock history of this node, for `lockgate history`. Nothing depends on it: its directory, \
        `history` in the data directory, can be deleted while the node does not run, and only the history \
        is lost.",
    settings: &[
        Setting {
            name: "history.enabled",
            kind: Kind::Flag,
            default: DefaultValue::Literal("true"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Keeps a lock history at this node.",
        },
        Setting {
            name: "history.records",
            kind: Kind::Number {
                least: 1,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("50000"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Ended holds kept, of all locks together; the locks with the most lose their oldest. 50000 take some 12 MB of \
                memory and 20 to 60 MB of disk; more if few end at a time.",
        },
        Setting {
            name: "history.max_age_ms",
            kind: Kind::Milliseconds { most: MAX_AGE_MS },
            default: DefaultValue::Literal("604800000"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Age after which a record is removed: 7 days.",
        },
        Setting {
            name: "history.cache_bytes",
            kind: Kind::Number {
                least: 1,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("4194304"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Memory cache of the records on disk. A larger cache makes long pages of old records \
                faster.",
        },
    ],
};
