//! Identity, data directory and addresses of the node. Part of the table of settings.

use super::{DefaultValue, Kind, MAX_TIME_MS, MAX_WORKERS, Reload, SampleForm, Section, Setting};

pub(super) const NODE: Section = Section {
    name: "",
    meaning: "",
    settings: &[
        Setting {
            name: "node_id",
            kind: Kind::NodeId,
            default: DefaultValue::Required,
            sample: SampleForm::Set("{N}"),
            reload: Reload::Restart,
            meaning: "Id of this node. Never give an id to another node, nor to the same node after the \
                loss of its disk: its peers would trust votes and entries that are gone. \"hostname\": one \
                more than the number at the end of this machine's name, so that pod lockgate-0 is node 1.",
        },
        Setting {
            name: "cluster",
            kind: Kind::Text,
            default: DefaultValue::Literal("\"lockgate\""),
            sample: SampleForm::Set("\"sample\""),
            reload: Reload::Restart,
            meaning: "Name of the cluster. Peers of another name are rejected, so that two clusters never \
                mix. It cannot be changed later.",
        },
        Setting {
            name: "join",
            kind: Kind::Flag,
            default: DefaultValue::Literal("false"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Joins an existing cluster: the node waits until a member adds it (`lockgate member \
                add`). It needs an id that was never used and an empty data_dir; the members below need to \
                name only itself. Without effect once it has joined.",
        },
        Setting {
            name: "data_dir",
            kind: Kind::Path,
            default: DefaultValue::Literal("\"data\""),
            sample: SampleForm::Set("\"data/node-{N}\""),
            reload: Reload::Restart,
            meaning: "Directory of the log, the vote and the snapshots. What a node has acknowledged is on \
                this disk, and its fdatasync is about half of the time of a write: a slow disk makes slow \
                locks.",
        },
        Setting {
            name: "http_listen",
            kind: Kind::Address,
            default: DefaultValue::Described("this node's own http address in members"),
            sample: SampleForm::Example("\"127.0.0.1:740{N}\""),
            reload: Reload::Restart,
            meaning: "Address for HTTP. 0.0.0.0:7400 serves other machines, with [tls] below: without it, \
                a node that other machines can reach does not start.",
        },
        Setting {
            name: "zookeeper_listen",
            kind: Kind::AddressOrOff,
            default: DefaultValue::Described("port 2181 on the host of http_listen"),
            sample: SampleForm::Set("\"127.0.0.1:218{N}\""),
            reload: Reload::Restart,
            meaning: "Address for ZooKeeper clients (Curator, kazoo, zkCli and others), or \"off\". Nodes \
                on one host need different ports.",
        },
        Setting {
            name: "zookeeper_plain_listen",
            kind: Kind::AddressOrOff,
            default: DefaultValue::Literal("\"off\""),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Address for ZooKeeper clients without TLS, while zookeeper_listen has TLS, so that \
                clients can move one by one (ZooKeeper: clientPort and secureClientPort). Only with [tls]. \
                Traffic is readable on the way. If other machines can reach it, tokens and the superuser's \
                password are rejected unless `insecure` is true.",
        },
        Setting {
            name: "redis_listen",
            kind: Kind::AddressOrOff,
            default: DefaultValue::Literal("\"off\""),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Address for programs that take their locks from Redis: \"127.0.0.1:6379\". It serves \
                locks only (docs/clients/redis.md). With [tls] it has TLS.",
        },
        Setting {
            name: "admin_listen",
            kind: Kind::AddressOrOff,
            default: DefaultValue::Literal("\"off\""),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Address that serves the same HTTP again for operators, with connections that clients \
                cannot use up, under any load. Best on the node's own machine: \"127.0.0.1:7600\".",
        },
        Setting {
            name: "peer_listen",
            kind: Kind::SocketAddress,
            default: DefaultValue::Described("this node's own peer address in members"),
            sample: SampleForm::Example("\"127.0.0.1:750{N}\""),
            reload: Reload::Restart,
            meaning: "Address for the other nodes. Without [tls], every process that reaches it can act as \
                a peer.",
        },
        Setting {
            name: "workers",
            kind: Kind::Number {
                least: 1,
                most: MAX_WORKERS,
            },
            default: DefaultValue::Described(
                "1 on machines with up to 2 cores, else as many as there are cores, at most 4",
            ),
            sample: SampleForm::Example("1"),
            reload: Reload::Restart,
            meaning: "Threads of the server. One thread avoids hand-overs and is fastest on small \
                machines; more help if many connections keep it busy, and cost latency.",
        },
        Setting {
            name: "pid_file",
            kind: Kind::Path,
            default: DefaultValue::Described("none"),
            sample: SampleForm::Example("\"data/node-{N}.pid\""),
            reload: Reload::Restart,
            meaning: "File with the process id, locked while the process lives, so that tools never \
                mistake another process for the node.",
        },
        Setting {
            name: "propose_timeout_ms",
            kind: Kind::Milliseconds { most: MAX_TIME_MS },
            default: DefaultValue::Literal("10000"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Commit timeout of a proposed write; then the client gets `outcome_unknown`. A short \
                time shows a failover as errors instead of a pause. At least raft.election_max_ms.",
        },
        Setting {
            name: "insecure",
            kind: Kind::Flag,
            default: DefaultValue::Literal("false"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Starts without [tls] where other machines can reach the node, and serves everybody \
                before the cluster is secured. Every process that reaches the node can then change \
                everything and read all traffic. Same as `lockgate serve --insecure`.",
        },
    ],
};
