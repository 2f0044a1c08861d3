//! API documentation: OpenAPI 3.1 for programs, and a page for people. Both are generated from the types that the
//! routes read and write, from the table of problems, and from the descriptions of the operations in [`by_tag`]. The
//! tests compare both with the routes and with every answer that they see.

mod by_tag;
mod operation;
mod page;
mod problem;
mod schema_text;
pub mod words;

use std::sync::LazyLock;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, Uri};
use axum::response::Response;
use serde_json::{Map, Value, json};
use znode_store::MAX_LOCKS_AT_ONCE;

use self::operation::Components;
use super::extract::{HandlerResult, no_query};
use super::reads::MAX_READS;
use super::txn::MAX_OPS;

/// The document, built once at the first request, because it does not change while the program runs.
static DOCUMENT: LazyLock<Value> = LazyLock::new(make);
static JSON: LazyLock<Bytes> = LazyLock::new(|| serde_json::to_vec(&*DOCUMENT).expect("it is JSON").into());
static PAGE: LazyLock<Bytes> = LazyLock::new(|| page::render(&DOCUMENT).into());

/// Content security policy of the page. It loads nothing from elsewhere and runs no script: the page is text and its
/// style sheet.
const PAGE_POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Returns the API as an OpenAPI 3.1 document, as a node serves it at `/v1/openapi.json`.
pub fn openapi() -> &'static Value {
    &DOCUMENT
}

/// `GET /v1/openapi.json`
pub async fn document(uri: Uri) -> HandlerResult {
    no_query(&uri)?;
    Ok(fixed(JSON.clone(), "application/json"))
}

/// `GET /docs`
pub async fn docs(uri: Uri) -> HandlerResult {
    no_query(&uri)?;
    let mut response = fixed(PAGE.clone(), "text/html; charset=utf-8");
    let policy = HeaderValue::from_static(PAGE_POLICY);
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    Ok(response)
}

/// `GET /docs/style.css`
pub async fn style(uri: Uri) -> HandlerResult {
    no_query(&uri)?;
    Ok(fixed(
        Bytes::from_static(page::STYLE.as_bytes()),
        "text/css; charset=utf-8",
    ))
}

fn fixed(content: Bytes, content_type: &'static str) -> Response {
    let mut response = Response::new(Body::from(content));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn make() -> Value {
    let mut components = Components::new();
    let (mut tags, mut paths) = (Vec::new(), Map::new());
    for tag in by_tag::tags() {
        tags.push(json!({"name": tag.name, "description": tag.description}));
        for operation in tag.operations {
            let (path, method) = (operation.path, operation.method);
            let path = paths.entry(path).or_insert_with(|| json!({}));
            path[method] = operation.document(tag.name, &mut components);
        }
    }
    let mut schemas = json!(components);
    flatten(&mut schemas);
    name_objects(&mut schemas);
    bound_lists(&mut schemas);
    // No schema refers any more to types that were merged into others.
    let text = format!("{schemas}{}", json!(paths));
    let names_it = |name: &str| text.contains(&format!("\"#/components/schemas/{name}\""));
    let named = schemas.as_object_mut().expect("they have names");
    named.retain(|name, _| names_it(name));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Lockgate",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Locks, sessions and znodes, agreed upon by a cluster",
            "description": INTRODUCTION,
        },
        "servers": [{"url": "/", "description": "Every node answers every request."}],
        "tags": tags,
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {
            "type": "http",
            "scheme": "bearer",
            "description": "Needed in a secured cluster, unless a client certificate has a role, or `anonymous` allows it.",
        }}},
        "security": [{}, {"token": []}],
    })
}

const INTRODUCTION: &str = "Every node answers every request; one that does not lead passes writes on. Bodies are JSON, whatever \
    their `Content-Type` says. Unknown fields and unknown query parameters are refused, so that a typo never silently means the \
    default; `null` for a field that may be left away means the same as leaving it away, unless the field says otherwise. Answers \
    may get more fields. A whole number may be written in any way that JSON has for it (`5000`, `5000.0`, `5e3`); answers have it without a fraction or an exponent. Durations are integers in milliseconds (`…_ms`), times RFC 3339 UTC (`…_at`). Limits of texts count \
    bytes of UTF-8. A body of more bytes than the server's configuration allows is `too_large`. Where nothing is served the \
    answer is 404, `no_route`; by another method 405, `method_not_allowed`, with `Allow`.";

/// Names every object, because generators of clients make a type of each named schema, and nothing usable of an object
/// without a name. The variants of an enumeration with data are named after both: `{"create": …}` of `OpBody` is
/// `OpBodyCreate`.
fn name_objects(schemas: &mut Value) {
    let mut named = Map::new();
    for (name, schema) in schemas.as_object_mut().expect("they have names") {
        let choices = schema.get_mut("oneOf").and_then(Value::as_array_mut);
        for choice in choices.into_iter().flatten() {
            let Some(variant) = choice["properties"]
                .as_object()
                .and_then(|fields| fields.keys().next())
            else {
                continue;
            };
            let name = format!("{name}{}", in_camel_case(variant));
            // Such a variant has exactly one field, its name: serde rejects others, which utoipa does not declare.
            choice["additionalProperties"] = json!(false);
            named.insert(name.clone(), std::mem::replace(choice, reference(&name)));
        }
    }
    let entry = schemas.pointer_mut("/Problem/properties/cycle/items");
    let entry = entry.expect("a problem may have a cycle");
    let name = "CycleEntry";
    named.insert(name.to_owned(), std::mem::replace(entry, reference(name)));
    for (name, schema) in named {
        let before = schemas
            .as_object_mut()
            .expect("they have names")
            .insert(name, schema);
        assert!(before.is_none(), "two schemas have one name");
    }
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// Converts `set_acl` to `SetAcl`.
fn in_camel_case(word: &str) -> String {
    let parts = word.split('_').map(|part| {
        let (first, rest) = part.split_at(part.len().min(1));
        first.to_ascii_uppercase() + rest
    });
    parts.collect()
}

/// Merges the fields of flattened types (`serde(flatten)`) into the schemas that contain them, because the JSON has one
/// list of fields.
fn flatten(schemas: &mut Value) {
    let before = schemas.clone();
    for schema in schemas.as_object_mut().expect("they have names").values_mut() {
        let Some(parts) = schema.as_object_mut().expect("a schema").remove("allOf") else {
            continue;
        };
        let description = schema.get("description").cloned();
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for part in parts.as_array().expect("allOf is a list") {
            let part = named(&before, part).unwrap_or(part);
            properties.extend(part["properties"].as_object().cloned().unwrap_or_default());
            required.extend(part["required"].as_array().cloned().unwrap_or_default());
        }
        *schema = json!({"type": "object", "required": required, "properties": properties});
        if let Some(description) = description {
            schema["description"] = description;
        }
    }
    // The answer has the children of a znode if they were requested: both fields or none.
    let children = before["ChildrenAnswer"]["properties"].clone();
    let fields = schemas["ZnodeAnswer"]["properties"].as_object_mut();
    fields
        .expect("a znode has fields")
        .extend(children.as_object().expect("they are fields").clone());
}

/// Adds the maximum length of lists in bodies.
fn bound_lists(schemas: &mut Value) {
    for (schema, list, most) in [
        ("TxnBody", "ops", MAX_OPS),
        ("ReadsBody", "reads", MAX_READS),
        ("MultilockAcquireBody", "locks", MAX_LOCKS_AT_ONCE),
        ("MultilockReleaseBody", "holders", MAX_LOCKS_AT_ONCE),
    ] {
        let list = schemas.pointer_mut(&format!("/{schema}/properties/{list}"));
        let list = list.expect("the bodies have these lists");
        (list["minItems"], list["maxItems"]) = (json!(1), json!(most));
    }
}

fn named<'a>(schemas: &'a Value, schema: &Value) -> Option<&'a Value> {
    let name = schema
        .get("$ref")?
        .as_str()?
        .strip_prefix("#/components/schemas/")?;
    schemas.get(name)
}

#[cfg(test)]
mod tests;
