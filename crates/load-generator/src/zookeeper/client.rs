//! What a client does over and over by ZooKeeper's protocol: its requests, written once, and what has to be answered.

use std::fmt::Write;

use anyhow::bail;
use bytes::Bytes;
use zk_wire::{AclEntry, CreateCall, Outcome, Reply, Request};

use super::recipes::{Kind, Mutex, Semaphore};
use super::session::{Session, refused};
use super::tree::Tree;
use crate::drive::{Client, Moments};
use crate::workload::{Mix, Workload};

/// The flags of ZooKeeper's create.
mod flags {
    pub const PERSISTENT: i32 = 0;
    pub const EPHEMERAL_SEQUENTIAL: i32 = 3;
}

/// All rights, as clients of ZooKeeper ask for them unless they are told otherwise.
const ALL: i32 = 31;

/// Any version will do.
const ANY: i32 = -1;

/// A client with its session.
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

/// What one client does over and over. Requests are kept and changed in place: writing them anew for every operation would
/// cost more than sending them.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one for each client, made once"
)]
pub(crate) enum Cycle {
    /// `home` is how much of the path stays.
    Create {
        create: Request,
        home: usize,
        number: u64,
    },
    /// The request is the same every time.
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
    /// One after the other, and back the other way.
    Locks(Vec<Mutex>),
    Semaphore(Semaphore),
}

impl Cycle {
    /// What the client with this number does.
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
            Workload::Multi { locks } => {
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

/// A request for a persistent znode that everybody may do everything with.
pub(crate) fn create(path: String, data: Bytes) -> Request {
    create_as(flags::PERSISTENT, path, data)
}

/// The same for one that goes with its session, and is numbered.
pub(super) fn create_sequential(path: String, data: Bytes) -> Request {
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

/// Has a request to delete name another znode.
pub(super) fn set_path(request: &mut Request, to: String) {
    if let Request::Delete { path, .. } = request {
        *path = to;
    }
}

/// That it was done.
pub(super) fn done(outcome: Outcome) -> anyhow::Result<()> {
    outcome.map(drop).or_else(refused)
}

/// What a znode is called that was created.
pub(super) fn created(outcome: Outcome) -> anyhow::Result<String> {
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
