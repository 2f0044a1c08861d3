//! What differs from ZooKeeper on purpose: each thing has a name, a reason, and if it can be shown, a program that
//! shows it. This is the source of `docs/zookeeper-differences.md`, and the list of what the generator keeps away
//! from: places there name the entry.

use std::fmt::Write;

use crate::program::{QUOTA_ROOT, Step};
use crate::wire::{AclEntry, CreateCall, Request};

/// A deliberate difference.
pub struct Known {
    /// How the code calls it.
    pub name: &'static str,
    /// What ZooKeeper 3.8 does.
    pub zookeeper: &'static str,
    /// What Lockgate does.
    pub lockgate: &'static str,
    /// Why.
    pub reason: &'static str,
    /// Steps that show it; none if it cannot be shown by a program, and then `reason` or `zookeeper` says enough.
    pub example: Option<fn() -> Vec<Step>>,
}

/// A part of the table.
pub struct Chapter {
    /// What it is about.
    pub title: &'static str,
    /// Its entries.
    pub known: &'static [Known],
}

/// All of them.
pub const CHAPTERS: [Chapter; 7] = [TREE, RIGHTS, QUOTAS, WATCHES, ENSEMBLE, REQUESTS, WORDS];

const TREE: Chapter = Chapter {
    title: "The tree",
    known: &[
        Known {
            name: "zxids",
            zookeeper: "The upper half of a zxid is the epoch of its leader, the lower half counts.",
            lockgate: "A zxid is one number that counts up for every command, over all leaders.",
            reason: "Clients compare zxids and nothing else. One counter never runs over, which ZooKeeper's lower \
                     half does after 2³² changes, and then costs an election.",
            example: None,
        },
        Known {
            name: "sequence-numbers",
            zookeeper: "The counter of a parent has 32 bits: after 2,147,483,647 creations its sequential children \
                        get negative numbers.",
            lockgate: "Numbers go on to 9,999,999,999. Then a sequential create is refused until the parent is \
                       made anew.",
            reason: "Recipes compare numbers as texts of ten digits. A negative number, or one of eleven digits, \
                     would put the newest before the oldest, and two would hold one lock.",
            example: None,
        },
        Known {
            name: "limits",
            zookeeper: "Children of a znode, ephemeral znodes of a session and sessions are as many as fit into the \
                        memory.",
            lockgate: "They have limits that are configured. A session has at most as many ephemeral znodes before \
                       it creates one at a path of more than 1,024 bytes as could have paths of that length in \
                       16 MiB. Paths can be given lower limits than those of a request (`jute.maxbuffer`), which \
                       are the same: `zookeeper.max_path_bytes`, `zookeeper.max_path_depth`. What is beyond a \
                       limit is refused, and the connection stays.",
            reason: "One client must not be able to make every replica run out of memory, or stand still while a \
                     session ends.",
            example: None,
        },
        Known {
            name: "characters",
            zookeeper: "Characters beyond U+FFFF are refused in paths, because Java keeps them as two halves that \
                        are no characters.",
            lockgate: "They are allowed.",
            reason: "The halves are forbidden, not the characters. Java's client does not send them anyway.",
            example: Some(|| vec![create(0, "/p/\u{1f600}")]),
        },
        Known {
            name: "order",
            zookeeper: "Names of children, paths of ephemeral znodes, and the deletions when a session ends come in \
                        the order of a hash table.",
            lockgate: "Names and paths are sorted, and what a session owned goes in the order in which it came.",
            reason: "What has no order in ZooKeeper may have any.",
            example: None,
        },
        Known {
            name: "locks",
            zookeeper: "`/locks` is a path as any other.",
            lockgate: "Below it live the locks of all clients. What Curator and kazoo create there are contenders of \
                       those locks. Ephemeral znodes whose names are those that the lock protocol itself gives can \
                       be created and written by it alone; anybody may delete them, which ends the contender.",
            reason: "Their data says how many permits they hold. Who could forge that could hold more than there is.",
            example: None,
        },
    ],
};

const RIGHTS: Chapter = Chapter {
    title: "Rights",
    known: &[
        Known {
            name: "acl-schemes",
            zookeeper: "Without further configuration an ACL knows the schemes `world`, `auth`, `digest` and `ip`, \
                        the last one for IPv4 alone.",
            lockgate: "`x509`, `token` (see zookeeper.md) and addresses of IPv6 are known, too.",
            reason: "The state machine decides about ACLs on all replicas alike, and cannot ask how one of them \
                     was configured.",
            example: Some(|| {
                vec![
                    create_with(0, "/p/a", acl(31, "x509", "CN=client")),
                    create_with(0, "/p/b", acl(31, "ip", "::1")),
                ]
            }),
        },
        Known {
            name: "acl-ids",
            zookeeper: "Numbers in an address are whatever Java takes for a number, as in `127.0.00.1` and \
                        `127.0.0.+1`, and colons after the hash of a `digest` are passed over when the ACL is set.",
            lockgate: "Such an ACL is invalid.",
            reason: "Elsewhere a leading zero makes another number of it, and a right should not be given to \
                     whoever a reader does not think of. An id with colons at its end matches nobody.",
            example: Some(|| {
                vec![
                    create_with(0, "/p/a", acl(31, "ip", "127.0.00.1")),
                    create_with(0, "/p/b", acl(31, "digest", "a:b:")),
                ]
            }),
        },
        Known {
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

const QUOTAS: Chapter = Chapter {
    title: "Quotas",
    known: &[
        Known {
            name: "hard-quotas",
            zookeeper: "Hard limits refuse nothing unless every server was started with `enforceQuota`.",
            lockgate: "They refuse, always. Soft limits are a warning in the log, as in ZooKeeper.",
            reason: "Whoever sets a hard limit wants one.",
            example: None,
        },
        Known {
            name: "quota-in-multi",
            zookeeper: "Each operation of a multi is compared with what was used before the multi. Together they \
                        can pass a hard limit.",
            lockgate: "Each operation is compared with what is used after the ones before it.",
            reason: "A hard limit that can be passed is none.",
            example: Some(|| {
                let mut steps = quota("/p", "count=-1,bytes=-1=;countHardLimit=2");
                steps.push(call(0, Request::Multi(vec![plain("/p/a"), plain("/p/b")])));
                steps
            }),
        },
        Known {
            name: "malformed-quotas",
            zookeeper: "Limits that do not parse make every write below them fail with a marshalling error, and so \
                        does usage. Without limits that would look at it, such usage stops the server.",
            lockgate: "A number that does not parse is no limit, and usage that does not parse counts from nothing.",
            reason: "A client that writes to a znode must not be able to stop the service.",
            example: Some(|| {
                let mut steps = quota("/p", "nonsense");
                steps.push(create(0, "/p/a"));
                steps
            }),
        },
        Known {
            name: "blank-names-in-quotas",
            zookeeper: "When it looks for the quota of a path, a component of blanks is passed over: `/a/ /b` is \
                        counted as `/a/b`.",
            lockgate: "It is a component as any other.",
            reason: "It is a mistake of ZooKeeper's.",
            example: Some(|| {
                let mut steps = vec![create(0, "/p/a")];
                steps.extend(quota("/p/a", "count=-1,bytes=-1=;countHardLimit=1"));
                steps.extend([create(0, "/p/ "), create(0, "/p/ /a")]);
                steps
            }),
        },
    ],
};

const WATCHES: Chapter = Chapter {
    title: "Watches",
    known: &[
        Known {
            name: "kinds-of-watches",
            zookeeper: "A client has at most one kind of watch at a path: a standard one that it leaves ends its \
                        persistent one there, and the other way round (ZOOKEEPER-4466).",
            lockgate: "Each kind stands for itself.",
            reason: "Two parts of a program that share a connection must not disturb each other. ZooKeeper 3.9 has \
                     corrected it.",
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
        Known {
            name: "watcher-types",
            zookeeper: "To remove the data watches of a path takes half of a persistent watch away, and to remove \
                        its child watches the other half (ZOOKEEPER-4471, ZOOKEEPER-4472). There are no types for \
                        persistent watches.",
            lockgate: "A removal ends the watches of its type and no others; `Any` ends them all. Persistent and \
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
        Known {
            name: "check-watches",
            zookeeper: "`checkWatches` says yes if anybody watches the path, also if it is another client.",
            lockgate: "It says whether the caller does.",
            reason: "That is what was asked.",
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
        Known {
            name: "zxids-of-notifications",
            zookeeper: "A notification of a watch has -1 in place of a zxid. From 3.9 on it has the zxid of the change.",
            lockgate: "It has the zxid of the change.",
            reason: "Clients of 3.9 count on it, and older ones do not look at it.",
            example: None,
        },
        Known {
            name: "watch-limits",
            zookeeper: "There may be any number of watches.",
            lockgate: "A client has at most 100,000 watches, a node 1,000,000; both are configured.",
            reason: "See `limits`.",
            example: None,
        },
    ],
};

const ENSEMBLE: Chapter = Chapter {
    title: "Sessions and the ensemble",
    known: &[
        Known {
            name: "session-timeouts",
            zookeeper: "A session's timeout is at least 2 ticks and at most 20: 4 to 40 s, unless it is configured. \
                        Spark and Curator ask for 60 s and get 40.",
            lockgate: "It is 2 to 300 s: Spark and Curator get the 60 s that they ask for, and what a dead client \
                       owned goes after 60 s. `sessions.min_ms = 4000` and `sessions.max_ms = 40000` are \
                       ZooKeeper's bounds.",
            reason: "Clients are told which timeout they have, and most ask for the one that they want. The bounds \
                     hold for the sessions of HTTP, too. There are no ticks: a session ends when its time is over, \
                     not at the next tick.",
            example: None,
        },
        Known {
            name: "configuration",
            zookeeper: "`/zookeeper/config` names the servers of the ensemble, for `config` of `zkCli.sh` and for \
                        `getConfig`, with the ports that they have for each other and, if they are configured so, \
                        for clients. Curator connects to the latter from then on.",
            lockgate: "It names the members, with their ports for each other and for HTTP where ZooKeeper has its \
                       two, and no ports for clients: a client goes on with the addresses that it was given. \
                       `version` is where the membership stands in the log. The znode's stat and its watches tell of no change, and \
                       over HTTP it is empty: `GET /v1/cluster` says more.",
            reason: "A member's address for ZooKeeper's clients is known to that member alone, and Curator would \
                     give up good addresses for bad ones.",
            example: None,
        },
        Known {
            name: "reconfig",
            zookeeper: "`reconfig` changes the ensemble, if every server is configured to allow it.",
            lockgate: "It is answered as by a ZooKeeper that does not allow it. Members come and go by `lockgate \
                       cluster` and by HTTP.",
            reason: "A new member is told by its data directory from one that was there before, for which `reconfig` \
                     has no place.",
            example: None,
        },
        Known {
            name: "read-only-mode",
            zookeeper: "A server without a majority serves reads to clients that accept this, if it is configured \
                        so. `isro` then says `ro`.",
            lockgate: "A node without a majority serves nobody, and `isro` never says `ro`.",
            reason: "What it would show may be older than what the same client has seen written elsewhere.",
            example: None,
        },
        Known {
            name: "sasl",
            zookeeper: "Clients can prove who they are by SASL, if the server is configured for it.",
            lockgate: "There is no SASL. Clients prove who they are by a certificate, or with `addauth` by a token or a \
                       digest.",
            reason: "Kerberos is another system to run. A certificate proves as much.",
            example: None,
        },
        Known {
            name: "certificates",
            zookeeper: "Certificates for TLS may be of version 1 of X.509.",
            lockgate: "Only version 3 is accepted. A node with another certificate does not start, and says why.",
            reason: "A certificate of version 1 cannot say that it may sign others, so each could sign for everybody.",
            example: None,
        },
    ],
};

const REQUESTS: Chapter = Chapter {
    title: "Requests that make no sense",
    known: &[
        Known {
            name: "illegal-paths",
            zookeeper: "That a path is illegal is found after other things: a create is told first that the ACL is \
                        invalid, the parent missing, or the caller without rights.",
            lockgate: "A request with an illegal path is refused as such. To read or delete what has an illegal \
                       path finds no node, as in ZooKeeper.",
            reason: "What is checked once at the door needs no second thought behind it.",
            example: Some(|| vec![create(0, "/p/missing//a")]),
        },
        Known {
            name: "create-flags",
            zookeeper: "`createContainer` with the flags of another kind makes a container, with a number in its \
                        name if the flags say so. `createTTL` without a time to live stops the server.",
            lockgate: "`createContainer` makes a container, and `createTTL` needs a time to live.",
            reason: "No client sends this.",
            example: Some(|| vec![call(0, create_call(CreateCall::Container, "/p/a", 2))]),
        },
        Known {
            name: "ttl-flags-in-multi",
            zookeeper: "In a multi, `create` with the flags of a TTL node makes the whole multi fail with a \
                        marshalling error.",
            lockgate: "That operation fails with bad arguments, as it does alone, and the multi with it.",
            reason: "It is a mistake of ZooKeeper's.",
            example: Some(|| {
                vec![call(
                    0,
                    Request::Multi(vec![create_call(CreateCall::Create, "/p/a", 5)]),
                )]
            }),
        },
        Known {
            name: "lone-check",
            zookeeper: "`check` outside of a multi, if it succeeds, ends the thread that answers requests: the \
                        server answers nobody any more.",
            lockgate: "It is refused as not implemented, and the connection closed.",
            reason: "Clients do not have this request. (No program shows it, for nothing could be compared \
                     afterwards.)",
            example: None,
        },
        Known {
            name: "wrong-password",
            zookeeper: "An attempt to resume a session with a wrong password closes the connection that the \
                        session has.",
            lockgate: "It is refused, and the session's connection stays.",
            reason: "Whoever does not know the password must not be able to disturb the session.",
            example: None,
        },
    ],
};

const WORDS: Chapter = Chapter {
    title: "Four-letter words",
    known: &[
        Known {
            name: "words-that-are-not-there",
            zookeeper: "`gtmk` and `stmk` show and set what is traced, `hash` shows digests of the tree.",
            lockgate: "They are no words: the connection is closed, as after any four bytes that mean nothing.",
            reason: "What is logged is configured by `[log]`, and replicas compare their states by other means.",
            example: None,
        },
        Known {
            name: "words-whitelist",
            zookeeper: "`srvr` is answered whatever the whitelist says.",
            lockgate: "What `four_letter_words` names is answered, and nothing else. The default is `srvr`.",
            reason: "Whoever wants no word answered can say so.",
            example: None,
        },
        Known {
            name: "words-lines-left-out",
            zookeeper: "`mntr` has some five hundred lines, `srvr` and `stat` of a leader the sizes of proposals, \
                        `conf` the ensemble and `tickTime`, `envi` Java and its memory.",
            lockgate: "These are left out. `mntr` has versions, latencies, packets, connections, znodes, how large \
                       they are, watches, sessions, files and followers under ZooKeeper's names.",
            reason: "A figure is shown where Lockgate has the thing that it is about. What it measures besides is \
                     at `GET /metrics`, and its members at `GET /v1/cluster`.",
            example: None,
        },
        Known {
            name: "words-node-count",
            zookeeper: "The root is counted twice in `Node count` and `zk_znode_count`.",
            lockgate: "It is counted once.",
            reason: "It is there once.",
            example: None,
        },
        Known {
            name: "words-watches",
            zookeeper: "`wchs`, `wchc` and `wchp` show watches of data and existence; those of children are only \
                        counted, by `mntr`.",
            lockgate: "They show all watches. Calls that wait over HTTP have the session `0x0`, and a persistent \
                       watch counts once.",
            reason: "Who looks for the reason of a notification wants to find it.",
            example: None,
        },
        Known {
            name: "words-dump",
            zookeeper: "`dump` shows when each connection expires.",
            lockgate: "It shows the connections in no set that expires.",
            reason: "Sessions expire, and connections end with them.",
            example: None,
        },
    ],
};

/// The page for users.
pub fn markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    for Chapter { title, known } in &CHAPTERS {
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

/// One item of a list, in lines like those of the other pages.
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

/// How long the lines of the page are.
const LINE: usize = 118;

const INTRODUCTION: &str = "\
# Where Lockgate differs from ZooKeeper

Lockgate's tree, its access control lists, quotas and watches mean what they mean in ZooKeeper 3.8. This is held by
`tools/zookeeper-parity`: random programs run against the state machine and against a real ZooKeeper, over its own
protocol, and must give the same results, the same stats and the same notifications in the same order. This page says
what differs nevertheless, on purpose. Each entry that a program can show has one in
`tools/zookeeper-parity/src/differences.rs`, and a test sees to it that it still does.

<!-- Written by `zookeeper-parity --differences`; the table is in the file named above. -->
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

/// A quota as ZooKeeper's shell makes one.
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
