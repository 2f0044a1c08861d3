//! Metrics and spans of commands. All unknown commands share one entry, and so do all other error codes.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use lock_node::counters::{Classes, Counter, Histogram};
use lock_node::metrics::text_format::Sheet;
use lock_node::traces::{Collector, Scope, Span, SpanKind, Tracing, new_span_id, new_trace_id};
use tokio::time::Instant;

use crate::names::NAMES;
use crate::request::Request;

/// Name of unknown commands and codes.
const OTHER: &str = "other";

/// Code of a command whose outcome is not known. Its connection has ended.
pub(crate) const UNKNOWN_OUTCOME: &str = "outcome_unknown";

/// Codes of replies: `OK`, and the first words of errors.
const CODES: [&str; 12] = [
    "OK",
    "ERR",
    "BUSY",
    "CLUSTERDOWN",
    "EXECABORT",
    "NOAUTH",
    "NOPERM",
    "NOPROTO",
    "NOSCRIPT",
    "TRYAGAIN",
    "WRONGPASS",
    UNKNOWN_OUTCOME,
];

/// Counts and durations of all commands.
pub(crate) struct CommandMetrics {
    commands: Vec<Measured>,
}

struct Measured {
    name: &'static str,
    times: Histogram,
    /// Counts by [`CODES`], and of all others.
    codes: Vec<Counter>,
}

impl Default for CommandMetrics {
    fn default() -> Self {
        let measured = |name| Measured {
            name,
            times: Histogram::new(&Classes::LATENCY),
            codes: (0..=CODES.len()).map(|_| Counter::default()).collect(),
        };
        Self {
            commands: NAMES.into_iter().chain([OTHER]).map(measured).collect(),
        }
    }
}

impl CommandMetrics {
    fn of(&self, name: &str) -> &Measured {
        let index = NAMES.iter().position(|known| *known == name);
        &self.commands[index.unwrap_or(NAMES.len())]
    }

    pub fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let used = || self.commands.iter().filter(|one| !one.times.is_empty());
        let help = "Commands of Redis clients, by name and code of the reply";
        let counts = used().flat_map(|one| {
            let codes = CODES.into_iter().chain([OTHER]).zip(&one.codes);
            let counted = codes.map(|(code, counter)| (code, counter.get()));
            let counted = counted.filter(|(_, count)| *count > 0);
            counted.map(|(code, count)| ([("command", one.name), ("code", code)], count))
        });
        sheet.counters("redis_commands", help, counts)?;
        let help = "How long they took until they were answered";
        let times = used().map(|one| ([("command", one.name)], one.times.measured()));
        sheet.histograms("redis_command_duration_seconds", help, times)
    }
}

/// Command that is being executed.
pub(crate) struct Running {
    name: &'static str,
    began: Instant,
    traced: Option<(Arc<dyn Collector>, Span)>,
}

impl Running {
    /// Begins to measure a command, and to trace it if it is sampled.
    pub fn begin(request: &Request, tracing: Option<&Tracing>) -> Self {
        let name = NAMES
            .into_iter()
            .find(|name| request[0].eq_ignore_ascii_case(name.as_bytes()));
        let name = name.unwrap_or(OTHER);
        let sampled = tracing.and_then(|tracing| {
            let trace = new_trace_id();
            tracing.samples(trace).then_some((tracing, trace))
        });
        let traced = sampled.map(|(tracing, trace)| {
            let span = Span {
                trace,
                id: new_span_id(),
                parent: None,
                name: format!("Redis {name}").into(),
                kind: SpanKind::Server,
                begin: SystemTime::now(),
                end: SystemTime::UNIX_EPOCH,
                attributes: vec![
                    ("rpc.system", "redis".to_owned()),
                    ("rpc.method", name.to_owned()),
                ],
                failed: false,
            };
            (tracing.collector.clone(), span)
        });
        Self {
            name,
            began: Instant::now(),
            traced,
        }
    }

    /// Executes the command within its span.
    pub async fn execute<T>(&self, command: impl Future<Output = T>) -> T {
        match &self.traced {
            Some((collector, span)) => {
                let scope = Scope {
                    trace: span.trace,
                    span: span.id,
                    collector: collector.clone(),
                };
                scope.run(command).await
            }
            None => command.await,
        }
    }

    /// Counts the command with the code of its reply, and ends its span.
    pub fn end(self, metrics: &CommandMetrics, code: &str) {
        let measured = metrics.of(self.name);
        let index = CODES.iter().position(|known| *known == code);
        measured.codes[index.unwrap_or(CODES.len())].up();
        measured.times.took(self.began.elapsed());
        if let Some((collector, mut span)) = self.traced {
            if code != "OK" {
                span.attributes.push(("error.type", code.to_owned()));
                span.failed = code == UNKNOWN_OUTCOME;
            }
            // The clock may have been set back meanwhile.
            span.end = SystemTime::now().max(span.begin);
            collector.collect(span);
        }
    }
}
