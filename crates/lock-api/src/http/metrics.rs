//! `GET /metrics`: what the node and this front end measure, in the text format that Prometheus reads. What is measured
//! is for those to say who register it.

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Uri};
use axum::response::Response;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use raft_node::Node;

use super::Shared;
use super::exchange::{Answer, no_query};
use super::problem::Problem;

/// The format: OpenMetrics, which Prometheus asks for first, and which everything else that scrapes reads, too.
const FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All that is measured here.
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// What the node measures.
    pub fn of(node: &Node) -> Self {
        let mut registry = Registry::default();
        node.register_metrics(&mut registry);
        Self { registry }
    }
}

/// `GET /metrics`.
pub async fn metrics(State(api): State<Shared>, uri: Uri) -> Answer {
    no_query(&uri)?;
    let mut text = String::new();
    text::encode(&mut text, &api.metrics.registry)
        .map_err(|error| Problem::internal(format!("the metrics cannot be written: {error}")))?;
    let mut response = Response::new(Body::from(text));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(FORMAT));
    Ok(response)
}
