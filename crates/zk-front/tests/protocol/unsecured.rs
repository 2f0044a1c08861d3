//! A node that rejects all clients until its cluster is secured.

use zk_front::ZkConfig;
use znode_store::{
    AccessCommand, Command, Identities, Identity, PathGrant, Reply, Request, Rights, TokenHash, TokenId,
    ZPath,
};

use crate::client::{Client, Stream};
use crate::cluster::{Cluster, in_time};

#[tokio::test]
async fn clients_are_rejected_before_the_cluster_is_secured() {
    let config = ZkConfig {
        secured_only: true,
        ..ZkConfig::default()
    };
    let cluster = Cluster::start_with(1, config).await;
    let mut early = Stream::open(cluster.address(1)).await;
    assert_eq!(early.frame().await, None);
    assert_eq!(cluster.node(1).read(|store| store.sessions().len()), 0);

    let secure = AccessCommand::Secure {
        token: TokenId([1; 16]),
        hash: TokenHash([2; 32]),
        description: "".into(),
        anonymous: Some(vec![PathGrant {
            prefix: ZPath::root(),
            rights: Rights::ALL,
        }]),
    };
    let request = Request {
        caller: Identities::new([Identity::Super]),
        ..Request::anonymous(Command::Access(secure))
    };
    let applied = in_time("the cluster is secured", cluster.node(1).propose(request)).await;
    assert_eq!(applied.unwrap().outcome, Ok(Reply::Secured));
    let mut client = Client::connect(cluster.address(1)).await;
    assert_eq!(client.create("/a", 0).await, "/a");
    cluster.stop().await;
}
