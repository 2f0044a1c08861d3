//! Certificates, access, and the log. Part of the table of settings.

use super::{DefaultValue, Kind, MAX_TIME_MS, Reload, SampleForm, Section, Setting, UNBOUNDED};

pub(super) const TLS: Section = Section {
    name: "tls",
    meaning: "Certificates. With them, nodes speak TLS 1.3 only, with clients and with each other, except \
        for zookeeper_oldest_version and zookeeper_plain_listen. docs/operate/tls.md has the procedure; \
        `lockgate cert` makes certificates. Files are read again when they change, or at a reload; open \
        connections stay. All nodes of a cluster have TLS, or none has: to change that, stop them all.",
    settings: &[
        Setting {
            name: "tls.certificate",
            kind: Kind::Path,
            default: DefaultValue::Literal("\"\""),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Certificate of this node for clients and peers. For peers it must name the node as \
                lockgate://CLUSTER/node/ID among its alternative names, and permit server and client \
                authentication.",
        },
        Setting {
            name: "tls.key",
            kind: Kind::Path,
            default: DefaultValue::Literal("\"\""),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Its private key. Only the owner may have access, and a group that reads.",
        },
        Setting {
            name: "tls.ca",
            kind: Kind::Path,
            default: DefaultValue::Literal("\"\""),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Authorities of the nodes' certificates, and of the clients' unless client_ca is \
                given.",
        },
        Setting {
            name: "tls.client_ca",
            kind: Kind::Path,
            default: DefaultValue::Literal("\"\""),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Authorities of the clients' certificates, if they differ.",
        },
        Setting {
            name: "tls.client_certificates",
            kind: Kind::OneOf(&["optional", "required", "ignored"]),
            default: DefaultValue::Literal("\"optional\""),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "\"optional\": a client with a certificate is identified by it (scheme x509 in access \
                control lists); \"required\": a client without one is rejected; \"ignored\": none is \
                requested.",
        },
        Setting {
            name: "tls.zookeeper_oldest_version",
            kind: Kind::OneOf(&["1.3", "1.2"]),
            default: DefaultValue::Literal("\"1.3\""),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Oldest version of TLS at zookeeper_listen. ZooKeeper's Java client speaks only 1.2 \
                before its version 3.9, unless its zookeeper.ssl.protocol is TLSv1.3. \"1.2\" accepts \
                both; client certificates are readable on the way in 1.2. HTTP and peers speak 1.3 only.",
        },
        Setting {
            name: "tls.peer_certificate",
            kind: Kind::Path,
            default: DefaultValue::Literal("\"\""),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Certificate of this node for peers, if it differs. Then clients can get a \
                certificate of an authority that does not know this cluster. All three of \
                peer_certificate, peer_key and peer_ca, or none.",
        },
        Setting {
            name: "tls.peer_key",
            kind: Kind::Path,
            default: DefaultValue::Literal("\"\""),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Private key of peer_certificate.",
        },
        Setting {
            name: "tls.peer_ca",
            kind: Kind::Path,
            default: DefaultValue::Literal("\"\""),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Authorities of the nodes' certificates, if they differ from ca.",
        },
        Setting {
            name: "tls.handshake_timeout_ms",
            kind: Kind::Milliseconds { most: MAX_TIME_MS },
            default: DefaultValue::Literal("10000"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Time for a handshake to complete.",
        },
        Setting {
            name: "tls.handshakes_at_once",
            kind: Kind::Number {
                least: 1,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("1024"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Unfinished handshakes, for each kind of clients (and at most 128 of nodes). With one \
                more, the oldest is dropped. Each costs some 20 kB.",
        },
    ],
};

pub(super) const ACCESS: Section = Section {
    name: "access",
    meaning: "",
    settings: &[Setting {
        name: "access.required",
        kind: Kind::Flag,
        default: DefaultValue::Described(
            "true where others than this machine can call, unless `insecure` is",
        ),
        sample: SampleForm::Example("false"),
        reload: Reload::Restart,
        meaning: "Serves nobody but the operator before the cluster is secured (`lockgate access secure`, \
            with operator.token of data_dir). Afterwards the cluster's roles decide, whatever this setting \
            is.",
    }],
};

pub(super) const LOG: Section = Section {
    name: "log",
    meaning: "",
    settings: &[
        Setting {
            name: "log.level",
            kind: Kind::Text,
            default: DefaultValue::Literal("\"info\""),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "error, warn, info, debug or trace, or directives by module: \
                \"info,raft_node=debug\". RUST_LOG takes precedence. debug and trace include single \
                connections. The libraries openraft and sled log nothing without a directive: \
                \"info,openraft=warn\".",
        },
        Setting {
            name: "log.format",
            kind: Kind::OneOf(&["text", "json"]),
            default: DefaultValue::Literal("\"text\""),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "\"text\" for people, \"json\" for programs: one object a line.",
        },
        Setting {
            name: "log.slow_ms",
            kind: Kind::Number {
                least: 0,
                most: MAX_TIME_MS,
            },
            default: DefaultValue::Literal("1000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Changes that take longer are logged with the parts of their time: until sent to the \
                leader, until committed, while applied, until the caller's task ran. A wait for a lock \
                does not count. At most twenty lines in ten seconds. 0: none.",
        },
    ],
};
