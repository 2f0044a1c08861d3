//! Certificates, access, and the log. Part of the table of settings.

use super::{ANY, Kind, Reload, Section, Setting, Shown, Usual, YEAR_MS};

pub(super) const TLS: Section = Section {
    name: "tls",
    meaning: "Certificates: with them TLS 1.3 is all that is spoken, by clients of both kinds and between \
        nodes, but for what zookeeper_oldest_version and zookeeper_plain_listen say. docs/reference/security.md says how to come by them; `lockgate cert` makes some. Files are read again \
        when they change, or at a reload; connections that are there stay. All nodes of a cluster have TLS, or \
        none has: to change that, stop them all.",
    settings: &[
        Setting {
            name: "tls.certificate",
            kind: Kind::Path,
            usual: Usual::Is("\"\""),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "What this node shows to clients and to the other nodes. For these it has to name this \
                node: lockgate://CLUSTER/node/ID among its alternative names, and to be good for servers and \
                for clients.",
        },
        Setting {
            name: "tls.key",
            kind: Kind::Path,
            usual: Usual::Is("\"\""),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "Its private key. Nobody but its owner may have access, but for a group that reads.",
        },
        Setting {
            name: "tls.ca",
            kind: Kind::Path,
            usual: Usual::Is("\"\""),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "The authorities that sign certificates of the nodes, and of clients unless client_ca \
                is given.",
        },
        Setting {
            name: "tls.client_ca",
            kind: Kind::Path,
            usual: Usual::Is("\"\""),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "The authorities that sign certificates of clients, if they are others.",
        },
        Setting {
            name: "tls.client_certificates",
            kind: Kind::OneOf(&["optional", "required", "ignored"]),
            usual: Usual::Is("\"optional\""),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "What is asked of clients: \"optional\": who has a certificate is known by it (in \
                access control lists: scheme x509); \"required\": who has none is refused; \"ignored\": none \
                is asked for.",
        },
        Setting {
            name: "tls.zookeeper_oldest_version",
            kind: Kind::OneOf(&["1.3", "1.2"]),
            usual: Usual::Is("\"1.3\""),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "The oldest version of TLS at zookeeper_listen. ZooKeeper's own client for Java speaks 1.2 \
                alone before its version 3.9, unless zookeeper.ssl.protocol says TLSv1.3 there. With \"1.2\" \
                both are accepted, and certificates that clients show over 1.2 can be read on the way. \
                HTTP, and the nodes among themselves, speak 1.3 alone.",
        },
        Setting {
            name: "tls.peer_certificate",
            kind: Kind::Path,
            usual: Usual::Is("\"\""),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "What this node shows to the other nodes, if that is something else: so clients \
                can be shown a certificate of an authority that knows nothing of this cluster. \
                All three of peer_certificate, peer_key and peer_ca, or none.",
        },
        Setting {
            name: "tls.peer_key",
            kind: Kind::Path,
            usual: Usual::Is("\"\""),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "The private key of peer_certificate.",
        },
        Setting {
            name: "tls.peer_ca",
            kind: Kind::Path,
            usual: Usual::Is("\"\""),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "The authorities that sign certificates of the nodes, if they are others than \
                ca.",
        },
        Setting {
            name: "tls.handshake_timeout_ms",
            kind: Kind::Milliseconds { most: YEAR_MS },
            usual: Usual::Is("10000"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "So long a handshake may take.",
        },
        Setting {
            name: "tls.handshakes_at_once",
            kind: Kind::Number { least: 1, most: ANY },
            usual: Usual::Is("1024"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "So many handshakes may be begun and not finished, for each kind of clients (and at \
                most 128 of nodes); with one more the oldest gives way. Each costs some 20 kB.",
        },
    ],
};

pub(super) const ACCESS: Section = Section {
    name: "access",
    meaning: "",
    settings: &[Setting {
        name: "access.required",
        kind: Kind::Flag,
        usual: Usual::Said("true where others than this machine can call, unless `insecure` is"),
        sample: Shown::Example("false"),
        reload: Reload::Restart,
        meaning: "Whether nobody but the operator is served before the cluster is secured (`lockgate \
                access secure`, with operator.token of data_dir). From then on the cluster's roles say who \
                may do what, whatever stands here.",
    }],
};

pub(super) const LOG: Section = Section {
    name: "log",
    meaning: "",
    settings: &[
        Setting {
            name: "log.level",
            kind: Kind::Text,
            usual: Usual::Is("\"info\""),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "error, warn, info, debug or trace, or directives by module: \"info,raft_node=debug\". RUST_LOG \
                goes before it. debug and trace also tell of single connections. The libraries openraft \
                and sled log nothing unless a directive names them: \"info,openraft=warn\".",
        },
        Setting {
            name: "log.format",
            kind: Kind::OneOf(&["text", "json"]),
            usual: Usual::Is("\"text\""),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "\"text\" for people, \"json\" for programs: one object a line.",
        },
        Setting {
            name: "log.slow_ms",
            kind: Kind::Number {
                least: 0,
                most: YEAR_MS,
            },
            usual: Usual::Is("1000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "A change that takes longer from when it was asked for to its answer is logged, with where \
                the time went: until it was sent to the leader, until it was committed, while it was applied, \
                until whoever waited woke. What waits for a lock is not slow. At most twenty lines in ten \
                seconds. 0: none are.",
        },
    ],
};
