//! Identity, data directory and addresses of the node. Part of the table of settings.

use super::{Kind, MAX_WORKERS, Reload, Section, Setting, Shown, Usual, YEAR_MS};

pub(super) const NODE: Section = Section {
    name: "",
    meaning: "",
    settings: &[
        Setting {
            name: "node_id",
            kind: Kind::NodeId,
            usual: Usual::Required,
            sample: Shown::Set("{N}"),
            reload: Reload::Restart,
            meaning: "This node. Never give a node's id to another node, nor to the same \
                one after it has lost its disk: its peers would take the votes and entries \
                that the old one had promised to keep for granted. \"hostname\": the number at \
                the end of this machine's name and one more, so that pod lockgate-0 is node 1.",
        },
        Setting {
            name: "cluster",
            kind: Kind::Text,
            usual: Usual::Is("\"lockgate\""),
            sample: Shown::Set("\"sample\""),
            reload: Reload::Restart,
            meaning: "The cluster's name. Peers of another name are refused, so that two clusters that meet \
                by a wrong address do not mix. It cannot be changed later.",
        },
        Setting {
            name: "join",
            kind: Kind::Flag,
            usual: Usual::Is("false"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "Whether this node joins a cluster that exists: it forms none, and waits until a member \
                adds it (`lockgate cluster add`). It gets an id that was never used, and an empty data_dir; \
                of the members below only itself has to be named. Once it has joined this has no effect.",
        },
        Setting {
            name: "data_dir",
            kind: Kind::Path,
            usual: Usual::Is("\"data\""),
            sample: Shown::Set("\"data/node-{N}\""),
            reload: Reload::Restart,
            meaning: "Where the log, the vote and the snapshots are kept. What a node has acknowledged is on \
                this disk, and the time of its fdatasync is about half of the time of a write: a slow disk \
                makes slow locks.",
        },
        Setting {
            name: "http_listen",
            kind: Kind::Address,
            usual: Usual::Said("this node's own http address in members"),
            sample: Shown::Example("\"127.0.0.1:740{N}\""),
            reload: Reload::Restart,
            meaning: "Where to listen for HTTP. Give 0.0.0.0:7400 to be reached from elsewhere, with [tls] \
                below: without it a node does not start where others than its own machine can call it.",
        },
        Setting {
            name: "zookeeper_listen",
            kind: Kind::AddressOrOff,
            usual: Usual::Said("port 2181 on the host of http_listen"),
            sample: Shown::Set("\"127.0.0.1:218{N}\""),
            reload: Reload::Restart,
            meaning: "Where to listen for clients of ZooKeeper: Curator, kazoo, zkCli and all \
                others. \"off\": nowhere. Nodes that share a host need a port each.",
        },
        Setting {
            name: "zookeeper_plain_listen",
            kind: Kind::AddressOrOff,
            usual: Usual::Is("\"off\""),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "Where to listen for clients of ZooKeeper without TLS, while zookeeper_listen has TLS, so \
                that clients can move from one port to the other one by one (ZooKeeper: clientPort beside \
                secureClientPort). Only with [tls]. What is said here can be read on the way. Where others \
                than this machine can call it, tokens and the superuser's password are refused here unless \
                `insecure` is true.",
        },
        Setting {
            name: "admin_listen",
            kind: Kind::AddressOrOff,
            usual: Usual::Is("\"off\""),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "Where to serve the same HTTP once more, for the people and programs that look after \
                the cluster: with places of its own, which clients cannot take, and answered under any load. \
                Best on the node's own machine: \"127.0.0.1:7600\".",
        },
        Setting {
            name: "peer_listen",
            kind: Kind::SocketAddress,
            usual: Usual::Said("this node's own peer address in members"),
            sample: Shown::Example("\"127.0.0.1:750{N}\""),
            reload: Reload::Restart,
            meaning: "Where to listen for the other nodes. Without [tls] whoever reaches it can speak as a \
                peer.",
        },
        Setting {
            name: "workers",
            kind: Kind::Number {
                least: 1,
                most: MAX_WORKERS,
            },
            usual: Usual::Said(
                "1 on machines with up to 2 cores, else as many as there are cores, at most 4",
            ),
            sample: Shown::Example("1"),
            reload: Reload::Restart,
            meaning: "Threads that serve. One thread does everything without handing over and is the fastest on \
                small machines; more help where many connections keep it busy, and cost latency.",
        },
        Setting {
            name: "pid_file",
            kind: Kind::Path,
            usual: Usual::Said("none"),
            sample: Shown::Example("\"data/node-{N}.pid\""),
            reload: Reload::Restart,
            meaning: "This file is locked for as long as the process lives and holds its process id, so that \
                a program that looks after nodes never mistakes a stranger's process for a node.",
        },
        Setting {
            name: "propose_timeout_ms",
            kind: Kind::Milliseconds { most: YEAR_MS },
            usual: Usual::Is("10000"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "So long a proposed write may go without an outcome; the caller then learns that the \
                outcome is unknown. A short time shows a failover as errors instead of as a pause. At least \
                raft.election_max_ms.",
        },
        Setting {
            name: "insecure",
            kind: Kind::Flag,
            usual: Usual::Is("false"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "Whether to start without [tls] where others than this machine can call, and to serve \
                everybody there who calls before the cluster is secured: whoever reaches the node can then \
                do everything, and read everything on its way. `lockgate serve --insecure` says the same.",
        },
    ],
};
