//! Limits and admission control. Part of the table of settings.

use znode_store::MAX_DATA_BYTES;

use super::{ANY, Kind, Reload, Section, Setting, Shown, TEN_YEARS_MS, Usual, YEAR_MS};

pub(super) const LIMITS: Section = Section {
    name: "limits",
    meaning: "How much there may be of what in the tree. What the leader says holds in the whole cluster \
        from shortly after its election, so it should be the same on all nodes. What is beyond a new limit \
        already stays; only more is refused.",
    settings: &[
        Setting {
            name: "limits.data_bytes",
            kind: Kind::Number {
                least: 1,
                most: MAX_DATA_BYTES as u64,
            },
            usual: Usual::Is("1048575"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "The most data of one znode in bytes, at most 1048575 as in ZooKeeper. All of it \
                travels and is stored with every write of it: large znodes make everybody wait.",
        },
        Setting {
            name: "limits.children",
            kind: Kind::Number {
                least: 1,
                most: u32::MAX as u64,
            },
            usual: Usual::Is("1000000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "The most children of one znode, the contenders of a lock among them. Each takes some \
                250 bytes of memory.",
        },
        Setting {
            name: "limits.ephemerals",
            kind: Kind::Number {
                least: 1,
                most: u32::MAX as u64,
            },
            usual: Usual::Is("100000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "The most ephemeral znodes of one session; each place in a lock is one. All of them go \
                in one step when it ends: this many hold everybody else up for some 40 ms.",
        },
        Setting {
            name: "limits.sessions",
            kind: Kind::Number {
                least: 1,
                most: u32::MAX as u64,
            },
            usual: Usual::Is("100000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "The most sessions at a time. One of many requests takes up to 40 KB of memory, for its \
                last outcomes are remembered.",
        },
    ],
};

pub(super) const WATCHES: Section = Section {
    name: "watches",
    meaning: "How much this node keeps for those who watch.",
    settings: &[
        Setting {
            name: "watches.per_watcher",
            kind: Kind::Number {
                least: 1,
                most: u32::MAX as u64,
            },
            usual: Usual::Is("100000"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "The most watches of one client that stays connected. (A long poll over HTTP is a \
                client with one watch.) A watch on a path of more than 1 KiB counts once for each KiB begun, here and in \
                the next two settings.",
        },
        Setting {
            name: "watches.per_node",
            kind: Kind::Number {
                least: 1,
                most: u32::MAX as u64,
            },
            usual: Usual::Is("1000000"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "The most watches of all clients together. This many take some 40 MB, and as much again \
                if all are at different paths.",
        },
        Setting {
            name: "watches.backlog",
            kind: Kind::Number { least: 1, most: ANY },
            usual: Usual::Is("100000"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "So many notices wait for a client that does not read them, some 3 MB; with one more it \
                loses its watches.",
        },
    ],
};

pub(super) const EVENTS: Section = Section {
    name: "events",
    meaning: "How much this node keeps for those who follow the events of a session (GET \
        /v1/sessions/{session}/events).",
    settings: &[
        Setting {
            name: "events.backlog",
            kind: Kind::Number { least: 1, most: ANY },
            usual: Usual::Is("32768"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "So many events of all sessions together are kept for those who come back, to this node \
                or from another one. Whoever comes back later than that is told how things stand instead of \
                what has happened.",
        },
        Setting {
            name: "events.backlog_bytes",
            kind: Kind::Number { least: 1, most: ANY },
            usual: Usual::Is("16777216"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "So much memory they take at most: 16 MiB.",
        },
        Setting {
            name: "events.streams_per_session",
            kind: Kind::Number { least: 1, most: ANY },
            usual: Usual::Is("8"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "The most streams of one session at this node.",
        },
        Setting {
            name: "events.streams_per_node",
            kind: Kind::Number { least: 1, most: ANY },
            usual: Usual::Is("10000"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "The most streams of all sessions at this node.",
        },
    ],
};

pub(super) const LOAD: Section = Section {
    name: "load",
    meaning: "How much this node takes in for the cluster. What is beyond that is refused at once, before it \
        is in the log: 503 with Retry-After over HTTP; a client of ZooKeeper is not listened to for so long. \
        Heartbeats, releases, withdrawals and the ends of sessions have places of their own.",
    settings: &[
        Setting {
            name: "load.target_ms",
            kind: Kind::Milliseconds { most: YEAR_MS },
            usual: Usual::Is("250"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "So long a request should take at most. While all take longer, fewer are taken in. More \
                lets requests wait for longer before any is refused; it should stay a small part of the \
                shortest session.",
        },
        Setting {
            name: "load.max_outstanding",
            kind: Kind::Number { least: 1, most: ANY },
            usual: Usual::Is("10000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "So many requests that want something new may be on their way to the log at most, and \
                four times as many of the others.",
        },
        Setting {
            name: "load.max_outstanding_bytes",
            kind: Kind::Number { least: 1, most: ANY },
            usual: Usual::Is("67108864"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "So many bytes those of each kind may have together.",
        },
        Setting {
            name: "load.session_openings_per_second",
            kind: Kind::Number {
                least: 1,
                most: u32::MAX as u64,
            },
            usual: Usual::Is("1000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "So many sessions are opened in a second at this node in the long run; one more is told \
                503. Each is a commit.",
        },
        Setting {
            name: "load.session_openings_at_once",
            kind: Kind::Number {
                least: 1,
                most: u32::MAX as u64,
            },
            usual: Usual::Is("20000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "So many are opened at once after a rest.",
        },
        Setting {
            name: "load.session_openings_share",
            kind: Kind::Number {
                least: 1,
                most: u32::MAX as u64,
            },
            usual: Usual::Is("2"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "One address may have one in so many of both; one more is told 429.",
        },
    ],
};

pub(super) const HISTORY: Section = Section {
    name: "history",
    meaning: "What this node remembers of who held which lock, for `lockgate history`. Nothing depends on \
        it: its directory, `history` in the data directory, can be deleted while the node does not run, and \
        that is all that is lost then.",
    settings: &[
        Setting {
            name: "history.enabled",
            kind: Kind::Flag,
            usual: Usual::Is("true"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "false: nothing is remembered here.",
        },
        Setting {
            name: "history.records",
            kind: Kind::Number { least: 1, most: ANY },
            usual: Usual::Is("50000"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "So many holds that are over are remembered, of all locks together, the newest. This \
                many take some 12 MB of memory and 20 to 60 MB of disk, the more the fewer of them end at a \
                time.",
        },
        Setting {
            name: "history.max_age_ms",
            kind: Kind::Milliseconds { most: TEN_YEARS_MS },
            usual: Usual::Is("604800000"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "What ended longer ago is forgotten: 7 days.",
        },
        Setting {
            name: "history.cache_bytes",
            kind: Kind::Number { least: 1, most: ANY },
            usual: Usual::Is("4194304"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "So much of the disk's contents is kept in memory. A larger cache makes long pages of \
                old records faster, and nothing else.",
        },
    ],
};
