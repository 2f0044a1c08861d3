//! A cluster of one node in this process, with functions that send requests to it, check its state and empty
//! it.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use lock_api::Locks;
use lock_api::http::{ApiService, HttpConfig, router};
use lock_node::{MemberAddress, Node, NodeConfig};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tower_service::Service;
use znode_store::{
    Command, Identities, Identity, LockMode, Op, Refusal, Request as StoreRequest, Store, ZPath,
};

use super::response::Response;
use crate::read_all::read_all;

/// Timeout of a request. A client that waits for a lock would otherwise wait without end; at the timeout it
/// disconnects, as callers do.
const TIMEOUT: Duration = Duration::from_millis(150);

/// Time for which an endless response is read.
const BODY_TIMEOUT: Duration = Duration::from_millis(20);

/// Maximum length of a body that is read.
const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;

/// Timeout that a cluster of one never needs.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A node with its HTTP routes, and the runtime that drives it.
pub struct Server {
    runtime: Runtime,
    node: Node,
    router: ApiService,
    // Removed after the node has stopped, which happens when its runtime is dropped.
    _dir: TempDir,
}

impl Server {
    /// Starts the node and waits until it is the leader.
    pub fn start(http: HttpConfig) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime can be built");
        let dir = tempfile::tempdir().expect("a temporary directory can be created");
        let (node, router) = runtime.block_on(async {
            // The cluster has no other member that would need this node's address.
            let member = MemberAddress {
                peer: "127.0.0.1:0".into(),
                http: "127.0.0.1:0".into(),
            };
            let mut config = NodeConfig::new(1, "fuzz", [(1, member)].into(), dir.path());
            config.raft.peer_listen = Some(([127, 0, 0, 1], 0).into());
            config.raft.timing.heartbeat = Duration::from_millis(20);
            config.raft.timing.election_min = Duration::from_millis(60);
            config.raft.timing.election_max = Duration::from_millis(120);
            config.raft.log.segment_bytes = 1024 * 1024;
            let node = Node::start(config)
                .await
                .expect("a node starts in an empty directory");
            let locks = Locks::new(node.clone());
            let router = router(node.clone(), locks, http);
            let ready = async {
                while node.not_ready().is_some() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(START_TIMEOUT, ready)
                .await
                .expect("a single node elects itself");
            (node, router)
        });
        Self {
            runtime,
            node,
            router,
            _dir: dir,
        }
    }

    /// Sends a request and returns the response, unless that takes too long.
    pub fn send(&mut self, request: Request<Body>) -> Option<Response> {
        self.send_within(request, TIMEOUT)
    }

    /// Sends a request that waits for no other client, and returns the response.
    pub fn send_unlimited(&mut self, request: Request<Body>) -> Response {
        let response = self.send_within(request, START_TIMEOUT);
        response.expect("a single node responds to every request")
    }

    fn send_within(&mut self, request: Request<Body>, timeout: Duration) -> Option<Response> {
        let method = request.method().clone();
        let answering = self.router.call(request);
        self.runtime.block_on(async {
            let answer = tokio::time::timeout(timeout, answering).await.ok()?;
            let (head, mut rest) = answer.unwrap_or_else(|never| match never {}).into_parts();
            let mut body = Vec::new();
            let is_complete = loop {
                match tokio::time::timeout(BODY_TIMEOUT, rest.frame()).await {
                    Ok(None) => break true,
                    Ok(Some(Ok(frame))) if body.len() < MAX_BODY_BYTES => {
                        body.extend(frame.into_data().unwrap_or_default());
                    }
                    // The body breaks off, never ends, or stalls.
                    Ok(Some(_)) | Err(_) => break false,
                }
            };
            Some(Response {
                method,
                status: head.status,
                headers: head.headers,
                body,
                is_complete,
            })
        })
    }

    /// Reads the state of the node.
    pub fn read<T>(&self, read_state: impl FnOnce(&Store) -> T) -> T {
        self.node.read(read_state)
    }

    /// Checks the whole state and deletes everything in it.
    pub fn check_and_empty(&mut self) {
        self.runtime.block_on(async {
            let failed = tokio::time::timeout(Duration::ZERO, self.node.failed()).await;
            assert!(failed.is_err(), "the node has failed: {failed:?}");
            let (sessions, paths) = self.node.read(|store| {
                read_all(store);
                check_exclusive_holders(store);
                (
                    store
                        .sessions()
                        .iter()
                        .map(|session| session.session)
                        .collect::<Vec<_>>(),
                    top(store),
                )
            });
            for session in sessions {
                self.change(Command::CloseSession { session }).await;
            }
            for path in paths {
                self.change(Command::Write(Op::DeleteRecursive { path })).await;
            }
        });
    }

    async fn change(&self, command: Command) {
        let request = StoreRequest {
            caller: Identities::new([Identity::Super]),
            ..StoreRequest::anonymous(command)
        };
        let applied = self
            .node
            .propose(request)
            .await
            .expect("a single node is always the leader");
        // A session or znode that is already gone is no error: a request whose client has disconnected is
        // still executed, perhaps between listing and deletion.
        if let Err(refusal) = applied.outcome {
            assert!(
                matches!(
                    refusal,
                    Refusal::NoNode(_) | Refusal::NoSession(_) | Refusal::SessionEnded(_)
                ),
                "the deletion was rejected: {refusal}"
            );
        }
    }
}

/// Returns the children of the root, except the reserved one.
fn top(store: &Store) -> Vec<ZPath> {
    let root = ZPath::root();
    let names = store.children(&root).expect("the root always exists");
    names
        .iter()
        .filter(|name| &***name != "zookeeper")
        .map(|name| root.join(name).expect("the child has a valid path"))
        .collect()
}

/// Checks that an exclusive holder of a lock is its only holder.
fn check_exclusive_holders(store: &Store) {
    for lock in store.locks("", None, usize::MAX) {
        let view = store.lock(&lock.lock).expect("it was just listed");
        let exclusive = view
            .holders
            .iter()
            .filter(|holder| holder.mode == LockMode::Exclusive);
        let exclusive = exclusive.count();
        assert!(
            exclusive == 0 || view.holders.len() == 1,
            "{} has an exclusive holder and {} more",
            lock.lock,
            view.holders.len() - 1
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_accepts_deletion_of_missing_items() {
        let mut server = Server::start(HttpConfig::default());
        let request = Request::post("/v1/sessions").header("content-type", "application/json");
        let request = request.body(Body::from("{}")).unwrap();
        assert!(server.send_unlimited(request).status.is_success());
        let session = server.read(|store| store.sessions()[0].session);
        let path = ZPath::parse("/gone").unwrap();
        server.runtime.block_on(async {
            // As if the client of the first request had disconnected before its execution.
            for _ in 0..2 {
                server.change(Command::CloseSession { session }).await;
                let path = path.clone();
                server.change(Command::Write(Op::DeleteRecursive { path })).await;
            }
        });
    }
}
