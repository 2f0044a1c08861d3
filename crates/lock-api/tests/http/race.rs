//! A token is revoked while its requests are in progress at all nodes: the order of the log decides, and no write after
//! the revocation is acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::to_bytes;
use futures_util::future::join_all;
use serde_json::{Value, json};
use znode_store::{AccessCommand, Command, Identities, Identity, Request, TokenId, ZPath, Zxid};

use crate::matrix::House;
use crate::matrix::callers::Caller;
use crate::support::{in_time, until};

/// Number of writers at each node, so that there is always a request in progress.
const WRITERS: usize = 8;

/// Number of acknowledged writes at each node before the token is revoked.
const BEFORE: usize = 40;

async fn secured(count: u64) -> (Vec<Arc<House>>, Caller) {
    let houses: Vec<_> = House::open_all(count).await.into_iter().map(Arc::new).collect();
    let operator = Caller::with_token("operator", &houses[0].operator);
    let made = houses[0]
        .must(&operator, "POST", "/v1/access/secure", json!({}), 201)
        .await;
    (
        houses,
        Caller::with_token("admin", made["token"].as_str().unwrap()),
    )
}

async fn token_for(house: &House, admin: &Caller, role: &str, grants: Value) -> (TokenId, Caller) {
    let path = format!("/v1/roles/{role}");
    house
        .must(admin, "PUT", &path, json!({"grants": grants}), 200)
        .await;
    let made = house
        .must(admin, "POST", "/v1/tokens", json!({"role": role}), 201)
        .await;
    let id = made["id"].as_str().unwrap().parse().unwrap();
    (id, Caller::with_token(role, made["token"].as_str().unwrap()))
}

async fn close(houses: Vec<Arc<House>>) {
    let all = houses
        .into_iter()
        .map(|house| Arc::into_inner(house).expect("nobody else has it").close());
    join_all(all).await;
}

#[tokio::test]
async fn token_created_at_one_node_is_valid_at_all_nodes_at_once() {
    let (houses, admin) = secured(3).await;
    for round in 0..10 {
        let from = &houses[round % 3];
        let role = format!("round{round}");
        let (_, caller) = token_for(from, &admin, &role, json!([])).await;
        for house in &houses {
            let seen = house.must(&caller, "GET", "/v1/access", Value::Null, 200).await;
            assert_eq!(seen["you"]["role"], role);
        }
    }
    close(houses).await;
}

/// Checks that open streams end at every node, whichever node accepted the revocation.
#[tokio::test]
async fn streams_and_polls_end_at_all_nodes() {
    let (houses, admin) = secured(3).await;
    houses[0]
        .must(&admin, "POST", "/v1/znodes/team", json!({}), 201)
        .await;
    let grants = json!([{"path": "/team", "rights": ["read"]}]);
    let (id, caller) = token_for(&houses[0], &admin, "leaving", grants).await;
    let session = houses[0].session_of(&caller).await;
    let (mut streams, mut polls) = (Vec::new(), Vec::new());
    for house in &houses {
        house.node.read_barrier().await.unwrap();
        let path = format!("/v1/sessions/{session}/events?heartbeat=false");
        let stream = house.answer(&caller, "GET", &path, &Value::Null).await;
        assert_eq!(stream.status(), 200);
        streams.push(stream);
        let (house, caller) = (house.clone(), caller.clone());
        polls.push(tokio::spawn(async move {
            let path = "/v1/watch/team?kind=data&timeout_ms=3600000";
            house.answer(&caller, "GET", path, &Value::Null).await.status()
        }));
    }
    for house in &houses {
        until("it is armed", async || house.node.watch_counts().watches == 1).await;
    }
    let path = format!("/v1/tokens/{id}");
    houses[2].must(&admin, "DELETE", &path, Value::Null, 204).await;
    for stream in streams {
        let told = to_bytes(stream.into_body(), 1 << 20);
        let told = in_time("the stream ends", told).await.unwrap();
        let told = String::from_utf8(told.to_vec()).unwrap();
        assert!(told.contains("access_lost"), "{told}");
    }
    for poll in polls {
        assert_eq!(in_time("the poll ends", poll).await.unwrap(), 401);
    }
    close(houses).await;
}

#[tokio::test]
async fn no_write_is_acknowledged_after_a_revocation() {
    let (houses, admin) = secured(3).await;
    houses[0]
        .must(&admin, "POST", "/v1/znodes/race", json!({}), 201)
        .await;
    let grants = json!([{"path": "/race", "rights": ["write"]}]);
    let (id, writer) = token_for(&houses[0], &admin, "writer", grants).await;

    let acknowledged: Vec<_> = houses.iter().map(|_| Arc::new(AtomicUsize::new(0))).collect();
    let mut writers = Vec::new();
    for (at, house) in houses.iter().enumerate() {
        for number in 0..WRITERS {
            let (house, writer) = (house.clone(), writer.clone());
            let acknowledged = acknowledged[at].clone();
            writers.push(tokio::spawn(async move {
                let mut last = 0;
                for step in 0.. {
                    let path = format!("/v1/znodes/race/{at}-{number}-{step}");
                    let outcome = house.ask(&writer, "POST", &path, &json!({})).await;
                    match outcome.status {
                        201 => {
                            last = outcome.document["stat"]["czxid"].as_u64().unwrap();
                            acknowledged.fetch_add(1, Ordering::Relaxed);
                        }
                        401 => break,
                        _ => panic!("{outcome:?}"),
                    }
                }
                last
            }));
        }
    }
    until("all nodes are busy", async || {
        acknowledged
            .iter()
            .all(|count| count.load(Ordering::Relaxed) >= BEFORE)
    })
    .await;

    let revocation = Request {
        session: None,
        request_id: None,
        caller: Identities::new([Identity::Super]),
        command: Command::Access(AccessCommand::RevokeToken(id)),
    };
    let revoked = houses[1].node.propose(revocation).await.unwrap();
    assert!(revoked.outcome.is_ok(), "{revoked:?}");
    let last = in_time("all writers are refused", join_all(writers)).await;
    for last in last {
        let last = Zxid(last.unwrap());
        assert!(
            last < revoked.zxid,
            "{last:?} is acknowledged, and revoked at {:?}",
            revoked.zxid
        );
    }

    // Every znode that exists was acknowledged.
    let race = ZPath::parse("/race").unwrap();
    for house in &houses {
        house.node.read_barrier().await.unwrap();
        let newest = house.node.read(|store| {
            let names = store.children(&race).unwrap();
            let stats = names.iter().map(|name| {
                let path = ZPath::parse(&format!("/race/{name}")).unwrap();
                store.stat(&path).unwrap().czxid
            });
            stats.max().unwrap()
        });
        assert!(newest < revoked.zxid, "{newest:?} after {:?}", revoked.zxid);
    }
    close(houses).await;
}
