//! The handle that front ends hold. (Skeleton: bodies in the making.)

use std::sync::Arc;
use std::time::Duration;

use znode_store::{
    Applied, ContenderEnd, Grant, HolderId, LockName, Request, RequestId, SessionId, Store, ZPath,
};

use crate::config::{NodeConfig, NodeId};
use crate::error::{HeartbeatError, ProposeError, StartError, Unavailable};
use crate::status::ClusterStatus;

/// A running node. Cheap to clone; the node runs until [`Node::stop`].
#[derive(Clone)]
pub struct Node {
    inner: Arc<()>,
}

/// An open session, as its client gets to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedSession {
    /// Its id.
    pub session: SessionId,
    /// Its timeout after the server's bounds.
    pub timeout: Duration,
}

/// What a one-shot watch waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WatchKind {
    /// The node is created, deleted, or its data changes.
    Data,
    /// A child comes or goes, or the node is deleted.
    Children,
    /// Any change of the node or below it.
    Recursive,
}

/// What fired a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchEvent {
    /// What happened.
    pub kind: WatchEventKind,
    /// To which node.
    pub path: ZPath,
    /// At which position.
    pub zxid: znode_store::Zxid,
}

/// ZooKeeper's four kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchEventKind {
    /// The node came to be.
    Created,
    /// The node is gone.
    Deleted,
    /// Its data was replaced.
    DataChanged,
    /// A child came or went.
    ChildrenChanged,
}

/// How a wait in a lock's queue ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The contender holds the lock.
    Granted(Grant),
    /// The contender is gone.
    Ended(ContenderEnd),
    /// This node cannot tell any more what became of the contender: it caught up by a snapshot, or stops.
    Lost,
}

/// A one-shot watch that is armed. Dropping it disarms it.
pub struct Watcher {
    _private: (),
}

impl Watcher {
    /// Waits for the event. `None`: the node stops, or caught up by a snapshot and cannot tell what happened.
    pub async fn fired(self) -> Option<WatchEvent> {
        unimplemented!()
    }
}

/// A wait for one contender's grant. Dropping it ends the wait, not the contender.
pub struct GrantWait {
    _private: (),
}

impl GrantWait {
    /// Waits until the contender holds its lock or is gone.
    pub async fn verdict(&mut self) -> Verdict {
        unimplemented!()
    }
}

impl Node {
    /// Starts a node: reads its disk, joins its peers (and forms the cluster with them if it is new).
    ///
    /// Returns when the node listens to its peers and has read its disk; it may not have a leader yet.
    pub async fn start(config: NodeConfig) -> Result<Node, StartError> {
        let _ = config;
        unimplemented!()
    }

    /// This node's id.
    pub fn id(&self) -> NodeId {
        unimplemented!()
    }

    /// What this node was started with.
    pub fn config(&self) -> &NodeConfig {
        unimplemented!()
    }

    /// Has `request` carried out by the cluster, at this node or any other, and waits until this node has
    /// applied it: what is read here afterwards shows it.
    pub async fn propose(&self, request: Request) -> Result<Applied, ProposeError> {
        let _ = request;
        unimplemented!()
    }

    /// Opens a session under a fresh id. `timeout` is moved into the server's bounds.
    pub async fn open_session(
        &self,
        timeout: Option<Duration>,
        name: &str,
        address: &str,
        request_id: Option<RequestId>,
    ) -> Result<OpenedSession, ProposeError> {
        let _ = (timeout, name, address, request_id);
        unimplemented!()
    }

    /// Renews a session. `Ok` means that the leader has counted it, and that it still led when it did: the
    /// session lives for at least the returned time from when this was called.
    pub async fn heartbeat(&self, session: SessionId) -> Result<Duration, HeartbeatError> {
        let _ = session;
        unimplemented!()
    }

    /// When the leader last heard of a session; only the leader can tell.
    pub fn last_heard(&self, session: SessionId) -> Option<Duration> {
        let _ = session;
        unimplemented!()
    }

    /// Reads this node's state: never older than what an earlier call here showed. Keep it short: nothing is
    /// applied meanwhile.
    pub fn read<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        let _ = look;
        unimplemented!()
    }

    /// Waits until this node has applied all that was committed anywhere when this was called. A
    /// [`Node::read`] afterwards is linearizable.
    pub async fn read_barrier(&self) -> Result<(), Unavailable> {
        unimplemented!()
    }

    /// Reads, and arms a one-shot watch, with nothing applied in between.
    pub fn read_and_watch<T>(
        &self,
        path: &ZPath,
        kind: WatchKind,
        look: impl FnOnce(&Store) -> T,
    ) -> (T, Watcher) {
        let _ = (path, kind, look);
        unimplemented!()
    }

    /// Waits for a contender that was queued. If it is granted already, or gone already, the verdict is ready.
    pub fn wait_for_grant(&self, lock: &LockName, holder: &HolderId) -> GrantWait {
        let _ = (lock, holder);
        unimplemented!()
    }

    /// What this node knows about the cluster.
    pub fn status(&self) -> ClusterStatus {
        unimplemented!()
    }

    /// Waits until the node cannot go on: its disk failed, or its peers refused it. Never returns on a healthy
    /// node, nor after [`Node::stop`].
    pub async fn failed(&self) -> String {
        unimplemented!()
    }

    /// Hands leadership to another member if this node leads, and stops. What waits here is answered
    /// `Unavailable` or `OutcomeUnknown`.
    pub async fn stop(&self) {
        unimplemented!()
    }
}
