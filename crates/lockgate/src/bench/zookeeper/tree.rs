//! What a measurement leaves in the tree while it lasts: where, and that it is taken away again.

use std::cell::Cell;

use anyhow::{Context, bail};
use bytes::Bytes;
use zk_wire::{ErrorCode, Outcome, Request};

use super::session::{Session, refused};
use super::workload::{Workload, create, delete, names};
use crate::bench::nodes::Nodes;

/// Where the recipes of Lockgate's other clients have their locks.
const LOCKS: &str = "/locks";

/// A request that was on its way when its client was given up may be carried out while the tree is removed.
const ATTEMPTS: usize = 5;

/// All that one run creates. Its name is its own, so that what others have, and what an earlier run left behind, does not
/// matter.
pub(super) struct Tree {
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

    /// A client's own znode.
    pub fn znode(&self, client: usize) -> String {
        format!("{}/{client}", self.znodes)
    }

    /// A client's own lock.
    pub fn lock(&self, client: usize) -> String {
        format!("{}/{client}", self.locks)
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
        if workload == Workload::Lock {
            requests.push(create(LOCKS.to_owned(), Bytes::new()));
            requests.push(create(self.locks.clone(), Bytes::new()));
        }
        requests.extend((0..clients).map(|client| create(workload.home(self, client), data.clone())));
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

/// Deletes a znode with all that is below it, two levels deep at most.
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
            let mut requests: Vec<Request> = grandchildren.into_iter().map(delete).collect();
            requests.push(delete(child));
            delete_all(session, &requests).await?;
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
