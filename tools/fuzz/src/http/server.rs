//! A cluster of one node in this process, and how it is asked, looked at and emptied.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use lock_api::Locks;
use lock_api::http::{Front, HttpConfig, router};
use raft_node::{MemberAddress, Node, NodeConfig};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tower_service::Service;
use znode_store::{
    Command, Identities, Identity, LockMode, Op, Refusal, Request as StoreRequest, Store, ZPath,
};

use super::answer::Answered;
use crate::look::look;

/// So long is waited for an answer. Whoever waits for a lock would wait for ever; it hangs up then, as callers do.
const PATIENCE: Duration = Duration::from_millis(150);

/// So long is listened to an answer that never ends.
const LISTEN: Duration = Duration::from_millis(20);

/// No answer is read further.
const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;

/// Longer than a cluster of one takes for anything.
const STARTED: Duration = Duration::from_secs(60);

/// See the module.
pub struct Server {
    runtime: Runtime,
    node: Node,
    router: Front,
    // Removed when the node has ended, which it has with its runtime.
    _dir: TempDir,
}

impl Server {
    /// Starts the node, and waits until it leads.
    pub fn start(http: HttpConfig) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime can be built");
        let dir = tempfile::tempdir().expect("there is room for a directory");
        let (node, router) = runtime.block_on(async {
            // Nobody else is a member, so nobody asks where this one listens.
            let member = MemberAddress {
                peer: "127.0.0.1:0".into(),
                http: "127.0.0.1:0".into(),
            };
            let mut config = NodeConfig::new(1, "fuzz", [(1, member)].into(), dir.path());
            config.peer_listen = Some(([127, 0, 0, 1], 0).into());
            config.timing.heartbeat = Duration::from_millis(20);
            config.timing.election_min = Duration::from_millis(60);
            config.timing.election_max = Duration::from_millis(120);
            config.log.segment_bytes = 1024 * 1024;
            let node = Node::start(config).await.expect("an empty directory is enough");
            let locks = Locks::new(node.clone());
            let router = router(node.clone(), locks, http);
            let ready = async {
                while node.not_ready().is_some() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(STARTED, ready)
                .await
                .expect("a node alone elects itself");
            (node, router)
        });
        Self {
            runtime,
            node,
            router,
            _dir: dir,
        }
    }

    /// What the routes answer, unless that takes too long.
    pub fn ask(&mut self, request: Request<Body>) -> Option<Answered> {
        self.ask_within(request, PATIENCE)
    }

    /// What they answer to something that waits for nobody.
    pub fn ask_of_itself(&mut self, request: Request<Body>) -> Answered {
        let answered = self.ask_within(request, STARTED);
        answered.expect("a node alone answers sooner or later")
    }

    fn ask_within(&mut self, request: Request<Body>, patience: Duration) -> Option<Answered> {
        let method = request.method().clone();
        let answering = self.router.call(request);
        self.runtime.block_on(async {
            let answer = tokio::time::timeout(patience, answering).await.ok()?;
            let (head, mut rest) = answer.unwrap_or_else(|never| match never {}).into_parts();
            let mut body = Vec::new();
            let whole = loop {
                match tokio::time::timeout(LISTEN, rest.frame()).await {
                    Ok(None) => break true,
                    Ok(Some(Ok(frame))) if body.len() < MAX_BODY_BYTES => {
                        body.extend(frame.into_data().unwrap_or_default());
                    }
                    // It ends in the middle, goes on for ever, or is silent.
                    Ok(Some(_)) | Err(_) => break false,
                }
            };
            Some(Answered {
                method,
                status: head.status,
                headers: head.headers,
                body,
                whole,
            })
        })
    }

    /// Looks at the state.
    pub fn read<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        self.node.read(look)
    }

    /// Looks at all that there is, and takes it away.
    pub fn look_and_empty(&mut self) {
        self.runtime.block_on(async {
            let failed = tokio::time::timeout(Duration::ZERO, self.node.failed()).await;
            assert!(failed.is_err(), "the node has failed: {failed:?}");
            let (sessions, paths) = self.node.read(|store| {
                look(store);
                locks_are_held_by_few(store);
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
            .expect("a node alone always leads");
        // What is gone already, or was never meant to go, is no mistake: a request that nobody waits for any longer is carried out
        // all the same, and may come in between.
        if let Err(refusal) = applied.outcome {
            assert!(
                matches!(
                    refusal,
                    Refusal::NoNode(_) | Refusal::NoSession(_) | Refusal::SessionEnded(_)
                ),
                "it cannot be taken away: {refusal}"
            );
        }
    }
}

/// What stands below the root, but for what is always there.
fn top(store: &Store) -> Vec<ZPath> {
    let root = ZPath::root();
    let names = store.children(&root).expect("there is always a root");
    names
        .iter()
        .filter(|name| &***name != "zookeeper")
        .map(|name| root.join(name).expect("it is in the tree"))
        .collect()
}

/// The one thing that a lock service is for.
fn locks_are_held_by_few(store: &Store) {
    for lock in store.locks("", None, usize::MAX) {
        let view = store.lock(&lock.lock).expect("it was just listed");
        let exclusive = view
            .holders
            .iter()
            .filter(|holder| holder.mode == LockMode::Exclusive);
        let exclusive = exclusive.count();
        assert!(
            exclusive == 0 || view.holders.len() == 1,
            "{} is held exclusively, and by {} more",
            lock.lock,
            view.holders.len() - 1
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_in_the_meantime_is_no_mistake() {
        let mut server = Server::start(HttpConfig::default());
        let request = Request::post("/v1/sessions").header("content-type", "application/json");
        let request = request.body(Body::from("{}")).unwrap();
        assert!(server.ask_of_itself(request).status.is_success());
        let session = server.read(|store| store.sessions()[0].session);
        let path = ZPath::parse("/gone").unwrap();
        server.runtime.block_on(async {
            // As if the caller of the first had hung up before it was carried out.
            for _ in 0..2 {
                server.change(Command::CloseSession { session }).await;
                let path = path.clone();
                server.change(Command::Write(Op::DeleteRecursive { path })).await;
            }
        });
    }
}
