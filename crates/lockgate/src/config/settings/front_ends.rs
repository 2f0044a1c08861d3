//! Bounds of callers, over HTTP and ZooKeeper's protocol. Part of the table of settings.

use lock_api::http::MAX_HTTP_PATH_BYTES;
use znode_store::{MAX_PATH_BYTES, MAX_PATH_DEPTH};

use super::{ANY, Kind, MOST_CONNECTIONS, Reload, Section, Setting, Shown, Usual, YEAR_MS};

pub(super) const HTTP: Section = Section {
    name: "http",
    meaning: "",
    settings: &[
        Setting {
            name: "http.max_body_bytes",
            kind: Kind::Number { least: 1, most: ANY },
            usual: Usual::Is("65536"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "The largest body of a request that carries no data of a znode: names and notes fit \
                many times over. Larger ones let a caller make the node hold more memory.",
        },
        Setting {
            name: "http.max_data_body_bytes",
            kind: Kind::Number { least: 1, most: ANY },
            usual: Usual::Is("2097152"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "The largest body of a request that writes data of a znode: the largest data (1 MiB) in \
                base64, and some room. Smaller ones bound what a careless client can put into the log.",
        },
        Setting {
            name: "http.max_path_bytes",
            kind: Kind::Number {
                least: 1,
                most: MAX_HTTP_PATH_BYTES as u64,
            },
            usual: Usual::Is("8192"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "Maximum length of the path of a znode that is created over HTTP, or brought by lockgate migrate. Longer \
                paths that exist can be read, written and deleted.",
        },
        Setting {
            name: "http.max_path_depth",
            kind: Kind::Number {
                least: 1,
                most: MAX_HTTP_PATH_BYTES as u64 / 2,
            },
            usual: Usual::Is("4096"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "Maximum number of components of such a path.",
        },
        Setting {
            name: "http.max_connections",
            kind: Kind::Number {
                least: 1,
                most: MOST_CONNECTIONS,
            },
            usual: Usual::Is("10000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "So many connections are served at once; who comes then is told 503 and can go to \
                another node. Each costs a file descriptor and about 16 KiB; at its start the node raises \
                its limit of open files for them, as far as the system allows.",
        },
        Setting {
            name: "http.max_connections_per_address",
            kind: Kind::Number {
                least: 1,
                most: MOST_CONNECTIONS,
            },
            usual: Usual::Is("5000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "So many of them one address may have (of IPv6: one network of 64 bits); who comes then \
                is told 429. Behind a proxy all clients have one address.",
        },
        Setting {
            name: "http.max_large_bodies_bytes",
            kind: Kind::Number { least: 1, most: ANY },
            usual: Usual::Is("67108864"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "So many bytes the bodies of all requests may have together that are longer than 16 \
                KiB; with one more, 503. Requests for locks and sessions are shorter and do not count.",
        },
        Setting {
            name: "http.max_large_answers_bytes",
            kind: Kind::Number { least: 1, most: ANY },
            usual: Usual::Is("134217728"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "The same for answers of more than 16 KiB that are not sent yet.",
        },
        Setting {
            name: "http.header_timeout_ms",
            kind: Kind::Milliseconds { most: YEAR_MS },
            usual: Usual::Is("60000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "So long a caller may take to send a request's head, which is also how long an idle \
                connection is kept. Longer ones let silent callers occupy places.",
        },
        Setting {
            name: "http.body_timeout_ms",
            kind: Kind::Milliseconds { most: YEAR_MS },
            usual: Usual::Is("30000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "So long a caller may take to send a request's body.",
        },
        Setting {
            name: "http.send_timeout_ms",
            kind: Kind::Milliseconds { most: YEAR_MS },
            usual: Usual::Is("300000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "So long a caller may leave what was sent to it without taking it, before its \
                connection is cut: 5 minutes.",
        },
        Setting {
            name: "http.waiter_grace_ms",
            kind: Kind::Number {
                least: 0,
                most: 60_000,
            },
            usual: Usual::Is("5000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "Time for which the place of a caller that waits for a lock under a request_id is kept after its connection was \
                      cut, for the same request sent again. 0: none.",
        },
        Setting {
            name: "http.drain_timeout_ms",
            kind: Kind::Milliseconds { most: YEAR_MS },
            usual: Usual::Is("2000"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "After SIGTERM the node hands leadership over, answers those who wait, and cuts what is \
                still busy after this. With the default a node has stopped within 3 s.",
        },
        Setting {
            name: "http.allowed_hosts",
            kind: Kind::List,
            usual: Usual::Is("\"\""),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "The names by which callers may call this node (their Host), with commas between, \
                beside addresses, localhost, the hosts of the members and the names in the certificate: \
                \"locks.example, *.nodes.example\", or \"*\" for any. A page in somebody's browser could \
                else call by a name of its own that points here.",
        },
        Setting {
            name: "http.allowed_origins",
            kind: Kind::List,
            usual: Usual::Is("\"\""),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "The pages that may call from another site (their Origin), with commas between: \
                \"https://console.example\". For a proxy that shows this node under another name. Programs \
                that are no browsers send none.",
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
            most: MOST_CONNECTIONS,
        },
        usual: Usual::Is("64"),
        sample: Shown::Usual,
        reload: Reload::Live,
        meaning: "So many connections are served at once at admin_listen, of one address or of many.",
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
            usual: Usual::Is("1048575"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "The longest request of a client of ZooKeeper, as jute.maxbuffer. A longer one ends its \
                connection.",
        },
        Setting {
            name: "zookeeper.max_path_bytes",
            kind: Kind::Number {
                least: 1,
                most: MAX_PATH_BYTES as u64,
            },
            usual: Usual::Is("1048576"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "Maximum length of the path of a znode that a client of ZooKeeper creates, with the digits of a sequential \
                name. The default leaves it to max_request_bytes, as in ZooKeeper. Longer paths that exist can be read, \
                written and deleted.",
        },
        Setting {
            name: "zookeeper.max_path_depth",
            kind: Kind::Number {
                least: 1,
                most: MAX_PATH_DEPTH as u64,
            },
            usual: Usual::Is("524288"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "Maximum number of components of such a path. The default is as many as the longest path can have.",
        },
        Setting {
            name: "zookeeper.max_connections",
            kind: Kind::Number {
                least: 1,
                most: MOST_CONNECTIONS,
            },
            usual: Usual::Is("10000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "So many connections are served at once; who comes then is hung up on, and tries \
                another server. Each costs a file descriptor and a few KiB.",
        },
        Setting {
            name: "zookeeper.max_connections_per_address",
            kind: Kind::Number {
                least: 1,
                most: MOST_CONNECTIONS,
            },
            usual: Usual::Is("5000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "So many of them one address may have, as ZooKeeper's maxClientCnxns (which is 60).",
        },
        Setting {
            name: "zookeeper.max_outstanding",
            kind: Kind::Number { least: 1, most: ANY },
            usual: Usual::Is("1000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "So many requests of one connection may wait for their answers; what it sends beyond \
                that is not read meanwhile.",
        },
        Setting {
            name: "zookeeper.max_outstanding_bytes",
            kind: Kind::Number { least: 1, most: ANY },
            usual: Usual::Is("4194304"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "So many bytes those of them may have that are not begun yet. Likewise.",
        },
        Setting {
            name: "zookeeper.max_large_requests_bytes",
            kind: Kind::Number { least: 1, most: ANY },
            usual: Usual::Is("104857600"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "So many bytes all clients' requests of more than 16 KiB may have together that are \
                just being received, as ZooKeeper's largeRequestMaxBytes. Who begins one more is hung up on.",
        },
        Setting {
            name: "zookeeper.handshake_timeout_ms",
            kind: Kind::Milliseconds { most: YEAR_MS },
            usual: Usual::Is("10000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "So long a client may take to say what it wants.",
        },
        Setting {
            name: "zookeeper.send_timeout_ms",
            kind: Kind::Milliseconds { most: YEAR_MS },
            usual: Usual::Is("60000"),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "So long a client may leave what was sent to it without taking it, before its \
                connection is cut.",
        },
        Setting {
            name: "zookeeper.drain_timeout_ms",
            kind: Kind::Milliseconds { most: YEAR_MS },
            usual: Usual::Is("2000"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "After SIGTERM what clients have asked is answered for so long.",
        },
        Setting {
            name: "zookeeper.four_letter_words",
            kind: Kind::List,
            usual: Usual::Is("\"srvr\""),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "The four-letter words that are answered (`echo srvr | nc HOST 2181`), with commas \
                between; \"*\" for all, \"\" for none. There are conf, cons, crst, dirs, dump, envi, isro, \
                mntr, ruok, srst, srvr, stat, wchc, wchp and wchs. Whoever reaches the port may ask: most \
                tell who is connected, from where, and what they watch; crst and srst reset what others \
                watch over; wchc, wchp and dump cost work in proportion to watches and sessions.",
        },
        Setting {
            name: "zookeeper.super_digest",
            kind: Kind::Secret,
            usual: Usual::Is("\"\""),
            sample: Shown::Usual,
            reload: Reload::Live,
            meaning: "Whoever shows this password may do everything, whatever access control lists say: \
                user:base64(sha1(user:password)).",
        },
    ],
};
