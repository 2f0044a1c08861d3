//! Bounds of callers, over HTTP and ZooKeeper's protocol. Part of the table of settings.

use lock_api::http::MAX_HTTP_PATH_BYTES;
use znode_store::{MAX_PATH_BYTES, MAX_PATH_DEPTH};

use super::{
    DefaultValue, Kind, MAX_CONNECTIONS, MAX_TIME_MS, Reload, SampleForm, Section, Setting, UNBOUNDED,
};

pub(super) const HTTP: Section = Section {
    name: "http",
    meaning: "",
    settings: &[
        Setting {
            name: "http.max_body_bytes",
            kind: Kind::Number {
                least: 1,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("65536"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Largest request body without znode data; names and notes fit many times over. A \
                larger one lets a caller occupy more memory of the node.",
        },
        Setting {
            name: "http.max_data_body_bytes",
            kind: Kind::Number {
                least: 1,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("2097152"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Largest request body with znode data: the largest data (1 MiB) in base64, and some \
                space. A smaller one bounds what a careless client can put into the log.",
        },
        Setting {
            name: "http.max_path_bytes",
            kind: Kind::Number {
                least: 1,
                most: MAX_HTTP_PATH_BYTES as u64,
            },
            default: DefaultValue::Literal("8192"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Maximum length of the path of a znode that is created over HTTP, or by lockgate \
                migrate. Longer paths that exist can be read, written and deleted.",
        },
        Setting {
            name: "http.max_path_depth",
            kind: Kind::Number {
                least: 1,
                most: MAX_HTTP_PATH_BYTES as u64 / 2,
            },
            default: DefaultValue::Literal("4096"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Maximum number of components of such a path.",
        },
        Setting {
            name: "http.max_connections",
            kind: Kind::Number {
                least: 1,
                most: MAX_CONNECTIONS,
            },
            default: DefaultValue::Literal("10000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Connections served at once; more get 503 and can go to another node. Each costs a \
                file descriptor and about 16 KiB; at its start the node raises its limit of open files for \
                them, as far as the system allows.",
        },
        Setting {
            name: "http.max_connections_per_address",
            kind: Kind::Number {
                least: 1,
                most: MAX_CONNECTIONS,
            },
            default: DefaultValue::Literal("5000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Connections of one address (of IPv6: one network of 64 bits); more get 429. Behind a \
                proxy all clients have one address.",
        },
        Setting {
            name: "http.max_large_bodies_bytes",
            kind: Kind::Number {
                least: 1,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("67108864"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Bytes of all request bodies longer than 16 KiB together; more get 503. Requests for \
                locks and sessions are shorter and do not count.",
        },
        Setting {
            name: "http.max_large_answers_bytes",
            kind: Kind::Number {
                least: 1,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("134217728"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "The same for unsent responses of more than 16 KiB.",
        },
        Setting {
            name: "http.max_waiting_calls_per_caller",
            kind: Kind::Number {
                least: 1,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("16384"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Calls of one caller that wait for locks; more get 429. Each costs some kilobytes.",
        },
        Setting {
            name: "http.header_timeout_ms",
            kind: Kind::Milliseconds { most: MAX_TIME_MS },
            default: DefaultValue::Literal("60000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Time for a request's head, and for which an idle connection is kept. A longer time \
                lets silent callers occupy connections.",
        },
        Setting {
            name: "http.first_header_timeout_ms",
            kind: Kind::Milliseconds { most: MAX_TIME_MS },
            default: DefaultValue::Literal("10000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Time for the head of a connection's first request, unless the caller has shown a \
                certificate. It keeps unknown callers from occupying connections by half a request.",
        },
        Setting {
            name: "http.body_timeout_ms",
            kind: Kind::Milliseconds { most: MAX_TIME_MS },
            default: DefaultValue::Literal("30000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Time for a request's body to arrive.",
        },
        Setting {
            name: "http.send_timeout_ms",
            kind: Kind::Milliseconds { most: MAX_TIME_MS },
            default: DefaultValue::Literal("300000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Time for a client to read what was sent, before its connection is closed: 5 minutes.",
        },
        Setting {
            name: "http.waiter_grace_ms",
            kind: Kind::Number {
                least: 0,
                most: 60_000,
            },
            default: DefaultValue::Literal("5000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Time for which a waiting caller with a request_id keeps its place after its \
                connection was cut, for the same request sent again. 0: none.",
        },
        Setting {
            name: "http.drain_timeout_ms",
            kind: Kind::Milliseconds { most: MAX_TIME_MS },
            default: DefaultValue::Literal("2000"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "After SIGTERM, the node hands leadership over, answers waiting callers, and closes \
                busy connections after this time. With the default a node has stopped within 3 s.",
        },
        Setting {
            name: "http.allowed_hosts",
            kind: Kind::List,
            default: DefaultValue::Literal("\"\""),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Names of this node in `Host`, separated by commas, beside addresses, localhost, the \
                hosts of the members and the names in the certificate: \"locks.example, *.nodes.example\", \
                or \"*\" for any. Without this check, a page in a browser could call the node by a name of \
                its own.",
        },
        Setting {
            name: "http.allowed_origins",
            kind: Kind::List,
            default: DefaultValue::Literal("\"\""),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Origins of pages on other sites that may call, separated by commas: \
                \"https://console.example\". For a proxy that shows this node under another name. Programs \
                other than browsers send no origin.",
        },
    ],
};

pub(super) const ADMIN: Section = Section {
    name: "admin",
    meaning: "",
    settings: &[Setting {
        name: "admin.max_connections",
        kind: Kind::Number {
            least: 1,
            most: MAX_CONNECTIONS,
        },
        default: DefaultValue::Literal("64"),
        sample: SampleForm::Default,
        reload: Reload::Live,
        meaning: "Connections served at once at admin_listen, of one address or of many.",
    }],
};

pub(super) const ZOOKEEPER: Section = Section {
    name: "zookeeper",
    meaning: "",
    settings: &[
        Setting {
            name: "zookeeper.max_request_bytes",
            kind: Kind::Number {
                least: 1,
                most: i32::MAX as u64,
            },
            default: DefaultValue::Literal("1048575"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Longest request of a ZooKeeper client, as jute.maxbuffer. A longer one ends its \
                connection.",
        },
        Setting {
            name: "zookeeper.max_path_bytes",
            kind: Kind::Number {
                least: 1,
                most: MAX_PATH_BYTES as u64,
            },
            default: DefaultValue::Literal("1048576"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Maximum length of the path of a znode that a ZooKeeper client creates, with the \
                digits of a sequential name. The default leaves it to max_request_bytes, as in ZooKeeper. \
                Longer paths that exist can be read, written and deleted.",
        },
        Setting {
            name: "zookeeper.max_path_depth",
            kind: Kind::Number {
                least: 1,
                most: MAX_PATH_DEPTH as u64,
            },
            default: DefaultValue::Literal("524288"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Maximum number of components of such a path. The default is as many as the longest \
                path can have.",
        },
        Setting {
            name: "zookeeper.max_connections",
            kind: Kind::Number {
                least: 1,
                most: MAX_CONNECTIONS,
            },
            default: DefaultValue::Literal("10000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Connections served at once; more are closed, and their clients try another server. \
                Each costs a file descriptor and a few KiB.",
        },
        Setting {
            name: "zookeeper.max_connections_per_address",
            kind: Kind::Number {
                least: 1,
                most: MAX_CONNECTIONS,
            },
            default: DefaultValue::Literal("5000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Connections of one address, as ZooKeeper's maxClientCnxns (which is 60).",
        },
        Setting {
            name: "zookeeper.max_outstanding",
            kind: Kind::Number {
                least: 1,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("1000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Unanswered requests of one connection; above that the node stops reading from it.",
        },
        Setting {
            name: "zookeeper.max_outstanding_bytes",
            kind: Kind::Number {
                least: 1,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("4194304"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Bytes of those requests that are not begun. Likewise.",
        },
        Setting {
            name: "zookeeper.max_large_requests_bytes",
            kind: Kind::Number {
                least: 1,
                most: UNBOUNDED,
            },
            default: DefaultValue::Literal("104857600"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Bytes of all requests of more than 16 KiB that are being received, as ZooKeeper's \
                largeRequestMaxBytes. A client that begins one more is disconnected.",
        },
        Setting {
            name: "zookeeper.handshake_timeout_ms",
            kind: Kind::Milliseconds { most: MAX_TIME_MS },
            default: DefaultValue::Literal("10000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Time for a client to request a session or a four-letter word.",
        },
        Setting {
            name: "zookeeper.send_timeout_ms",
            kind: Kind::Milliseconds { most: MAX_TIME_MS },
            default: DefaultValue::Literal("60000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Time for a client to read what was sent, before its connection is closed.",
        },
        Setting {
            name: "zookeeper.drain_timeout_ms",
            kind: Kind::Milliseconds { most: MAX_TIME_MS },
            default: DefaultValue::Literal("2000"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Time after SIGTERM in which received requests are answered.",
        },
        Setting {
            name: "zookeeper.four_letter_words",
            kind: Kind::List,
            default: DefaultValue::Literal("\"srvr\""),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Permitted four-letter words (`echo srvr | nc HOST 2181`), separated by commas; \"*\" \
                for all, \"\" for none: conf, cons, crst, dirs, dump, envi, isro, mntr, ruok, srst, srvr, \
                stat, wchc, wchp and wchs. Every process that reaches the port may send them. Most show \
                clients, their addresses and watches; crst and srst reset statistics of others; wchc, wchp \
                and dump cost work in proportion to watches and sessions.",
        },
        Setting {
            name: "zookeeper.super_digest",
            kind: Kind::Secret,
            default: DefaultValue::Literal("\"\""),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "A client with this password has all rights, whatever access control lists permit: \
                user:base64(sha1(user:password)).",
        },
    ],
};

pub(super) const REDIS: Section = Section {
    name: "redis",
    meaning: "",
    settings: &[
        Setting {
            name: "redis.prefix",
            kind: Kind::Text,
            default: DefaultValue::Literal("\"redis\""),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Where the locks of Redis clients are: the key k is the lock PREFIX/k. The same on all \
                nodes.",
        },
        Setting {
            name: "redis.redlock",
            kind: Kind::Flag,
            default: DefaultValue::Literal("false"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "For clients of Redlock that have several nodes as their servers: a node confirms, once, \
                the value that holds a lock. Two clients with one value at two nodes would then both hold the \
                lock, so every value must be unique, as Redlock demands. The same on all nodes.",
        },
        Setting {
            name: "redis.disabled_commands",
            kind: Kind::List,
            default: DefaultValue::Literal("\"\""),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Commands that are refused, separated by commas: \"FLUSHDB, FLUSHALL, KEYS\".",
        },
        Setting {
            name: "redis.max_connections",
            kind: Kind::Number {
                least: 1,
                most: MAX_CONNECTIONS,
            },
            default: DefaultValue::Literal("10000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Connections served at once; more get an error and are closed. Each costs a file \
                descriptor and a few KiB.",
        },
        Setting {
            name: "redis.max_connections_per_address",
            kind: Kind::Number {
                least: 1,
                most: MAX_CONNECTIONS,
            },
            default: DefaultValue::Literal("5000"),
            sample: SampleForm::Default,
            reload: Reload::Live,
            meaning: "Connections of one address.",
        },
    ],
};
