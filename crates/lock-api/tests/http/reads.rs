//! Several reads at one position.

use serde_json::json;

use crate::support::Server;

#[tokio::test]
async fn each_read_is_answered_for_itself() {
    let server = Server::start().await;
    server
        .post("/v1/znodes/a", json!({"data": "héllo"}))
        .await
        .expect(201);
    server
        .post("/v1/znodes/raw", json!({"data_base64": "AP8="}))
        .await
        .expect(201);
    for name in ["x1", "x2", "y"] {
        server
            .post(&format!("/v1/znodes/a/{name}"), json!({}))
            .await
            .expect(201);
    }
    let hidden = json!({"acl": [{"perms": "cdrwa", "scheme": "ip", "id": "192.0.2.1"}]});
    server.post("/v1/znodes/hidden", hidden).await.expect(201);

    let body = json!({"reads": [
        {"get": {"path": "/a"}},
        {"get": {"path": "/none"}},
        {"children": {"path": "/a", "prefix": "x", "limit": 1}},
        {"children": {"path": "/a", "cursor": "x2"}},
        {"exists": {"path": "/hidden"}},
        {"get": {"path": "/hidden"}},
        {"children": {"path": "/hidden"}},
        {"get": {"path": "no path"}},
        {"children": {"path": "/a", "limit": 0}},
        {"get": {"path": "/raw"}},
    ]});
    let seen = server.post("/v1/read?linearizable=true", body).await.expect(200);
    let results = seen["results"].as_array().unwrap();
    assert_eq!(results.len(), 10);

    // Each result equals the answer of the single read.
    assert_eq!(results[0]["get"], server.get("/v1/znodes/a").await.expect(200));
    assert_eq!(results[0]["get"]["data"], "héllo");
    assert_eq!(results[9]["get"]["data_base64"], "AP8=");
    let page = &results[2]["children"];
    assert_eq!(
        (
            &page["path"],
            &page["children"][0]["name"],
            &page["next_cursor"],
            &page["stat"]["num_children"]
        ),
        (&json!("/a"), &json!("x1"), &json!("x1"), &json!(3))
    );
    assert_eq!(page["children"].as_array().unwrap().len(), 1);
    let page = &results[3]["children"];
    assert_eq!(
        (&page["children"][0]["name"], &page["next_cursor"]),
        (&json!("y"), &json!(null))
    );
    assert_eq!(results[4]["exists"]["path"], "/hidden");
    assert_eq!(results[4]["exists"]["stat"]["version"], 0);
    // Each failure equals the problem of the single read.
    for (index, code, status) in [
        (1, "no_znode", 404),
        (5, "forbidden", 403),
        (6, "forbidden", 403),
        (7, "bad_path", 400),
        (8, "bad_request", 400),
    ] {
        let problem = &results[index]["problem"];
        assert_eq!(
            (&problem["code"], &problem["status"]),
            (&json!(code), &json!(status)),
            "{index}"
        );
    }
    assert_eq!(results[1]["problem"]["path"], "/none");
    assert!(
        seen["zxid"].as_u64() >= results[4]["exists"]["stat"]["czxid"].as_u64(),
        "{seen}"
    );
    server.stop().await;
}

#[tokio::test]
async fn all_reads_show_one_state() {
    let server = Server::start().await;
    for path in ["/v1/znodes/a", "/v1/znodes/b"] {
        server.post(path, json!({"data": "0"})).await.expect(201);
    }
    let reads = json!({"reads": [{"get": {"path": "/a"}}, {"get": {"path": "/b"}}]});
    let mut write = Box::pin(async {
        for round in 1..=100 {
            let data = round.to_string();
            let body = json!({"ops": [
                {"set": {"path": "/a", "data": data}},
                {"set": {"path": "/b", "data": data}},
            ]});
            server.post("/v1/txn", body).await.expect(200);
        }
    });
    let mut last = 0;
    loop {
        tokio::select! {
            biased;
            seen = server.post("/v1/read", reads.clone()) => {
                let seen = seen.expect(200);
                let (a, b) = (&seen["results"][0]["get"], &seen["results"][1]["get"]);
                assert_eq!(a["data"], b["data"], "{seen}");
                assert_eq!(a["stat"]["version"], b["stat"]["version"], "{seen}");
                let zxid = seen["zxid"].as_u64().unwrap();
                assert!(zxid >= last && zxid >= a["stat"]["mzxid"].as_u64().unwrap(), "{seen}");
                last = zxid;
            }
            () = &mut write => break,
        }
    }
    drop(write);
    server.stop().await;
}

#[tokio::test]
async fn reads_of_one_request_are_bounded() {
    let server = Server::start().await;
    let get = json!({"get": {"path": "/"}});
    for count in [0, 101] {
        server
            .post("/v1/read", json!({"reads": vec![get.clone(); count]}))
            .await
            .problem(400, "bad_request");
    }
    let all = server
        .post("/v1/read", json!({"reads": vec![get; 100]}))
        .await
        .expect(200);
    assert_eq!(all["results"].as_array().unwrap().len(), 100);

    let children = |count, times| {
        let children = json!({"children": {"path": "/", "limit": count}});
        json!({"reads": vec![children; times]})
    };
    server.post("/v1/read", children(1000, 10)).await.expect(200);
    server
        .post("/v1/read", children(1000, 11))
        .await
        .problem(400, "bad_request");

    let much = "x".repeat(znode_store::MAX_DATA_BYTES);
    server
        .post("/v1/znodes/much", json!({"data": much}))
        .await
        .expect(201);
    let body = json!({"reads": vec![json!({"get": {"path": "/much"}}); 5]});
    let seen = server.post("/v1/read", body).await.expect(200);
    for index in 0..4 {
        let data = seen["results"][index]["get"]["data"].as_str().unwrap();
        assert_eq!(data.len(), much.len());
    }
    assert_eq!(seen["results"][4]["problem"]["code"], "too_large");
    server.stop().await;
}

#[tokio::test]
async fn invalid_read_is_rejected() {
    let server = Server::start().await;
    for reads in [
        json!({"get": {"path": "/"}}),
        json!([{"get": "/"}]),
        json!([{"get": {}}]),
        json!([{"look": {"path": "/"}}]),
        json!([{"get": {"path": "/", "limit": 1}}]),
        json!([{"get": {"path": "/"}, "exists": {"path": "/"}}]),
    ] {
        server
            .post("/v1/read", json!({"reads": reads}))
            .await
            .problem(400, "bad_request");
    }
    server.stop().await;
}
