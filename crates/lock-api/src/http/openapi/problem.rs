//! Schema of errors. The codes are those of the one table. The facts beside them are declared here, and the tests
//! compare every problem that they see with it.

use serde_json::{Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::http::problem::{Code, Problem};

impl ToSchema for Problem {}

impl PartialSchema for Problem {
    fn schema() -> RefOr<Schema> {
        serde_json::from_value(document()).expect("it is a schema that utoipa knows")
    }
}

fn document() -> Value {
    let codes: Vec<_> = Code::ALL.iter().map(|code| code.word()).collect();
    let mut document = json!({
        "type": "object",
        "description": "What went wrong (RFC 9457). Programs switch on `code`; the facts beside it depend on the code.",
        "required": ["type", "title", "status", "detail", "code"],
        "properties": {
            "type": {"type": "string", "format": "uri-reference", "description": "Page about the code, at every node: `/docs#` and the code."},
            "title": {"type": "string", "description": "The code in a few words for people."},
            "status": {"type": "integer", "description": "The status of the answer.", "minimum": 400, "maximum": 599},
            "detail": {"type": "string", "description": "A sentence for people about this very case."},
            "code": {"type": "string", "description": "The word to switch on. It never changes its meaning.", "enum": codes},
            "lock": {"type": "string", "description": "The name of the lock that it is about."},
            "holder": {"type": "string", "description": "The contender that it is about."},
            "ended": {"type": "string", "description": "How the contender ended, as in `left_queue` and `lost`."},
            "holders": strings("Holders of the lock."),
            "mode": {"type": "string", "description": "How the lock is in use, or is held."},
            "fencing_token": {"type": "integer", "description": "The token with which the lock is not held."},
            "by": {"type": "string", "description": "The operator that took the lock away."},
            "reason": {"type": "string", "description": "Why the operator did."},
            "cycle": {
                "type": "array",
                "description": "Who would wait for whom: the caller first, the last one for the first one.",
                "items": {
                    "type": "object",
                    "required": ["session", "owner", "has", "awaits"],
                    "properties": {
                        "session": {"type": "string"},
                        "owner": {"type": "string"},
                        "has": {"type": "string", "description": "The lock that it holds or waits for."},
                        "awaits": {"type": "string", "description": "The lock that it waits for."},
                    },
                },
            },
            "session": {"type": "string", "description": "The session that it is about."},
            "path": {"type": "string", "description": "The znode that it is about."},
            "namespace": {"type": "string", "description": "The namespace that it is about."},
            "index": {"type": "integer", "description": "Which operation of the transaction failed, from 0."},
            "right": {"type": "string", "description": "The right that is missing, at `path`."},
            "token": {"type": "string", "description": "The id of the token that it is about."},
            "role": {"type": "string", "description": "The role that it is about."},
            "certificate": {"type": "string", "description": "The subject of the certificate that it is about."},
            "expected_version": {"type": "integer", "description": "The version that the caller expected."},
            "actual_version": {"type": "integer", "description": "The version that there is."},
            "ttl_ms": {"type": "integer", "description": "The time that none can have to live."},
            "of": {"type": "string", "description": "What there would be too much of."},
            "limit": {"type": "integer", "description": "How much of it may be, or the limit of the semaphore."},
            "would_be": {"type": "integer", "description": "How much it would be."},
            "bytes": {"type": "integer", "description": "How large the data is."},
        },
    });
    for (fact, schema) in of_members() {
        document["properties"][fact] = schema;
    }
    document
}

/// Returns the facts about members of the cluster. The macro `json` takes a bounded number of fields.
fn of_members() -> [(&'static str, Value); 7] {
    [
        (
            "leader",
            json!({"type": ["integer", "null"], "description": "The leader, if the node knows one."}),
        ),
        (
            "node_id",
            json!({"type": "integer", "description": "The member that it is about."}),
        ),
        (
            "next_node_id",
            json!({"type": "integer", "description": "An id that was never given."}),
        ),
        (
            "address",
            json!({"type": "string", "description": "The address that it is about."}),
        ),
        (
            "lag",
            json!({"type": "integer", "description": "How many entries the member lacks."}),
        ),
        (
            "voters",
            json!({"type": "integer", "description": "How many voters there would be."}),
        ),
        (
            "reachable",
            json!({"type": "integer", "description": "How many of them answer."}),
        ),
    ]
}

fn strings(description: &str) -> Value {
    json!({"type": "array", "description": description, "items": {"type": "string"}})
}
