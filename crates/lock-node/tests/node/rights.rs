//! Requests of callers without rights: a node refuses them by its own state, without a log entry, and grants nobody's new right too late.

use lock_node::Node;
use lock_node::znode_store::{
    AccessCommand, Command, CreateMode, Identities, Identity, NewToken, Outcome, PathGrant, Refusal, Request,
    Right, Rights, RoleName, TokenHash, TokenId,
};

use crate::cluster::{Cluster, create, path, settings_applied};

const TOKEN: TokenId = TokenId([2; 16]);

async fn ask(node: &Node, caller: Identities, command: Command) -> Outcome {
    let request = Request {
        caller,
        ..Request::anonymous(command)
    };
    node.propose(request).await.unwrap().outcome
}

async fn manage(node: &Node, command: AccessCommand) {
    let operator = Identities::new([Identity::Super]);
    ask(node, operator, Command::Access(command)).await.unwrap();
}

async fn set_role(node: &Node, grants: Vec<PathGrant>) {
    let role = RoleName::parse("writer").unwrap();
    manage(node, AccessCommand::SetRole { role, grants }).await;
}

/// Starts a secured cluster, in which the token's role grants nothing.
async fn secured(size: u64) -> Cluster {
    let cluster = Cluster::start(size).await;
    let node = cluster.node(1);
    manage(
        node,
        AccessCommand::Secure {
            token: TokenId([1; 16]),
            hash: TokenHash([1; 32]),
            description: "first".into(),
            anonymous: None,
        },
    )
    .await;
    set_role(node, Vec::new()).await;
    let token = NewToken {
        id: TOKEN,
        hash: TokenHash([2; 32]),
        role: RoleName::parse("writer").unwrap(),
        description: "".into(),
        expires_at_ms: None,
    };
    manage(node, AccessCommand::CreateToken(token)).await;
    cluster
}

fn caller() -> Identities {
    Identities::new([Identity::Token(TOKEN)])
}

#[tokio::test]
async fn request_without_right_costs_no_log_entry() {
    let mut cluster = secured(1).await;
    let node = cluster.node(1);
    settings_applied(node).await;
    let before = node.read(|store| store.zxid());
    let write = create("/a", "x", CreateMode::Persistent);
    let forbidden = Refusal::Forbidden {
        right: Right::Write,
        path: path("/a"),
    };
    for _ in 0..3 {
        assert_eq!(ask(node, caller(), write.clone()).await, Err(forbidden.clone()));
    }
    let stranger = ask(node, Identities::none(), write.clone()).await;
    assert!(
        matches!(stranger, Err(Refusal::Unauthenticated(_))),
        "{stranger:?}"
    );
    assert_eq!(node.read(|store| store.zxid()), before);
    assert_eq!(node.admission_counts().new, 0, "no permit is left in use");
    cluster.stop_all().await;
}

#[tokio::test]
async fn right_granted_through_another_node_counts_at_once() {
    let mut cluster = secured(3).await;
    let leader = cluster.leader().await;
    let follower = cluster.follower().await;
    let (leader, follower) = (cluster.node(leader), cluster.node(follower));
    for number in 0..50 {
        let write = create(&format!("/a{number}"), "x", CreateMode::Persistent);
        set_role(leader, Vec::new()).await;
        let refused = ask(follower, caller(), write.clone()).await;
        assert!(matches!(refused, Err(Refusal::Forbidden { .. })), "{refused:?}");
        let grant = PathGrant {
            prefix: path("/"),
            rights: Rights::of([Right::Write]),
        };
        set_role(leader, vec![grant]).await;
        ask(follower, caller(), write).await.unwrap();
    }
    cluster.stop_all().await;
}
