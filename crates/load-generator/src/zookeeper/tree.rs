//! What a measurement leaves in the tree while it lasts: where, and that it is taken away again.

use std::cell::Cell;

use anyhow::{Context, bail};
use bytes::Bytes;
use zk_wire::{ErrorCode, Outcome, Request};

use super::client::{create, delete, names};
use super::recipes::Semaphore;
use super::session::{Session, refused};
use crate::nodes::Nodes;
use crate::workload::Workload;

/// Where the recipes of Lockgate's other clients have their locks.
const LOCKS: &str = "/locks";

/// A request that was on its way when its client was given up may be carried out while the tree is removed.
const ATTEMPTS: usize = 5;

/// All that one run creates. Its name is its own, so that what others have, and what an earlier run left behind, does not
/// matter.
pub(crate) struct Tree {
    znodes: String,
    locks: String,
    /// There was no [`LOCKS`] before.
    made_locks: Cell<bool>,
}

impl Tree {
    /// That of the run of this name.
    pub fn new(run: &str) -> Self {
        let znodes = format!("/lockgate-bench-{run}");
        let locks = format!("{LOCKS}{znodes}");
        Self {
            znodes,
            locks,
            made_locks: Cell::new(false),
        }
    }

    /// The znodes under which everything is, except for [`LOCKS`] itself.
    pub fn paths(&self) -> [&str; 2] {
        [&self.znodes, &self.locks]
    }

    /// The znode of a client's own, or the one that all have in common. Locks lie where locks do: Lockgate has its own ways with
    /// what is there.
    pub fn home(&self, workload: Workload, client: usize) -> String {
        let Self { znodes, locks, .. } = self;
        match workload {
            Workload::Lock | Workload::Multi { .. } => format!("{locks}/{client}"),
            Workload::Contended | Workload::Shared => format!("{locks}/all"),
            Workload::Semaphore { .. } => format!("{znodes}/all"),
            Workload::Create
            | Workload::Set
            | Workload::Get
            | Workload::Mixed { .. }
            | Workload::Sequential => format!("{znodes}/{client}"),
        }
    }

    /// The znode of one who has its own.
    pub fn znode(&self, number: usize) -> String {
        format!("{}/{number}", self.znodes)
    }

    /// All that has to be there for so many clients.
    fn homes(&self, workload: Workload, clients: usize) -> Vec<String> {
        let home = |client| self.home(workload, client);
        match workload {
            Workload::Contended | Workload::Shared => vec![home(0)],
            Workload::Semaphore { .. } => {
                let mut all = vec![home(0)];
                all.extend(Semaphore::parts(&home(0)));
                all
            }
            Workload::Multi { locks } => (0..clients)
                .flat_map(|client| (0..locks).map(move |lock| (client, lock)))
                .map(|(client, lock)| format!("{}-{lock}", home(client)))
                .collect(),
            _ => (0..clients).map(home).collect(),
        }
    }

    /// Creates what so many clients of this workload need.
    pub async fn make(
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
                self.made_locks.set(true);
            }
            // Others may have locks, too.
            let is_there = |code| code == ErrorCode::NODE_EXISTS && path == LOCKS;
            unless(outcome, is_there).with_context(|| format!("creating {path}"))?;
        }
        session.close().await
    }

    /// Deletes all that the run has created, as far as it is there.
    pub async fn remove(&self, servers: &Nodes) -> anyhow::Result<()> {
        let mut session = Session::open(servers, 0).await?;
        for path in self.paths() {
            remove(&mut session, path)
                .await
                .with_context(|| format!("removing {path}"))?;
        }
        if self.made_locks.take() {
            // Unless somebody else has begun to use it.
            delete_all(&mut session, &[delete(LOCKS.to_owned())]).await?;
        }
        session.close().await
    }
}

/// Deletes a znode with all that is below it, three levels deep at most.
async fn remove(session: &mut Session, path: &str) -> anyhow::Result<()> {
    for _ in 0..ATTEMPTS {
        // This server may be behind the ones that the clients were at.
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
    bail!("there is always something new below it")
}

/// The paths of a znode's children; none if there is no znode.
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

/// Says whether all are gone. What still has children is not.
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

/// An error unless it was done, or refused in a way that is all right.
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
    fn each_client_has_its_own_znode_and_locks_lie_where_all_locks_do() {
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
