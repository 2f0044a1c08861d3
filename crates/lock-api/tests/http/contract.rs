//! Comparison of a server's answers with the document that it publishes. Every answer that a test of this binary gets
//! passes through here. The operation has to be documented, and with it the status, the content type, the code of a
//! problem, and the body field by field; and so has the body of a successful request.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex};

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::support::Reply;

/// Verbs of locks, the last segments of their addresses.
pub const VERBS: [&str; 9] = [
    "acquire",
    "release",
    "downgrade",
    "upgrade",
    "release-request",
    "release-request/reply",
    "break",
    "check",
    "history",
];

/// Operation that was requested.
#[derive(Debug, Clone)]
pub struct SentRequest {
    pub server: SocketAddr,
    pub method: String,
    pub address: String,
    pub body: Option<String>,
}

impl SentRequest {
    pub fn new(server: SocketAddr, method: &str, address: &str, body: Option<&str>) -> Self {
        Self {
            server,
            method: method.to_owned(),
            address: address.to_owned(),
            body: body.map(str::to_owned),
        }
    }
}

/// A documented answer: operation, status, and the code of a problem, or nothing.
pub type Answer = (String, u16, String);

/// Answers of each server.
static SEEN: Mutex<BTreeMap<SocketAddr, BTreeSet<Answer>>> = Mutex::new(BTreeMap::new());

/// The document in strict form: fields without a schema are not allowed here, although callers have to expect them.
static STRICT: LazyLock<Value> = LazyLock::new(|| {
    let mut document = lock_api::http::openapi().clone();
    let schemas = document["components"]["schemas"].as_object_mut().unwrap();
    for schema in schemas.values_mut() {
        if schema.get("properties").is_some() {
            schema["additionalProperties"] = json!(false);
        }
    }
    document
});

static VALIDATORS: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);

/// Discards the answers of an earlier server that had the same port.
pub fn forget(server: SocketAddr) {
    SEEN.lock().unwrap().remove(&server);
}

/// Returns the answers of the server at this address.
pub fn seen(server: SocketAddr) -> BTreeSet<Answer> {
    SEEN.lock().unwrap().get(&server).cloned().unwrap_or_default()
}

/// Finds the documented operation of an address, by its path in the document.
fn find(method: &str, address: &str) -> Option<(&'static String, &'static Value)> {
    let path = address.split('?').next().unwrap();
    let method = method.to_ascii_lowercase();
    let method = match &*method {
        "head" => "get",
        // OpenAPI cannot list Terraform's own methods, which are other names of these.
        "lock" if path.starts_with("/v1/terraform/locks/") => "post",
        "unlock" if path.starts_with("/v1/terraform/locks/") => "delete",
        method => method,
    };
    let segments: Vec<_> = path.split('/').collect();
    let after_a_name = |verb: &&str| {
        let rest = path
            .strip_prefix("/v1/locks/")
            .and_then(|rest| rest.strip_suffix(*verb));
        rest.is_some_and(|name| name.len() > 1 && name.ends_with('/'))
    };
    let verb = VERBS
        .into_iter()
        .filter(after_a_name)
        .max_by_key(|verb| verb.len());
    let is_contender = segments.len() > 5 && segments[segments.len() - 2] == "holders";
    let verb = match is_contender && path.starts_with("/v1/locks/") {
        true => verb.or(Some("holders/{holder}")),
        false => verb,
    };
    let fitting = STRICT["paths"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(template, item)| {
            let fits = match template.as_str() {
                "/v1/locks/{name}" => path.starts_with("/v1/locks/") && verb.is_none(),
                rest if rest.starts_with("/v1/locks/{name}/") => {
                    verb.is_some() && verb == rest.strip_prefix("/v1/locks/{name}/")
                }
                rest => match rest.strip_suffix("/{path}") {
                    Some(root) => {
                        path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'))
                    }
                    None => {
                        let parts: Vec<_> = rest.split('/').collect();
                        let same = |(part, segment): (&&str, &&str)| {
                            part == segment || (part.starts_with('{') && !segment.is_empty())
                        };
                        parts.len() == segments.len() && parts.iter().zip(&segments).all(same)
                    }
                },
            };
            fits && item.get(method).is_some()
        });
    let (template, item) = fitting.min_by_key(|(template, _)| template.matches('{').count())?;
    Some((template, &item[method]))
}

fn validator(name: String, schema: &Value) -> Arc<Validator> {
    let mut known = VALIDATORS.lock().unwrap();
    let make = || {
        let schema = json!({"components": STRICT["components"], "allOf": [schema]});
        let validator = jsonschema::options().should_validate_formats(true).build(&schema);
        Arc::new(validator.unwrap_or_else(|error| panic!("{error}")))
    };
    known.entry(name).or_insert_with(make).clone()
}

/// Checks a value against a schema of the document.
pub fn check(name: String, schema: &Value, value: &Value) -> Result<(), String> {
    let validator = validator(name, schema);
    let errors: Vec<_> = validator
        .iter_errors(value)
        .map(|error| format!("{error} at {}", error.instance_path()))
        .collect();
    match errors.is_empty() {
        true => Ok(()),
        false => Err(errors.join("; ")),
    }
}

/// Compares an event of a session's stream with the document.
#[track_caller]
pub fn hold_event(word: &str, data: &Value) {
    let schema = ["/v1/sessions/{session}/events", "/v1/events"]
        .into_iter()
        .find_map(|path| {
            let stream = &STRICT["paths"][path]["get"]["responses"]["200"];
            stream["content"]["text/event-stream"]["x-events"].get(word)
        });
    let schema = schema.unwrap_or_else(|| panic!("the event {word} is not in the document"));
    check(format!("event {word}"), schema, data)
        .unwrap_or_else(|wrong| panic!("not as documented: {wrong}\n{word} {data}"));
}

/// Records an answer that was checked elsewhere.
pub fn note(server: SocketAddr, id: &str, status: u16) {
    let mut seen = SEEN.lock().unwrap();
    let answers = seen.entry(server).or_default();
    answers.insert((id.to_owned(), status, String::new()));
}

/// Compares an answer with the document.
#[track_caller]
pub fn hold(asked: &SentRequest, reply: &Reply) {
    if let Err(wrong) = held(asked, reply) {
        panic!("not as documented: {wrong}\n{asked:?}\n{reply:?}");
    }
}

fn held(asked: &SentRequest, reply: &Reply) -> Result<(), String> {
    let must_have = |name: &str| match reply.header(name) {
        Some(_) => Ok(()),
        None => Err(format!("an answer {} without {name}", reply.status)),
    };
    // A rejected connection gets its answer before a request is read; only the others have a date.
    if reply.header("date").is_some() {
        must_have("request-id")?;
    }
    match reply.status {
        201 => must_have("location")?,
        429 | 503 => must_have("retry-after")?,
        _ => {}
    }
    let code = match reply.status {
        400.. => reply.json()["code"].as_str().unwrap_or_default().to_owned(),
        _ => String::new(),
    };
    let not_served = matches!(&*code, "no_route" | "method_not_allowed");
    let Some((path, operation)) = find(&asked.method, &asked.address) else {
        let problem = json!({"$ref": "#/components/schemas/Problem"});
        return match not_served {
            true => check("problem".to_owned(), &problem, &reply.json()),
            false => Err("the operation is not in the document".to_owned()),
        };
    };
    let (method, id) = (&asked.method, operation["operationId"].as_str().unwrap());
    if not_served {
        return Err(format!("{path} is documented"));
    }
    let status = reply.status.to_string();
    let answer = operation["responses"]
        .get(&status)
        .ok_or_else(|| format!("{id} has no {status}"))?;
    let name = format!("{id} {status}");
    match (answer["content"].as_object(), reply.header("content-type")) {
        (None, None) if reply.body.is_empty() => {}
        (Some(types), Some(own)) => {
            let own = own.split(';').next().unwrap();
            let content = types.get(own).ok_or_else(|| format!("{name} is not {own}"))?;
            if own.ends_with("json") && !method.eq_ignore_ascii_case("head") {
                check(format!("{name} {own}"), &content["schema"], &reply.json())?;
            }
        }
        (_, own) => return Err(format!("{name} is not {own:?}")),
    }
    let sent = asked.body.as_deref().filter(|body| !body.trim().is_empty());
    if let (200..=299, Some(sent)) = (reply.status, sent)
        && let Some(body) = operation.get("requestBody")
    {
        let sent = serde_json::from_str(sent).map_err(|error| error.to_string())?;
        let schema = &body["content"]["application/json"]["schema"];
        check(format!("{id} body"), schema, &sent).map_err(|wrong| format!("the request: {wrong}"))?;
    }
    let mut seen = SEEN.lock().unwrap();
    let answers = seen.entry(asked.server).or_default();
    answers.insert((id.to_owned(), reply.status, code));
    Ok(())
}
