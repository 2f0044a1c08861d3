//! Operation of one client over ZooKeeper's protocol: its requests, which are built once, and the checks of
//! the replies.

use std::fmt::Write;

use anyhow::bail;
use bytes::Bytes;
use zk_wire::{AclEntry, CreateCall, Outcome, Reply, Request};

use super::recipes::{Kind, Mutex, Semaphore};
use super::session::{Session, refused};
use super::tree::Tree;
use crate::drive::{Client, Moments};
use crate::workload::{Mix, Workload};

/// Flags of ZooKeeper's create.
mod flags {
    pub const PERSISTENT: i32 = 0;
    pub const EPHEMERAL_SEQUENTIAL: i32 = 3;
}

/// All permissions, the default of ZooKeeper clients.
const ALL: i32 = 31;

/// Version that matches any.
const ANY: i32 = -1;

/// Client with its session.
pub(crate) struct Caller {
    pub session: Session,
    pub cycle: Cycle,
}

impl Client for Caller {
    async fn once(&mut self, moments: &mut Moments) -> anyhow::Result<()> {
        self.cycle.once(&mut self.session, moments).await
    }

    async fn close(self) -> anyhow::Result<()> {
        self.session.close().await
    }
}

/// Operation that a client repeats. Requests are changed in place: building them for every operation would
/// cost more than sending them.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one for each client, made once"
)]
pub(crate) enum Cycle {
    /// Creates a child with a new name; `home` is the length of the constant part of the path.
    Create {
        create: Request,
        home: usize,
        number: u64,
    },
    /// The same request every time.
    One(Request),
    Mixed {
        get: Request,
        set: Request,
        mix: Mix,
    },
    Sequential {
        create: Request,
        delete: Request,
    },
    /// Acquires the locks one after the other, and releases them in reverse order.
    Locks(Vec<Mutex>),
    Semaphore(Semaphore),
}

impl Cycle {
    /// Creates the operation of the client with this number.
    pub fn new(workload: Workload, tree: &Tree, number: usize, data: Bytes) -> Self {
        let home = tree.home(workload, number);
        let get = |path: String| Request::GetData { path, watch: false };
        let set = |path: String, data: Bytes| Request::SetData {
            path,
            data: Some(data),
            version: ANY,
        };
        match workload {
            Workload::Create => Cycle::Create {
                home: home.len(),
                create: create(home, data),
                number: 0,
            },
            Workload::Set => Cycle::One(set(home, data)),
            Workload::Get => Cycle::One(get(home)),
            Workload::Mixed { reads } => Cycle::Mixed {
                get: get(home.clone()),
                set: set(home, data),
                mix: Mix::new(reads, number),
            },
            Workload::Sequential => Cycle::Sequential {
                create: create_sequential(format!("{home}/n-"), data),
                delete: delete(String::new()),
            },
            Workload::Lock | Workload::Contended => {
                Cycle::Locks(vec![Mutex::new(&home, Kind::Exclusive, data)])
            }
            Workload::Shared => Cycle::Locks(vec![Mutex::new(&home, Kind::Shared, data)]),
            Workload::Multi { locks } | Workload::Batch { locks } => {
                let lock = |lock| Mutex::new(&format!("{home}-{lock}"), Kind::Exclusive, data.clone());
                Cycle::Locks((0..locks).map(lock).collect())
            }
            Workload::Semaphore { permits } => Cycle::Semaphore(Semaphore::new(&home, permits, data)),
        }
    }

    async fn once(&mut self, session: &mut Session, moments: &mut Moments) -> anyhow::Result<()> {
        match self {
            Cycle::Create { create, home, number } => {
                name_next(create, *home, *number);
                *number += 1;
                done(session.call(create).await?)
            }
            Cycle::One(request) => done(session.call(request).await?),
            Cycle::Mixed { get, set, mix } => {
                let request = if mix.next_reads() { get } else { set };
                done(session.call(request).await?)
            }
            Cycle::Sequential { create, delete } => {
                set_path(delete, created(session.call(create).await?)?);
                done(session.call(delete).await?)
            }
            Cycle::Locks(locks) => {
                for lock in locks.iter_mut() {
                    lock.acquire(session).await?;
                }
                moments.granted();
                moments.releasing();
                for lock in locks.iter_mut().rev() {
                    lock.release(session).await?;
                }
                Ok(())
            }
            Cycle::Semaphore(semaphore) => {
                semaphore.acquire(session).await?;
                moments.granted();
                semaphore.release(session).await
            }
        }
    }
}

/// Returns a request that creates a persistent znode with an open access control list.
pub(crate) fn create(path: String, data: Bytes) -> Request {
    create_as(flags::PERSISTENT, path, data)
}

/// Returns a request that creates an ephemeral sequential znode.
pub(super) fn create_sequential(path: String, data: Bytes) -> Request {
    create_as(flags::EPHEMERAL_SEQUENTIAL, path, data)
}

fn create_as(flags: i32, path: String, data: Bytes) -> Request {
    let anyone = AclEntry {
        perms: ALL,
        scheme: "world".to_owned(),
        id: "anyone".to_owned(),
    };
    Request::Create {
        call: CreateCall::Create,
        path,
        data: Some(data),
        acl: Some(vec![anyone]),
        flags,
    }
}

/// Returns a request that deletes a znode of any version.
pub(super) fn delete(path: String) -> Request {
    Request::Delete { path, version: ANY }
}

/// Sets the path of a create to the child with this number.
fn name_next(request: &mut Request, home: usize, number: u64) {
    if let Request::Create { path, .. } = request {
        path.truncate(home);
        write!(path, "/n{number:010}").expect("a String takes all");
    }
}

/// Sets the path of a delete.
pub(super) fn set_path(request: &mut Request, to: String) {
    if let Request::Delete { path, .. } = request {
        *path = to;
    }
}

/// Fails unless the request succeeded.
pub(super) fn done(outcome: Outcome) -> anyhow::Result<()> {
    outcome.map(drop).or_else(refused)
}

/// Returns the path of a created znode.
pub(super) fn created(outcome: Outcome) -> anyhow::Result<String> {
    match outcome.or_else(refused)? {
        Reply::Path(path) => Ok(path),
        other => bail!("unexpected reply to create: {other:?}"),
    }
}

/// Returns the names in a reply to getChildren.
pub(super) fn names(outcome: Outcome) -> anyhow::Result<Vec<String>> {
    match outcome.or_else(refused)? {
        Reply::Names(names) => Ok(names),
        other => bail!("unexpected reply to getChildren: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn creates_have_new_names_and_the_same_data() {
        let data = Bytes::from_static(b"data");
        let tree = Tree::new("run");
        let Cycle::Create { mut create, home, .. } = Cycle::new(Workload::Create, &tree, 1, data.clone())
        else {
            panic!("create creates");
        };
        for (number, expected) in [
            (0, "/lockgate-bench-run/1/n0000000000"),
            (12, "/lockgate-bench-run/1/n0000000012"),
        ] {
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
}
