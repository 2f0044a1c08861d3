//! The published document: it is served, covers all routes, and has valid examples.

use serde_json::{Value, json};

use crate::contract;
use crate::support::Server;

/// Addresses of the root of the tree, which the document writes as an empty `{path}`, and addresses without a lock
/// name.
const OTHERWISE: [&str; 7] = [
    "/v1/locks/",
    "/v1/znodes",
    "/v1/znodes/",
    "/v1/acl",
    "/v1/acl/",
    "/v1/watch",
    "/v1/watch/",
];

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "DELETE", "PATCH"];

#[tokio::test]
async fn the_document_and_the_page_are_served() {
    let server = Server::start().await;
    let document = server.get("/v1/openapi.json").await.expect(200);
    assert_eq!(&document, lock_api::http::openapi());
    assert_eq!(document["openapi"], "3.1.0");
    let page = server.get("/docs").await;
    assert_eq!(
        (page.status, page.header("content-type")),
        (200, Some("text/html; charset=utf-8"))
    );
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; style-src 'self';"),
        "{policy}"
    );
    let style = server.get("/docs/style.css").await;
    assert_eq!(
        (style.status, style.header("content-type")),
        (200, Some("text/css; charset=utf-8"))
    );
    server.stop().await;
}

/// Checks that every routed address accepts exactly the documented methods. So every route is documented, and every
/// documented operation has a route.
#[tokio::test]
async fn document_and_routes_agree() {
    let server = Server::start().await;
    let paths = lock_api::http::openapi()["paths"].as_object().unwrap();
    let mut told: Vec<&str> = paths.keys().map(String::as_str).collect();
    for address in lock_api::http::addresses() {
        // These routes exist only in builds with fail points.
        if address.starts_with("/v1/debug") || OTHERWISE.contains(&address) {
            continue;
        }
        if address == "/v1/locks/{*name_and_verb}" {
            told.retain(|path| !path.starts_with("/v1/locks/{name}"));
            continue;
        }
        let template = address.replace("{*", "{");
        let known = told.len();
        told.retain(|path| *path != template);
        assert_eq!(told.len() + 1, known, "{address} is routed and not documented");
    }
    assert!(told.is_empty(), "documented and not routed: {told:?}");

    for (path, item) in paths {
        let address = path
            .replace("{session}", "none")
            .replace("{id}", "none")
            .replace("{file}", "none")
            .replace("{holder}", "none")
            .replace("{name}", "a")
            .replace("{path}", "none");
        for method in METHODS {
            // Not executed: no operation has such a parameter.
            let reply = server.call(method, &format!("{address}?no=such"), None).await;
            let served = !matches!(reply.status, 405) && reply.header("allow").is_none();
            let documented = item.get(method.to_ascii_lowercase()).is_some();
            assert_eq!(served, documented, "{method} {path}: {reply:?}");
        }
    }
    server.stop().await;
}

#[test]
fn examples_match_their_schemas() {
    let document = lock_api::http::openapi();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let at = format!("{method} {path}");
            let request = [("request".to_owned(), &operation["requestBody"])];
            let answers = operation["responses"].as_object().unwrap();
            let answers = answers.iter().map(|(status, answer)| (status.clone(), answer));
            for (which, told) in request.into_iter().chain(answers) {
                let content = &told["content"]["application/json"];
                if let Some(example) = content.get("example") {
                    let name = format!("{at} {which}, the example");
                    contract::check(name.clone(), &content["schema"], example)
                        .unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
                }
            }
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                if let Some(example) = parameter.get("example") {
                    let name = format!("{at} {}", parameter["name"]);
                    contract::check(name.clone(), &parameter["schema"], example)
                        .unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
                }
            }
        }
    }
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        let examples = schema["examples"].as_array().into_iter().flatten();
        for example in examples.chain(schema.get("default")) {
            let reference = json!({"$ref": format!("#/components/schemas/{name}")});
            contract::check(format!("{name} alone"), &reference, example)
                .unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
        }
    }
    // The validator rejects invalid values, also deep in a document.
    let grant = json!({"$ref": "#/components/schemas/GrantAnswer"});
    let mut good = document["paths"]["/v1/locks/{name}/acquire"]["post"]["responses"]["200"]["content"]
        ["application/json"]["example"]
        .clone();
    for (field, value) in [
        ("fencing_token", json!("17")),
        ("mode", json!("Exclusive")),
        ("more", Value::Null),
    ] {
        let mut bad = good.clone();
        bad[field] = value;
        assert!(
            contract::check("a grant".into(), &grant, &bad).is_err(),
            "{field}"
        );
    }
    good.as_object_mut().unwrap().remove("holder");
    assert!(contract::check("a grant".into(), &grant, &good).is_err());
}
