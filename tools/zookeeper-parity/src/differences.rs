//! Deliberate differences from ZooKeeper: each has a name, a reason, and if possible a program that shows it.
//! This is the source of `docs/reference/zookeeper-differences.md`, and the list of what the generator avoids: comments
//! there name the entry.

use std::fmt::Write;

use crate::program::{QUOTA_ROOT, Step};
use crate::wire::{AclEntry, CreateCall, Request};

/// A deliberate difference.
pub struct KnownDifference {
    /// Name, which comments in the code refer to.
    pub name: &'static str,
    /// Behaviour of ZooKeeper 3.8.
    pub zookeeper: &'static str,
    /// Behaviour of Lockgate.
    pub lockgate: &'static str,
    /// Reason of the difference.
    pub reason: &'static str,
    /// Steps that show it; `None` if no program can show it, in which case the texts are enough.
    pub example: Option<fn() -> Vec<Step>>,
}

/// Section of the table.
pub struct Section {
    /// Title of the section.
    pub title: &'static str,
    /// Entries of the section.
    pub known: &'static [KnownDifference],
}

/// All sections.
pub const SECTIONS: [Section; 7] = [TREE, RIGHTS, QUOTAS, WATCHES, ENSEMBLE, REQUESTS, WORDS];

const TREE: Section = Section {
    title: "The tree",
    known: &[
        KnownDifference {
            name: "zxids",
            zookeeper: "The upper half of a zxid is the epoch of its leader, the lower half is a counter.",
            lockgate: "A zxid is one number that increases with every command, across all leaders.",
            reason: "Clients only compare zxids. One counter never overflows; ZooKeeper's lower half does \
                     after 2³² changes, which forces an election.",
            example: None,
        },
        KnownDifference {
            name: "sequence-numbers",
            zookeeper: "The counter of a parent has 32 bits: after 2,147,483,647 creations its sequential \
                        children get negative numbers.",
            lockgate: "Numbers continue up to 9,999,999,999. Then sequential creates are rejected until the \
                       parent is created anew.",
            reason: "Recipes compare numbers as texts of ten digits. A negative number, or one of eleven \
                     digits, would put the newest before the oldest, and a lock would have two holders.",
            example: None,
        },
        KnownDifference {
            name: "limits",
            zookeeper: "The children of a znode, the ephemeral znodes of a session and the sessions are \
                        limited only by memory.",
            lockgate: "All of them have configurable limits. The ephemeral znodes of a session with paths \
                       above 1,024 bytes are limited to the number whose paths fit into 16 MiB. Paths can be \
                       given lower limits than that of a request (`jute.maxbuffer`), which is the same: \
                       `zookeeper.max_path_bytes`, `zookeeper.max_path_depth`. A multi has at most 5,000 \
                       operations. The items of a multiRead are refused after 5,000 items or 4 MiB of \
                       results. A request above a limit is rejected, and the connection stays open.",
            reason: "A single client must not be able to exhaust the memory of every replica, or to block it \
                     while a session ends.",
            example: None,
        },
        KnownDifference {
            name: "characters",
            zookeeper: "Characters beyond U+FFFF are rejected in paths, because Java stores them as two \
                        surrogates, which are not characters.",
            lockgate: "They are allowed.",
            reason: "The surrogates are forbidden, not the characters. Java's client does not send them \
                     anyway.",
            example: Some(|| vec![create(0, "/p/\u{1f600}")]),
        },
        KnownDifference {
            name: "order",
            zookeeper: "Names of children, paths of ephemeral znodes, and the deletions when a session ends \
                        have the order of a hash table.",
            lockgate: "Names and paths are sorted, and a session's znodes are deleted in the order of their \
                       creation.",
            reason: "What has no defined order in ZooKeeper may have any order.",
            example: None,
        },
        KnownDifference {
            name: "locks",
            zookeeper: "`/locks` is an ordinary path.",
            lockgate: "It is the parent of the locks of all clients. Znodes that Curator and kazoo create \
                       there are contenders of those locks. Ephemeral znodes with names of the lock protocol \
                       can be created and written only by that protocol; any client may delete them, which \
                       ends the contender.",
            reason: "Their data contains the number of permits that they hold. A client that could forge it \
                     could hold more permits than there are.",
            example: None,
        },
    ],
};

const RIGHTS: Section = Section {
    title: "Rights",
    known: &[
        KnownDifference {
            name: "acl-schemes",
            zookeeper: "Without further configuration an ACL supports the schemes `world`, `auth`, `digest` \
                        and `ip`, the last one for IPv4 only.",
            lockgate: "`x509` and IPv6 addresses are supported as well. `token` is a scheme of `addauth` only: roles refer to \
                tokens, ACLs do not.",
            reason: "The state machine evaluates ACLs in the same way on all replicas, independent of their \
                     configuration.",
            example: Some(|| {
                vec![
                    create_with(0, "/p/a", acl(31, "x509", "CN=client")),
                    create_with(0, "/p/b", acl(31, "ip", "::1")),
                ]
            }),
        },
        KnownDifference {
            name: "acl-ids",
            zookeeper: "Numbers in an address are anything that Java parses as a number, as in `127.0.00.1` \
                        and `127.0.0.+1`, and colons after the hash of a `digest` are ignored when the ACL \
                        is set.",
            lockgate: "Such an ACL is invalid.",
            reason: "Other programs read a leading zero as a different number, and a permission should not \
                     go to an address that the reader does not expect. An id with trailing colons matches no \
                     client.",
            example: Some(|| {
                vec![
                    create_with(0, "/p/a", acl(31, "ip", "127.0.00.1")),
                    create_with(0, "/p/b", acl(31, "digest", "a:b:")),
                ]
            }),
        },
        KnownDifference {
            name: "acl-size",
            zookeeper: "An ACL may be as long as a request.",
            lockgate: "The texts of an ACL have at most 16 KiB.",
            reason: "See `limits`.",
            example: Some(|| {
                vec![create_with(
                    0,
                    "/p/a",
                    acl(31, "digest", &format!("{}:x", "a".repeat(17_000))),
                )]
            }),
        },
    ],
};

const QUOTAS: Section = Section {
    title: "Quotas",
    known: &[
        KnownDifference {
            name: "hard-quotas",
            zookeeper: "Hard limits reject nothing unless every server was started with `enforceQuota`.",
            lockgate: "They are always enforced. Soft limits cause a warning in the log, as in ZooKeeper.",
            reason: "An operator that sets a hard limit expects it to be enforced.",
            example: None,
        },
        KnownDifference {
            name: "quota-in-multi",
            zookeeper: "Each operation of a multi is compared with the usage before the multi. Together they \
                        can exceed a hard limit.",
            lockgate: "Each operation is compared with the usage after the operations before it.",
            reason: "A hard limit must not be exceeded.",
            example: Some(|| {
                let mut steps = quota("/p", "count=-1,bytes=-1=;countHardLimit=2");
                steps.push(call(0, Request::Multi(vec![plain("/p/a"), plain("/p/b")])));
                steps
            }),
        },
        KnownDifference {
            name: "malformed-quotas",
            zookeeper: "With malformed limits every write below them fails with a marshalling error, and so \
                        it does with malformed usage. Without limits, malformed usage stops the server.",
            lockgate: "A malformed number is no limit, and malformed usage counts from zero.",
            reason: "A client that writes to a znode must not be able to stop the service.",
            example: Some(|| {
                let mut steps = quota("/p", "nonsense");
                steps.push(create(0, "/p/a"));
                steps
            }),
        },
        KnownDifference {
            name: "blank-names-in-quotas",
            zookeeper: "The search for the quota of a path ignores components of blanks: `/a/ /b` is counted \
                        as `/a/b`.",
            lockgate: "They are ordinary components.",
            reason: "This is a bug of ZooKeeper.",
            example: Some(|| {
                let mut steps = vec![create(0, "/p/a")];
                steps.extend(quota("/p/a", "count=-1,bytes=-1=;countHardLimit=1"));
                steps.extend([create(0, "/p/ "), create(0, "/p/ /a")]);
                steps
            }),
        },
    ],
};

const WATCHES: Section = Section {
    title: "Watches",
    known: &[
        KnownDifference {
            name: "kinds-of-watches",
            zookeeper: "A client has at most one kind of watch on a path: setting a standard watch removes \
                        its persistent one, and vice versa (ZOOKEEPER-4466).",
            lockgate: "The kinds are independent.",
            reason: "Two parts of a program that share a connection must not disturb each other. ZooKeeper \
                     3.9 has fixed this.",
            example: Some(|| {
                vec![
                    create(0, "/p/a"),
                    call(
                        0,
                        Request::AddWatch {
                            path: "/p/a".to_owned(),
                            mode: 0,
                        },
                    ),
                    call(
                        0,
                        Request::GetData {
                            path: "/p/a".to_owned(),
                            watch: true,
                        },
                    ),
                    set(0, "/p/a"),
                    set(0, "/p/a"),
                ]
            }),
        },
        KnownDifference {
            name: "watcher-types",
            zookeeper: "Removing the data watches of a path removes one half of a persistent watch, and \
                        removing its child watches the other half (ZOOKEEPER-4471, ZOOKEEPER-4472). There \
                        are no types for persistent watches.",
            lockgate: "A removal ends the watches of its type only; `Any` ends them all. Persistent and \
                       recursive watches have types of their own.",
            reason: "As for `kinds-of-watches`.",
            example: Some(|| {
                vec![
                    call(
                        0,
                        Request::AddWatch {
                            path: "/p/a".to_owned(),
                            mode: 0,
                        },
                    ),
                    call(
                        0,
                        Request::RemoveWatches {
                            path: "/p/a".to_owned(),
                            kind: 2,
                        },
                    ),
                ]
            }),
        },
        KnownDifference {
            name: "check-watches",
            zookeeper: "`checkWatches` succeeds if any client watches the path.",
            lockgate: "It succeeds if the caller watches the path.",
            reason: "The request is about the caller's watches.",
            example: Some(|| {
                vec![
                    Step::Open { session: 1 },
                    call(
                        1,
                        Request::Exists {
                            path: "/p/a".to_owned(),
                            watch: true,
                        },
                    ),
                    call(
                        0,
                        Request::CheckWatches {
                            path: "/p/a".to_owned(),
                            kind: 2,
                        },
                    ),
                ]
            }),
        },
        KnownDifference {
            name: "zxids-of-notifications",
            zookeeper: "A notification of a watch has the zxid -1. Since 3.9 it has the zxid of the change.",
            lockgate: "It has the zxid of the change.",
            reason: "Clients of 3.9 rely on it, and older ones ignore it.",
            example: None,
        },
        KnownDifference {
            name: "watch-limits",
            zookeeper: "The number of watches is unlimited.",
            lockgate: "A client has at most 100,000 watches, a node 1,000,000; both limits are configurable.",
            reason: "See `limits`.",
            example: None,
        },
    ],
};

const ENSEMBLE: Section = Section {
    title: "Sessions and the ensemble",
    known: &[
        KnownDifference {
            name: "session-timeouts",
            zookeeper: "A session's timeout is between 2 and 20 ticks, by default 4 to 40 s. Spark and \
                        Curator request 60 s and get 40 s.",
            lockgate: "It is between 2 and 300 s: Spark and Curator get the 60 s that they request, and the \
                       znodes of a dead client disappear after 60 s. `sessions.min_ms = 4000` and \
                       `sessions.max_ms = 40000` are ZooKeeper's bounds.",
            reason: "Clients learn their timeout, and most request the one that they want. The bounds apply \
                     to HTTP sessions as well. There are no ticks: a session ends when its timeout expires, \
                     not at the next tick.",
            example: None,
        },
        KnownDifference {
            name: "configuration",
            zookeeper: "`/zookeeper/config` lists the servers of the ensemble, for `config` of `zkCli.sh` \
                        and for `getConfig`, with their ports for each other and, if configured so, for \
                        clients. Curator then connects to the latter.",
            lockgate: "It lists the members, with their peer and HTTP ports in place of ZooKeeper's two, and \
                       without ports for clients: a client continues to use its own addresses. `version` is \
                       the position of the membership in the log. The znode's stat and its watches show no \
                       changes, and over HTTP it is empty: use `GET /v1/cluster` instead.",
            reason: "Only a member itself knows its ZooKeeper address, and Curator would replace good \
                     addresses by bad ones.",
            example: None,
        },
        KnownDifference {
            name: "reconfig",
            zookeeper: "`reconfig` changes the ensemble, if every server is configured to allow it.",
            lockgate: "It is rejected as by a ZooKeeper that does not allow it. Members are added and \
                       removed by `lockgate cluster` and over HTTP.",
            reason: "A new member is distinguished from an earlier one by its data directory, which \
                     `reconfig` cannot express.",
            example: None,
        },
        KnownDifference {
            name: "read-only-mode",
            zookeeper: "A server without a majority serves reads to clients that accept this, if it is \
                        configured so. `isro` then returns `ro`.",
            lockgate: "A node without a majority serves no client, and `isro` never returns `ro`.",
            reason: "Such a read could be older than a write that the same client has seen through another \
                     node.",
            example: None,
        },
        KnownDifference {
            name: "sasl",
            zookeeper: "Clients can authenticate by SASL, if the server is configured for it.",
            lockgate: "There is no SASL. Clients authenticate by a certificate, or with `addauth` by a token \
                       or a digest.",
            reason: "Kerberos is another system to operate. A certificate proves as much.",
            example: None,
        },
        KnownDifference {
            name: "tls-versions",
            zookeeper: "TLS is 1.2 by default before version 3.9, and 1.3 since.",
            lockgate: "TLS is 1.3, and 1.2 only at the port for ZooKeeper clients and if \
                       `tls.zookeeper_oldest_version` is \"1.2\".",
            reason: "TLS 1.2 shows client certificates to readers of the network. Older clients can be configured for 1.3, \
                     or use the setting.",
            example: None,
        },
        KnownDifference {
            name: "certificates",
            zookeeper: "TLS certificates may be of X.509 version 1.",
            lockgate: "Only version 3 is accepted. A node with another certificate does not start, and logs \
                       the reason.",
            reason: "A version 1 certificate cannot restrict its use, so each could sign for others.",
            example: None,
        },
    ],
};

const REQUESTS: Section = Section {
    title: "Malformed requests",
    known: &[
        KnownDifference {
            name: "illegal-paths",
            zookeeper: "An illegal path is detected after other errors: a create first fails with an invalid \
                        ACL, a missing parent, or missing permissions.",
            lockgate: "A request with an illegal path is rejected as such. To read or delete an illegal path \
                       finds no node, as in ZooKeeper.",
            reason: "The path is validated once, before anything else.",
            example: Some(|| vec![create(0, "/p/missing//a")]),
        },
        KnownDifference {
            name: "create-flags",
            zookeeper: "`createContainer` with the flags of another kind creates a container, with a \
                        sequence number if the flags say so. `createTTL` without a time to live stops the \
                        server.",
            lockgate: "`createContainer` creates a container, and `createTTL` requires a time to live.",
            reason: "No client sends this.",
            example: Some(|| vec![call(0, create_call(CreateCall::Container, "/p/a", 2))]),
        },
        KnownDifference {
            name: "ttl-flags-in-multi",
            zookeeper: "In a multi, `create` with the flags of a TTL node makes the whole multi fail with a \
                        marshalling error.",
            lockgate: "That operation fails with bad arguments, as it does alone, and the multi with it.",
            reason: "This is a bug of ZooKeeper.",
            example: Some(|| {
                vec![call(
                    0,
                    Request::Multi(vec![create_call(CreateCall::Create, "/p/a", 5)]),
                )]
            }),
        },
        KnownDifference {
            name: "lone-check",
            zookeeper: "A successful `check` outside of a multi ends the thread that sends replies: the \
                        server then answers no client any more.",
            lockgate: "It is rejected as not implemented, and the connection is closed.",
            reason: "Clients do not have this request. (No program shows it, since nothing could be compared \
                     afterwards.)",
            example: None,
        },
        KnownDifference {
            name: "wrong-password",
            zookeeper: "An attempt to resume a session with a wrong password closes the session's current \
                        connection.",
            lockgate: "It is rejected, and the session's connection stays open.",
            reason: "A client without the password must not be able to disturb the session.",
            example: None,
        },
    ],
};

const WORDS: Section = Section {
    title: "Four-letter words",
    known: &[
        KnownDifference {
            name: "unsupported-words",
            zookeeper: "`gtmk` and `stmk` show and set the trace mask, `hash` shows digests of the tree.",
            lockgate: "They are not supported: the connection is closed, as after any unknown four bytes.",
            reason: "`[log]` configures the logs, and replicas compare their states by other means.",
            example: None,
        },
        KnownDifference {
            name: "words-whitelist",
            zookeeper: "`srvr` is answered regardless of the whitelist.",
            lockgate: "Only the words in `four_letter_words` are answered. The default is `srvr`.",
            reason: "An operator can disable all words.",
            example: None,
        },
        KnownDifference {
            name: "omitted-lines",
            zookeeper: "`mntr` has about five hundred lines, `srvr` and `stat` of a leader contain the sizes \
                        of proposals, `conf` the ensemble and `tickTime`, `envi` Java and its memory.",
            lockgate: "These are omitted. `mntr` has the version, latencies, packets, connections, znodes \
                       and their sizes, watches, sessions, files and followers under ZooKeeper's names.",
            reason: "A figure is shown if Lockgate has its subject. Other metrics are at `GET /metrics`, and \
                     the members at `GET /v1/cluster`.",
            example: None,
        },
        KnownDifference {
            name: "words-node-count",
            zookeeper: "The root is counted twice in `Node count` and `zk_znode_count`.",
            lockgate: "It is counted once.",
            reason: "It exists once.",
            example: None,
        },
        KnownDifference {
            name: "words-watches",
            zookeeper: "`wchs`, `wchc` and `wchp` show data and existence watches; child watches are only \
                        counted, by `mntr`.",
            lockgate: "They show all watches. Waiting HTTP calls have the session `0x0`, and a persistent \
                       watch counts once.",
            reason: "They help to find the cause of a notification.",
            example: None,
        },
        KnownDifference {
            name: "words-dump",
            zookeeper: "`dump` shows when each connection expires.",
            lockgate: "It shows the connections without an expiry.",
            reason: "Sessions expire, and connections end with them.",
            example: None,
        },
    ],
};

/// Returns the page for users.
pub fn markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    for Section { title, known } in &SECTIONS {
        write!(page, "\n## {title}\n").expect("a String takes everything");
        for known in *known {
            write!(page, "\n### {}\n\n", known.name).expect("a String takes everything");
            bullet(&mut page, "**ZooKeeper:**", known.zookeeper);
            bullet(&mut page, "**Lockgate:**", known.lockgate);
            bullet(&mut page, "**Why:**", known.reason);
        }
    }
    page
}

/// Appends an item of a list, wrapped like the other pages.
fn bullet(page: &mut String, title: &str, text: &str) {
    let mut line = format!("- {title}");
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > LINE {
            page.push_str(&line);
            page.push('\n');
            line = format!("  {word}");
        } else {
            line.push(' ');
            line.push_str(word);
        }
    }
    page.push_str(&line);
    page.push('\n');
}

/// Maximum length of a line of the page.
const LINE: usize = 118;

const INTRODUCTION: &str = "\
# Differences from ZooKeeper

Lockgate's tree, access control lists, quotas and watches have the semantics of ZooKeeper 3.8. `tools/zookeeper-parity`
verifies this: random programs run against the state machine and against a real ZooKeeper, over its own protocol. They
must give the same results, the same stats and the same notifications in the same order. This page lists the deliberate
differences. Each entry that a program can show has one in `tools/zookeeper-parity/src/differences.rs`, and a test
checks that the difference still exists.

<!-- Generated by `zookeeper-parity --differences` from the table in the file named above. -->
";

fn call(session: usize, request: Request) -> Step {
    Step::Call { session, request }
}

fn acl(perms: i32, scheme: &str, id: &str) -> Option<Vec<AclEntry>> {
    Some(vec![AclEntry {
        perms,
        scheme: scheme.to_owned(),
        id: id.to_owned(),
    }])
}

fn create_call(call: CreateCall, path: &str, flags: i32) -> Request {
    Request::Create {
        call,
        path: path.to_owned(),
        data: None,
        acl: acl(31, "world", "anyone"),
        flags,
    }
}

fn plain(path: &str) -> Request {
    create_call(CreateCall::Create, path, 0)
}

fn create(session: usize, path: &str) -> Step {
    call(session, plain(path))
}

fn create_with(session: usize, path: &str, acl: Option<Vec<AclEntry>>) -> Step {
    call(
        session,
        Request::Create {
            call: CreateCall::Create,
            path: path.to_owned(),
            data: None,
            acl,
            flags: 0,
        },
    )
}

fn set(session: usize, path: &str) -> Step {
    call(
        session,
        Request::SetData {
            path: path.to_owned(),
            data: None,
            version: -1,
        },
    )
}

/// Returns the creation of a quota, as by ZooKeeper's shell.
fn quota(subtree: &str, limits: &str) -> Vec<Step> {
    let with_data = |path: String, data: &str| {
        let mut request = plain(&path);
        if let Request::Create { data: of, .. } = &mut request {
            *of = Some(data.to_owned().into());
        }
        call(0, request)
    };
    let mut steps = Vec::new();
    let mut path = QUOTA_ROOT.to_owned();
    for name in subtree.split('/').skip(1) {
        path = format!("{path}/{name}");
        steps.push(create(0, &path));
    }
    steps.push(with_data(format!("{path}/zookeeper_limits"), limits));
    steps.push(with_data(format!("{path}/zookeeper_stats"), "count=0,bytes=0"));
    steps
}
