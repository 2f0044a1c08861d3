//! Exporter of spans to an OpenTelemetry collector, in batches over OTLP (HTTP, JSON). Recording a span never
//! waits.
//!
//! The collector is a process beside the node, so the connection is plain HTTP. If the collector does not
//! answer, or more spans are recorded than it accepts, they are dropped and counted instead of kept. The code
//! that ends a span defines its contents.

mod otlp;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use cli_support::http_client;
use lock_node::counters::Counter;
use lock_node::traces::{Collector, Span, SpanCounts};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// Maximum number of spans in the queue: a few seconds of a busy node that traces every request, and a few
/// megabytes.
const QUEUE_CAPACITY: usize = 16_384;

/// Maximum number of spans in one request.
const MAX_BATCH: usize = 512;

/// Maximum time between a span and the request with it.
const SEND_INTERVAL: Duration = Duration::from_secs(1);

/// Timeout of a request. The collector is nearby, and the queue is bounded.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// Minimum interval between two warnings about lost spans.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Configuration of traces.
#[derive(Debug, Clone, PartialEq)]
pub struct TracesConfig {
    /// `HOST:PORT` of the collector.
    pub collector: String,
    /// Path of the collector's endpoint.
    pub path: String,
    /// Share of the traced requests among those without a `traceparent`.
    pub ratio: f64,
}

impl TracesConfig {
    /// Parses an endpoint in the form of OpenTelemetry: `http://127.0.0.1:4318`, optionally with a path
    /// before `/v1/traces`.
    pub fn parse(endpoint: &str) -> Result<(String, String), String> {
        let Some(rest) = endpoint.strip_prefix("http://") else {
            return Err(
                "must be http://HOST:PORT: a collector beside the node, which can forward spans over TLS"
                    .to_owned(),
            );
        };
        let (collector, path) = rest.split_once('/').unwrap_or((rest, ""));
        let port = collector.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        let has_port = port.is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if !has_port {
            return Err("has no port: it must be http://HOST:PORT".to_owned());
        }
        let path = path.trim_end_matches('/');
        let path = match path {
            "" => "/v1/traces".to_owned(),
            path => format!("/{path}/v1/traces"),
        };
        let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic());
        match is_plain {
            true => Ok((collector.to_owned(), path)),
            false => Err("has a path with characters other than visible ASCII".to_owned()),
        }
    }
}

/// Sender of spans. Cheap to clone.
#[derive(Clone)]
pub struct SpanQueue {
    queue: mpsc::Sender<Span>,
    counts: Arc<Counts>,
}

/// Counters of spans.
#[derive(Debug, Default)]
struct Counts {
    sent: Counter,
    dropped: Counter,
}

impl fmt::Debug for SpanQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpanQueue")
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl Collector for SpanQueue {
    fn collect(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.counts.dropped.up();
        }
    }

    fn counts(&self) -> SpanCounts {
        SpanCounts {
            sent: self.counts.sent.get(),
            dropped: self.counts.dropped.get(),
        }
    }
}

/// Task that sends the spans of the queue.
pub struct Exporter {
    config: TracesConfig,
    resource: otlp::Resource,
    queue: mpsc::Receiver<Span>,
    counts: Arc<Counts>,
}

/// Creates the two ends of a queue of spans. `cluster` and `node` are attributes of every span.
pub fn exporter(config: TracesConfig, cluster: &str, node: u64) -> (SpanQueue, Exporter) {
    let (queue, spans) = mpsc::channel(QUEUE_CAPACITY);
    let counts = Arc::<Counts>::default();
    let exporter = Exporter {
        config,
        resource: otlp::Resource {
            cluster: cluster.to_owned(),
            node,
        },
        queue: spans,
        counts: counts.clone(),
    };
    (SpanQueue { queue, counts }, exporter)
}

impl Exporter {
    /// Sends spans until `stop` is cancelled, and then the rest of the queue.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        let mut warned_at: Option<tokio::time::Instant> = None;
        loop {
            let stops = self.fill(&mut batch, &stop).await;
            if !batch.is_empty() {
                let count = batch.len() as u64;
                match self.send(&batch).await {
                    Ok(()) => self.counts.sent.add(count),
                    Err(error) => {
                        self.counts.dropped.add(count);
                        debug!(%error, spans = count, "spans dropped");
                        if warned_at.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
                            warned_at = Some(tokio::time::Instant::now());
                            let collector = &self.config.collector;
                            warn!(%error, collector, "the collector of traces fails; spans are dropped");
                        }
                    }
                }
                batch.clear();
            } else if stops {
                return;
            }
        }
    }

    /// Fills a batch until it is full or the interval is over. Returns whether the exporter should stop.
    async fn fill(&mut self, batch: &mut Vec<Span>, stop: &CancellationToken) -> bool {
        let time = tokio::time::sleep(SEND_INTERVAL);
        tokio::pin!(time);
        while batch.len() < MAX_BATCH {
            tokio::select! {
                biased;
                span = self.queue.recv() => match span {
                    Some(span) => batch.push(span),
                    None => return true,
                },
                () = stop.cancelled() => return true,
                () = &mut time => return false,
            }
        }
        false
    }

    async fn send(&self, batch: &[Span]) -> anyhow::Result<()> {
        let body = otlp::request(&self.resource, batch);
        let sent = http_client::request(&self.config.collector, "POST", &self.config.path, &body);
        let answer = tokio::time::timeout(SEND_TIMEOUT, sent).await??;
        ensure!(
            (200..300).contains(&answer.status),
            "the collector answered {}",
            answer.status
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_parsed_in_the_form_of_opentelemetry() {
        let read = |text| TracesConfig::parse(text).ok();
        let known = |address: &str, path: &str| Some((address.to_owned(), path.to_owned()));
        assert_eq!(
            read("http://127.0.0.1:4318"),
            known("127.0.0.1:4318", "/v1/traces")
        );
        assert_eq!(read("http://[::1]:4318/"), known("[::1]:4318", "/v1/traces"));
        assert_eq!(
            read("http://otel:80/some/where"),
            known("otel:80", "/some/where/v1/traces")
        );
        for bad in [
            "",
            "127.0.0.1:4318",
            "https://otel:4318",
            "http://otel",
            "http://:1",
            "http://otel:x",
            "http://o:1/a b",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
