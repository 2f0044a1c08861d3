//! Znodes of a measurement: their paths, their creation and their deletion.

use std::cell::Cell;

use anyhow::{Context, bail};
use bytes::Bytes;
use zk_wire::{ErrorCode, Outcome, Request};

use super::client::{create, delete, names};
use super::recipes::Semaphore;
use super::session::{Session, refused};
use crate::nodes::Nodes;
use crate::workload::Workload;

/// Parent of the locks of Lockgate's other clients.
const LOCKS: &str = "/locks";

/// Number of attempts to delete a tree: a pending request of a dropped client may create a znode meanwhile.
const ATTEMPTS: usize = 5;

/// Znodes of one run. Its name is unique, so that other znodes, and those that an earlier run left, do not
/// matter.
pub(crate) struct Tree {
    znodes: String,
    locks: String,
    /// True if this run has created [`LOCKS`].
    created_locks: Cell<bool>,
}

impl Tree {
    /// Returns the paths of the run with this name.
    pub fn new(run: &str) -> Self {
        let znodes = format!("/lockgate-bench-{run}");
        let locks = format!("{LOCKS}{znodes}");
        Self {
            znodes,
            locks,
            created_locks: Cell::new(false),
        }
    }

    /// Returns the parents of all znodes of the run, except for [`LOCKS`] itself.
    pub fn paths(&self) -> [&str; 2] {
        [&self.znodes, &self.locks]
    }

    /// Returns the znode of a client, or the one that all share. Locks are below [`LOCKS`], because Lockgate
    /// treats contenders there as locks.
    pub fn home(&self, workload: Workload, client: usize) -> String {
        let Self { znodes, locks, .. } = self;
        match workload {
            Workload::Lock | Workload::Multi { .. } | Workload::Batch { .. } => format!("{locks}/{client}"),
            Workload::Contended | Workload::Shared => format!("{locks}/all"),
            Workload::Semaphore { .. } => format!("{znodes}/all"),
            Workload::Create
            | Workload::Set
            | Workload::Get
            | Workload::Mixed { .. }
            | Workload::Sequential => format!("{znodes}/{client}"),
        }
    }

    /// Returns the own znode of the client with this number.
    pub fn znode(&self, number: usize) -> String {
        format!("{}/{number}", self.znodes)
    }

    /// Returns all znodes that this number of clients needs.
    fn homes(&self, workload: Workload, clients: usize) -> Vec<String> {
        let home = |client| self.home(workload, client);
        match workload {
            Workload::Contended | Workload::Shared => vec![home(0)],
            Workload::Semaphore { .. } => {
                let mut all = vec![home(0)];
                all.extend(Semaphore::parts(&home(0)));
                all
            }
            Workload::Multi { locks } | Workload::Batch { locks } => (0..clients)
                .flat_map(|client| (0..locks).map(move |lock| (client, lock)))
                .map(|(client, lock)| format!("{}-{lock}", home(client)))
                .collect(),
            _ => (0..clients).map(home).collect(),
        }
    }

    /// Creates the znodes for this number of clients of a workload.
    pub async fn create(
        &self,
        servers: &Nodes,
        workload: Workload,
        clients: usize,
        data: &Bytes,
    ) -> anyhow::Result<()> {
        let mut session = Session::open(servers, 0).await?;
        let mut requests = vec![create(self.znodes.clone(), Bytes::new())];
        if workload.takes_locks() {
            requests.push(create(LOCKS.to_owned(), Bytes::new()));
            requests.push(create(self.locks.clone(), Bytes::new()));
        }
        let homes = self.homes(workload, clients);
        requests.extend(homes.into_iter().map(|home| create(home, data.clone())));
        for (request, outcome) in requests.iter().zip(session.call_all(&requests).await?) {
            let path = path_of(request);
            if path == LOCKS && outcome.is_ok() {
                self.created_locks.set(true);
            }
            // Other users may have locks, too.
            let is_there = |code| code == ErrorCode::NODE_EXISTS && path == LOCKS;
            unless(outcome, is_there).with_context(|| format!("creating {path}"))?;
        }
        session.close().await
    }

    /// Deletes all znodes of the run, if there are any.
    pub async fn remove(&self, servers: &Nodes) -> anyhow::Result<()> {
        let mut session = Session::open(servers, 0).await?;
        for path in self.paths() {
            remove(&mut session, path)
                .await
                .with_context(|| format!("removing {path}"))?;
        }
        if self.created_locks.take() {
            // Fails if another user has created a lock meanwhile.
            delete_all(&mut session, &[delete(LOCKS.to_owned())]).await?;
        }
        session.close().await
    }
}

/// Deletes a znode with its descendants, at most three levels.
async fn remove(session: &mut Session, path: &str) -> anyhow::Result<()> {
    for _ in 0..ATTEMPTS {
        // This server may lag behind the clients' servers.
        session
            .call(&Request::Sync {
                path: path.to_owned(),
            })
            .await?
            .map(drop)
            .or_else(refused)?;
        for child in children(session, path).await? {
            let grandchildren = children(session, &child).await?;
            let mut requests: Vec<Request> = grandchildren.iter().cloned().map(delete).collect();
            requests.push(delete(child.clone()));
            if !delete_all(session, &requests).await? {
                for grandchild in grandchildren {
                    let mut below: Vec<Request> = children(session, &grandchild)
                        .await?
                        .into_iter()
                        .map(delete)
                        .collect();
                    below.push(delete(grandchild));
                    delete_all(session, &below).await?;
                }
                delete_all(session, &[delete(child)]).await?;
            }
        }
        if delete_all(session, &[delete(path.to_owned())]).await? {
            return Ok(());
        }
    }
    bail!("new znodes appear below it repeatedly")
}

/// Returns the paths of a znode's children; empty if the znode does not exist.
async fn children(session: &mut Session, path: &str) -> anyhow::Result<Vec<String>> {
    let request = Request::GetChildren {
        path: path.to_owned(),
        watch: false,
    };
    match session.call(&request).await? {
        Err(ErrorCode::NO_NODE) => Ok(Vec::new()),
        outcome => Ok(names(outcome)?
            .into_iter()
            .map(|name| format!("{path}/{name}"))
            .collect()),
    }
}

/// Deletes znodes. Returns whether all are gone; a znode with children is not.
async fn delete_all(session: &mut Session, requests: &[Request]) -> anyhow::Result<bool> {
    let mut all = true;
    for outcome in session.call_all(requests).await? {
        all &= outcome != Err(ErrorCode::NOT_EMPTY);
        unless(outcome, |code| {
            matches!(code, ErrorCode::NO_NODE | ErrorCode::NOT_EMPTY)
        })?;
    }
    Ok(all)
}

/// Fails unless the outcome is a success or an acceptable error code.
fn unless(outcome: Outcome, is_fine: impl Fn(ErrorCode) -> bool) -> anyhow::Result<()> {
    match outcome {
        Err(code) if !is_fine(code) => refused(code),
        _ => Ok(()),
    }
}

fn path_of(request: &Request) -> &str {
    match request {
        Request::Create { path, .. } => path,
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_own_znodes_and_locks_are_below_the_lock_root() {
        let tree = Tree::new("run");
        assert_eq!(tree.home(Workload::Get, 7), "/lockgate-bench-run/7");
        assert_eq!(tree.home(Workload::Lock, 7), "/locks/lockgate-bench-run/7");
        assert_eq!(
            tree.homes(Workload::Multi { locks: 2 }, 2),
            ["0-0", "0-1", "1-0", "1-1"].map(|lock| format!("/locks/lockgate-bench-run/{lock}"))
        );
        assert_eq!(
            tree.homes(Workload::Semaphore { permits: 1 }, 9),
            ["all", "all/locks", "all/leases"].map(|path| format!("/lockgate-bench-run/{path}"))
        );
    }
}
