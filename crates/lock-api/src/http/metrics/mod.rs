//! `GET /metrics`: what the node, its front ends and the process measure, in the text format that Prometheus reads. What is
//! measured is for those to say who register it; docs/metrics.md has every name.

mod doors;
mod process;
pub mod requests;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Uri};
use axum::response::Response;
use prometheus_client::encoding::text;
use raft_node::Node;
use raft_node::metrics::sheet::{self, Registry};

use self::requests::Requests;
use super::Shared;
use super::exchange::{Answer, no_query};
use super::problem::Problem;
use super::trace::Tracing;

pub use doors::register_doors;

/// The format: OpenMetrics, which Prometheus asks for first, and which everything else that scrapes reads, too.
const FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Has the node, its process and the HTTP front end asked at every scrape.
pub fn register(registry: &mut Registry, node: &Node, requests: &Arc<Requests>) {
    node.register_metrics(registry);
    sheet::register(registry, requests.clone());
    sheet::register(registry, process::Build);
    sheet::register_unprefixed(registry, process::Process);
}

/// Has whoever collects spans asked what became of them.
pub fn register_traces(registry: &mut Registry, tracing: Tracing) {
    sheet::register(registry, tracing);
}

/// `GET /metrics`.
pub async fn metrics(State(api): State<Shared>, uri: Uri) -> Answer {
    no_query(&uri)?;
    let mut text = String::new();
    text::encode(&mut text, &api.registry)
        .map_err(|error| Problem::internal(format!("the metrics cannot be written: {error}")))?;
    let mut response = Response::new(Body::from(text));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(FORMAT));
    Ok(response)
}
