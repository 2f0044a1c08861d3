//! Pages of other sites, in browsers that reach a node, and callers that use an unknown host name: both are rejected
//! before any other check.

use lock_api::http::{HttpConfig, KnownNames};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Reply, Server, in_time};

/// Sends a request verbatim, and reads the answer.
async fn send(server: &Server, request: &str) -> Reply {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    in_time("the answer comes", stream.read_to_end(&mut bytes))
        .await
        .unwrap();
    Reply::parse(&bytes)
}

async fn get(server: &Server, path: &str, headers: &[&str]) -> Reply {
    ask(server, "GET", path, headers).await
}

async fn ask(server: &Server, method: &str, path: &str, headers: &[&str]) -> Reply {
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let head = format!("{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\nContent-Length: 0\r\n\r\n");
    send(server, &head).await
}

fn named(hosts: &[&str], origins: &[&str]) -> HttpConfig {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    HttpConfig {
        names: KnownNames {
            hosts: texts(hosts),
            origins: texts(origins),
            certificate: None,
        },
        ..HttpConfig::default()
    }
}

#[tokio::test]
async fn unknown_host_names_are_rejected() {
    let server = Server::start_node(named(&["locks.example"], &[]), |node| {
        let own = node.raft.members.get_mut(&1).unwrap();
        own.http = "n1.internal:7400".into();
    })
    .await;
    let own = server.address.to_string();
    for known in [
        &own,
        "localhost:1",
        "[::1]",
        "locks.example",
        "LOCKS.example:99",
        "n1.internal",
    ] {
        let reply = get(&server, "/v1/sessions", &[&format!("Host: {known}")]).await;
        assert_eq!(reply.status, 200, "{known}: {reply:?}");
    }
    // HTTP/1.0 programs send no host.
    let reply = send(&server, "GET /healthz HTTP/1.0\r\n\r\n").await;
    assert_eq!(reply.status, 200, "{reply:?}");

    let before = server.get("/v1/sessions").await.expect(200);
    for (method, path) in [
        ("GET", "/v1/sessions"),
        ("POST", "/v1/sessions"),
        ("GET", "/docs"),
        ("GET", "/metrics"),
        ("GET", "/nowhere"),
        ("BREW", "/v1/sessions"),
    ] {
        for strange in ["evil.example", "evil.example:7400", "localhost.evil.example"] {
            let reply = ask(&server, method, path, &[&format!("Host: {strange}")]).await;
            let problem = reply.problem(421, "wrong_host");
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains("http.allowed_hosts"), "{detail}");
        }
    }
    // Headers beside `Host` count as little as headers in its place.
    for headers in [
        &["Host: evil.example", "X-Forwarded-Host: localhost"][..],
        &["Host: evil.example", "Forwarded: host=localhost;for=127.0.0.1"],
    ] {
        get(&server, "/v1/sessions", headers)
            .await
            .problem(421, "wrong_host");
    }
    let reply = get(&server, "http://evil.example/v1/sessions", &["Host: localhost"]).await;
    reply.problem(421, "wrong_host");
    for (headers, why) in [
        (&["Host: localhost", "Host: evil.example"][..], "two"),
        (&["Host: me@localhost"], "a name of a person"),
        (&["Host: localhost:port"], "no port"),
    ] {
        let reply = get(&server, "/v1/sessions", headers).await;
        assert_eq!(reply.status, 400, "{why}: {reply:?}");
    }
    assert_eq!(
        server.get("/v1/sessions").await.expect(200),
        before,
        "nothing was done"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_page_of_another_site_is_refused() {
    let server = Server::start_with(named(&[], &["https://console.example"])).await;
    let host = format!("Host: {}", server.address);
    let own = format!("Origin: http://{}", server.address);
    let before = server.get("/v1/sessions").await.expect(200);
    let elsewhere = format!("Origin: http://127.0.0.1:{}", server.address.port() ^ 1);
    for foreign in [
        "Origin: http://evil.example",
        "Origin: null",
        "Origin: http://localhost:3000",
        &elsewhere,
        "Origin: https://console.example.evil.example",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
        // A form of another page is sent without a preflight request.
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nContent-Type: text/plain",
    ] {
        let reply = ask(&server, "POST", "/v1/sessions", &[&host, foreign]).await;
        reply.problem(403, "foreign_origin");
        assert_eq!(reply.header("access-control-allow-origin"), None);
    }
    let reply = get(&server, "/v1/sessions", &[&host, "Sec-Fetch-Site: cross-site"]).await;
    reply.problem(403, "foreign_origin");
    let asked_before = "Origin: http://evil.example\r\nAccess-Control-Request-Method: DELETE";
    let reply = ask(&server, "OPTIONS", "/v1/sessions", &[&host, asked_before]).await;
    reply.problem(403, "foreign_origin");
    assert_eq!(
        server.get("/v1/sessions").await.expect(200),
        before,
        "nothing was done"
    );

    for welcome in [
        &own,
        "Origin: https://console.example",
        "Sec-Fetch-Site: same-origin",
        "Sec-Fetch-Site: none",
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate",
    ] {
        let reply = get(&server, "/v1/sessions", &[&host, welcome]).await;
        assert_eq!(reply.status, 200, "{welcome}: {reply:?}");
        // No other site may read an answer, even where it may send the request.
        assert_eq!(reply.header("access-control-allow-origin"), None);
    }
    server.stop().await;
}

#[tokio::test]
async fn answers_are_not_cached_and_pages_run_only_their_own_scripts() {
    let server = Server::start().await;
    for (path, status) in [
        ("/v1/sessions", 200),
        ("/v1/locks/none", 404),
        ("/nowhere", 404),
        ("/docs", 200),
        ("/", 200),
        ("/dashboard/app.js", 200),
        ("/v1/openapi.json", 200),
    ] {
        let reply = get(&server, path, &["Host: localhost"]).await;
        assert_eq!(reply.status, status, "{reply:?}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert!(reply.header("cache-control").is_some(), "{path}");
        let policy = reply.header("content-security-policy");
        assert_eq!(policy.is_some(), matches!(path, "/docs" | "/"), "{path}");
        if let Some(policy) = policy {
            assert!(policy.starts_with("default-src 'none'; "), "{policy}");
            assert!(
                policy.contains("style-src 'self'") && !policy.contains("unsafe"),
                "{policy}"
            );
            assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
            assert_eq!(reply.header("x-frame-options"), Some("deny"));
        }
    }
    server.stop().await;
}
