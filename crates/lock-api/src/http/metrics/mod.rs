//! `GET /metrics`: metrics of the node, its front ends and the process, in the text formats that Prometheus reads. Each
//! component registers its own metrics; docs/reference/metrics.md has every name.

mod connections;
mod format;
mod process;
pub mod requests;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue, Uri};
use axum::response::Response;
use lock_node::Node;
use lock_node::metrics::text_format::{self, Registry};
use prometheus_client::encoding::text;

use self::format::Format;
use self::requests::Requests;
use super::Shared;
use super::extract::{HandlerResult, no_query};
use super::problem::Problem;
use super::trace::Tracing;

pub use connections::register_connections;

/// Registers the metrics of the node, the process and the HTTP front end, to be read at every scrape.
pub fn register(registry: &mut Registry, node: &Node, requests: &Arc<Requests>) {
    node.register_metrics(registry);
    text_format::register(registry, requests.clone());
    text_format::register(registry, process::Build);
    text_format::register_unprefixed(registry, process::Process);
}

/// Registers the exporter of spans as a source of metrics.
pub fn register_traces(registry: &mut Registry, tracing: Tracing) {
    text_format::register(registry, tracing);
}

/// `GET /metrics`.
pub async fn metrics(State(api): State<Shared>, uri: Uri, headers: HeaderMap) -> HandlerResult {
    no_query(&uri)?;
    let mut text = String::new();
    text::encode(&mut text, &api.registry)
        .map_err(|error| Problem::internal(format!("the metrics cannot be written: {error}")))?;
    let format = Format::of(&headers);
    let mut response = Response::new(Body::from(format.written(text)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    headers.insert(VARY, HeaderValue::from_static("accept"));
    Ok(response)
}
