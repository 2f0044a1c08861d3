//! Spans on their way to a collector of OpenTelemetry: taken in without waiting, sent in batches over OTLP (HTTP, JSON).
//!
//! The collector is a process beside the node, so this speaks plain HTTP to it, and loses spans rather than keep them: when it does not
//! answer, or more come than it takes, they are counted and dropped. What a span says is said where it ends.

mod otlp;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use cli_support::http_client;
use raft_node::counters::Counter;
use raft_node::traces::{Collector, Span, SpanCounts};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// So many spans wait at most to be sent: some seconds of a busy node that traces everything, and a few megabytes.
const QUEUE_CAPACITY: usize = 16_384;

/// So many are sent at a time.
const MAX_BATCH: usize = 512;

/// What is there is sent so often.
const SEND_INTERVAL: Duration = Duration::from_secs(1);

/// How long a collector may take for a batch. It is nearby, and what waits meanwhile is bounded.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// How often at most the log says that spans are lost.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Which requests are traced, and where that is collected.
#[derive(Debug, Clone, PartialEq)]
pub struct TracesConfig {
    /// `HOST:PORT` of the collector.
    pub collector: String,
    /// Where it takes spans.
    pub path: String,
    /// The part of the requests that is traced whose callers say nothing of it.
    pub ratio: f64,
}

impl TracesConfig {
    /// Reads an endpoint as OpenTelemetry writes it: `http://127.0.0.1:4318`, perhaps with a path before `/v1/traces`.
    pub fn parse(endpoint: &str) -> Result<(String, String), String> {
        let Some(rest) = endpoint.strip_prefix("http://") else {
            return Err(
                "is of the form http://HOST:PORT: a collector beside the node, which speaks TLS to others if need be".to_owned(),
            );
        };
        let (collector, path) = rest.split_once('/').unwrap_or((rest, ""));
        let port = collector.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        let has_port = port.is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if !has_port {
            return Err("has no port: http://HOST:PORT".to_owned());
        }
        let path = path.trim_end_matches('/');
        let path = match path {
            "" => "/v1/traces".to_owned(),
            path => format!("/{path}/v1/traces"),
        };
        let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic());
        match is_plain {
            true => Ok((collector.to_owned(), path)),
            false => Err("has a path with other than plain characters".to_owned()),
        }
    }
}

/// Where spans go in. Cheap to clone.
#[derive(Clone)]
pub struct SpanQueue {
    queue: mpsc::Sender<Span>,
    counts: Arc<Counts>,
}

/// What became of spans.
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

/// Sends what goes in.
pub struct Exporter {
    config: TracesConfig,
    resource: otlp::Resource,
    queue: mpsc::Receiver<Span>,
    counts: Arc<Counts>,
}

/// Where spans go in, and who sends them. `node` and `cluster` say whose they are.
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
    /// Sends what comes, until `stop`, and then what is there.
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
                        debug!(%error, spans = count, "spans were lost");
                        if warned_at.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
                            warned_at = Some(tokio::time::Instant::now());
                            let collector = &self.config.collector;
                            warn!(%error, collector, "spans of traced requests are lost");
                        }
                    }
                }
                batch.clear();
            } else if stops {
                return;
            }
        }
    }

    /// Waits until a batch is full, or it is time. Says whether this is the end.
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
    fn an_endpoint_is_read_as_opentelemetry_writes_it() {
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
