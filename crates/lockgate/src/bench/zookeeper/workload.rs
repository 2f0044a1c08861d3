//! What a client does over and over: its requests, written once, and what has to be answered. Nothing here is timed.

use std::fmt::Write;

use anyhow::{bail, ensure};
use bytes::Bytes;
use clap::ValueEnum;
use serde::Serialize;
use zk_wire::{AclEntry, CreateCall, Outcome, Reply, Request};

use super::session::{Session, refused};
use super::tree::Tree;
use crate::api_client::request_id;

/// What the clients do. Each has a znode of its own, so nobody waits for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// One more persistent znode below the client's own
    Create,
    /// New data for the client's own znode (setData)
    Set,
    /// The data of the client's own znode (getData)
    Get,
    /// An ephemeral sequential znode, created and deleted: two requests
    Sequential,
    /// The lock recipe, with a lock that nobody else wants: create, getChildren, delete
    Lock,
}

impl Workload {
    /// As it is called on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Create => "create",
            Workload::Set => "set",
            Workload::Get => "get",
            Workload::Sequential => "sequential",
            Workload::Lock => "lock",
        }
    }

    /// The client's own znode.
    pub(super) fn home(self, tree: &Tree, client: usize) -> String {
        match self {
            Workload::Lock => tree.lock(client),
            _ => tree.znode(client),
        }
    }
}

/// The flags of ZooKeeper's create.
mod flags {
    pub const PERSISTENT: i32 = 0;
    pub const EPHEMERAL_SEQUENTIAL: i32 = 3;
}

/// All rights, as clients of ZooKeeper ask for them unless they are told otherwise.
const ALL: i32 = 31;

/// Any version will do.
const ANY: i32 = -1;

/// What one client does over and over. Requests are kept and changed in place: writing them anew for every operation would
/// cost more than sending them.
pub(super) enum Cycle {
    /// `home` is how much of the path stays.
    Create {
        create: Request,
        home: usize,
        number: u64,
    },
    /// The request is the same every time.
    One(Request),
    Sequential {
        create: Request,
        delete: Request,
    },
    Lock {
        create: Request,
        children: Request,
        delete: Request,
    },
}

impl Cycle {
    /// What a client does whose own znode is `home`.
    pub fn new(workload: Workload, home: &str, data: Bytes) -> Self {
        let home = home.to_owned();
        match workload {
            Workload::Create => Cycle::Create {
                home: home.len(),
                create: create(home, data),
                number: 0,
            },
            Workload::Set => Cycle::One(Request::SetData {
                path: home,
                data: Some(data),
                version: ANY,
            }),
            Workload::Get => Cycle::One(Request::GetData {
                path: home,
                watch: false,
            }),
            Workload::Sequential => Cycle::Sequential {
                create: create_sequential(format!("{home}/n-"), data),
                delete: delete(String::new()),
            },
            Workload::Lock => Cycle::Lock {
                // The name that Curator gives to its contenders.
                create: create_sequential(format!("{home}/_c_{}-lock-", uuid(&request_id())), data),
                children: Request::GetChildren {
                    path: home,
                    watch: false,
                },
                delete: delete(String::new()),
            },
        }
    }

    /// Does it once.
    pub async fn once(&mut self, session: &mut Session) -> anyhow::Result<()> {
        match self {
            Cycle::Create { create, home, number } => {
                name_next(create, *home, *number);
                *number += 1;
                done(session.call(create).await?)
            }
            Cycle::One(request) => done(session.call(request).await?),
            Cycle::Sequential { create, delete } => {
                set_path(delete, created(session.call(create).await?)?);
                done(session.call(delete).await?)
            }
            Cycle::Lock {
                create,
                children,
                delete,
            } => {
                let contender = created(session.call(create).await?)?;
                let queue = names(session.call(children).await?)?;
                ensure!(
                    is_first(&contender, &queue),
                    "{contender} has to wait in {queue:?}"
                );
                set_path(delete, contender);
                done(session.call(delete).await?)
            }
        }
    }
}

/// A request for a persistent znode that everybody may do everything with.
pub(super) fn create(path: String, data: Bytes) -> Request {
    create_as(flags::PERSISTENT, path, data)
}

fn create_sequential(path: String, data: Bytes) -> Request {
    create_as(flags::EPHEMERAL_SEQUENTIAL, path, data)
}

fn create_as(flags: i32, path: String, data: Bytes) -> Request {
    let everybody = AclEntry {
        perms: ALL,
        scheme: "world".to_owned(),
        id: "anyone".to_owned(),
    };
    Request::Create {
        call: CreateCall::Create,
        path,
        data: Some(data),
        acl: Some(vec![everybody]),
        flags,
    }
}

/// A request that deletes a znode, whatever its version.
pub(super) fn delete(path: String) -> Request {
    Request::Delete { path, version: ANY }
}

/// Has the request name the child of this number.
fn name_next(request: &mut Request, home: usize, number: u64) {
    if let Request::Create { path, .. } = request {
        path.truncate(home);
        write!(path, "/n{number:010}").expect("a String takes all");
    }
}

fn set_path(request: &mut Request, to: String) {
    if let Request::Delete { path, .. } = request {
        *path = to;
    }
}

fn done(outcome: Outcome) -> anyhow::Result<()> {
    outcome.map(drop).or_else(refused)
}

fn created(outcome: Outcome) -> anyhow::Result<String> {
    match outcome.or_else(refused)? {
        Reply::Path(path) => Ok(path),
        other => bail!("create was answered by {other:?}"),
    }
}

/// The names in an answer to getChildren.
pub(super) fn names(outcome: Outcome) -> anyhow::Result<Vec<String>> {
    match outcome.or_else(refused)? {
        Reply::Names(names) => Ok(names),
        other => bail!("getChildren was answered by {other:?}"),
    }
}

/// Whether a contender is the first in its queue: nobody's number is smaller.
fn is_first(contender: &str, queue: &[String]) -> bool {
    let own = number_of(contender);
    own.is_some() && queue.iter().all(|other| number_of(other) >= own)
}

/// The ten digits that ZooKeeper puts behind a sequential znode's name. They are compared as texts, as the recipes do.
fn number_of(name: &str) -> Option<&str> {
    const DIGITS: usize = 10;
    name.get(name.len().checked_sub(DIGITS)?..)
}

/// 32 hexadecimal digits the way UUIDs are written.
fn uuid(digits: &str) -> String {
    let (a, rest) = digits.split_at(8);
    let (b, rest) = rest.split_at(4);
    let (c, rest) = rest.split_at(4);
    let (d, e) = rest.split_at(4);
    format!("{a}-{b}-{c}-{d}-{e}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_called_the_same_everywhere() {
        for workload in Workload::value_variants() {
            let name = workload.name();
            let given = workload.to_possible_value().unwrap();
            assert_eq!(given.get_name(), name);
            assert_eq!(serde_json::to_value(workload).unwrap(), name);
        }
    }

    #[test]
    fn each_client_has_its_own_znode_and_locks_lie_where_all_locks_do() {
        let tree = Tree::new("run");
        assert_eq!(Workload::Get.home(&tree, 7), "/lockgate-bench-run/7");
        assert_eq!(Workload::Lock.home(&tree, 7), "/locks/lockgate-bench-run/7");
    }

    #[test]
    fn creates_have_new_names_and_the_same_data() {
        let data = Bytes::from_static(b"data");
        let Cycle::Create { mut create, home, .. } = Cycle::new(Workload::Create, "/home/1", data.clone())
        else {
            panic!("create creates");
        };
        for (number, expected) in [(0, "/home/1/n0000000000"), (12, "/home/1/n0000000012")] {
            name_next(&mut create, home, number);
            let Request::Create {
                path,
                data: with,
                flags,
                ..
            } = &create
            else {
                panic!("it stays a create");
            };
            assert_eq!((path.as_str(), with, *flags), (expected, &Some(data.clone()), 0));
        }
    }

    #[test]
    fn contenders_are_named_as_curator_names_them() {
        let cycle = Cycle::new(Workload::Lock, "/locks/mine", Bytes::new());
        let Cycle::Lock {
            create: Request::Create { path, flags, .. },
            ..
        } = cycle
        else {
            panic!("the recipe begins with a create");
        };
        let guid = path.strip_prefix("/locks/mine/_c_").unwrap();
        let guid = guid.strip_suffix("-lock-").unwrap();
        let groups: Vec<usize> = guid.split('-').map(str::len).collect();
        assert_eq!((groups, flags), (vec![8, 4, 4, 4, 12], 3));
    }

    #[test]
    fn the_smallest_number_is_first_whatever_stands_before_it() {
        let queue = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let own = "/locks/mine/_c_b-lock-0000000004";
        assert!(is_first(own, &queue(&["_c_b-lock-0000000004"])));
        assert!(is_first(
            own,
            &queue(&["_c_a-lock-0000000005", "_c_b-lock-0000000004"])
        ));
        assert!(!is_first(
            own,
            &queue(&["_c_c-lock-0000000003", "_c_b-lock-0000000004"])
        ));
        assert!(!is_first("short", &[]));
    }
}
