//! Encoding of spans as OTLP in JSON (opentelemetry-proto, `trace/v1`, and the mapping in the specification
//! of OTLP). Names of fields are in lowerCamelCase, ids in hexadecimal, 64-bit numbers are text, and
//! enumerations are numbers.

use std::time::{SystemTime, UNIX_EPOCH};

use lock_node::traces::{Span, SpanKind};
use serde_json::{Value, json};

/// `STATUS_CODE_ERROR`.
const STATUS_ERROR: u8 = 2;

/// Origin of the spans.
pub struct Resource {
    /// Name of the cluster.
    pub cluster: String,
    /// Id of the node.
    pub node: u64,
}

/// Returns the body of a request that exports these spans.
pub fn request(resource: &Resource, spans: &[Span]) -> String {
    let spans: Vec<Value> = spans.iter().map(span).collect();
    let request = json!({
        "resourceSpans": [{
            "resource": {
                "attributes": attributes([
                    ("service.name", "lockgate"),
                    ("service.namespace", &resource.cluster),
                    ("service.instance.id", &resource.node.to_string()),
                    ("service.version", env!("CARGO_PKG_VERSION")),
                ]),
            },
            "scopeSpans": [{
                "scope": {"name": "lockgate", "version": env!("CARGO_PKG_VERSION")},
                "spans": spans,
            }],
        }],
    });
    request.to_string()
}

fn span(span: &Span) -> Value {
    let mut document = json!({
        "traceId": hex(&span.trace),
        "spanId": hex(&span.id),
        "name": span.name,
        "kind": match span.kind {
            SpanKind::Internal => 1,
            SpanKind::Server => 2,
        },
        "startTimeUnixNano": nanoseconds(span.begin),
        "endTimeUnixNano": nanoseconds(span.end),
        "attributes": attributes(span.attributes.iter().map(|(name, value)| (*name, value.as_str()))),
    });
    if let Some(parent) = &span.parent {
        document["parentSpanId"] = hex(parent).into();
    }
    if span.failed {
        document["status"] = json!({"code": STATUS_ERROR});
    }
    document
}

fn attributes<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<Value> {
    let given = given.into_iter();
    given
        .map(|(name, value)| json!({"key": name, "value": value_of(name, value)}))
        .collect()
}

/// Returns the value of an attribute. One attribute is a number by the conventions of OpenTelemetry.
fn value_of(name: &str, value: &str) -> Value {
    match name {
        "http.response.status_code" => json!({"intValue": value}),
        _ => json!({"stringValue": value}),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn nanoseconds(at: SystemTime) -> String {
    at.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos())
        .to_string()
}
