//! Traces of requests. A trace consists of spans, each a period of time with a name and a parent. A front end begins a [`Scope`] for a request, and
//! proposals within it become spans of their own. The collector of spans and their transport are outside this module. Without a scope a proposal
//! costs one check.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::Instant;

use crate::command_label::{CommandLabel, MAX_SHOWN};
use crate::pending_proposals::Times;
use instruments::text_format::{Instruments, Sheet};
use raft_node::messages::ForwardedTrace;

/// Id of a trace: sixteen bytes that are not all 0.
pub type TraceId = [u8; 16];

/// Id of a span within a trace: eight bytes that are not all 0.
pub type SpanId = [u8; 8];

/// Collector of spans. Its functions must not block.
pub trait Collector: Send + Sync {
    /// Takes over a span that has ended.
    fn collect(&self, span: Span);

    /// Returns the numbers of sent and dropped spans.
    fn counts(&self) -> SpanCounts;
}

/// Numbers of spans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// Spans that the receiver has acknowledged.
    pub sent: u64,
    /// Spans that were lost.
    pub dropped: u64,
}

/// Kind of a span, in the terms of OpenTelemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// A request that this server served.
    Server,
    /// A step of the server within a request.
    Internal,
}

/// Span: a period of time of a request.
#[derive(Debug, Clone)]
pub struct Span {
    /// Trace of the request.
    pub trace: TraceId,
    /// Id of the span.
    pub id: SpanId,
    /// Parent span, if there is one.
    pub parent: Option<SpanId>,
    /// Name of the operation.
    pub name: Cow<'static, str>,
    /// Kind.
    pub kind: SpanKind,
    /// Beginning.
    pub begin: SystemTime,
    /// End.
    pub end: SystemTime,
    /// Attributes.
    pub attributes: Vec<(&'static str, String)>,
    /// True if the operation failed.
    pub failed: bool,
}

/// Destination of spans, and the sampling of requests.
#[derive(Clone)]
pub struct Tracing {
    /// Collector.
    pub collector: Arc<dyn Collector>,
    /// Fraction of requests that are traced, of those whose callers did not decide it: 0 for none, 1 for all.
    pub ratio: f64,
}

impl Tracing {
    /// Returns whether a new trace is sampled. Its random id decides that.
    pub fn samples(&self, trace: TraceId) -> bool {
        let [.., a, b, c, d] = trace;
        f64::from(u32::from_be_bytes([a, b, c, d])) < self.ratio * 2_f64.powi(32)
    }
}

impl fmt::Debug for Tracing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracing")
            .field("ratio", &self.ratio)
            .finish_non_exhaustive()
    }
}

impl PartialEq for Tracing {
    fn eq(&self, other: &Self) -> bool {
        self.ratio == other.ratio && Arc::ptr_eq(&self.collector, &other.collector)
    }
}

impl Eq for Tracing {}

/// Metrics of the spans.
impl Instruments for Tracing {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let SpanCounts { sent, dropped } = self.collector.counts();
        let help = "Spans of traced requests that the collector has taken, and that are lost because it did not, or not in time";
        let counts = [("sent", sent), ("dropped", dropped)];
        sheet.counters(
            "trace_spans",
            help,
            counts.map(|(word, count)| ([("outcome", word)], count)),
        )
    }
}

/// Open span within which some code runs.
#[derive(Clone)]
pub struct Scope {
    /// Trace of the request.
    pub trace: TraceId,
    /// Open span.
    pub span: SpanId,
    /// Collector of the spans within it.
    pub collector: Arc<dyn Collector>,
}

tokio::task_local! {
    static CURRENT: Scope;
}

impl Scope {
    /// Returns the scope that the caller runs in, or `None` if the request is not traced.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// Runs `future` within this scope.
    pub async fn run<F: Future>(self, future: F) -> F::Output {
        CURRENT.scope(self, future).await
    }

    /// Runs the synchronous `work` within this scope.
    pub fn enter<T>(self, work: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self, work)
    }

    /// Collects the spans of a proposal that was made within this scope and has ended: `id` of the whole proposal, and one of each step.
    pub(crate) fn proposed(
        self,
        id: SpanId,
        subject: &CommandLabel,
        submitted: Instant,
        answered: Instant,
        times: Option<&Times>,
        outcome: &'static str,
    ) {
        let at = wall_clock();
        let span = |name, id, parent, begin, end, attributes| Span {
            trace: self.trace,
            id,
            parent: Some(parent),
            name: Cow::Borrowed(name),
            kind: SpanKind::Internal,
            begin: at(begin),
            end: at(end),
            attributes,
            failed: false,
        };
        let mut attributes = vec![
            ("lockgate.command", subject.what.to_owned()),
            ("lockgate.outcome", outcome.to_owned()),
        ];
        attributes.extend(
            subject
                .at
                .as_ref()
                .map(|path| ("lockgate.path", format!("{:.MAX_SHOWN$}", path.as_str()))),
        );
        let mut proposal = span("proposal", id, self.span, submitted, answered, attributes);
        proposal.failed = !matches!(outcome, "done" | "refused");
        self.collector.collect(proposal);
        let Some(times) = times else { return };
        let applying = times.stamps.applying;
        for (name, begin, end) in [
            ("queue", times.submitted, times.stamps.sent),
            ("commit", times.stamps.sent, applying.began),
            ("apply", applying.began, applying.ended),
            ("reply", applying.ended, times.answered),
        ] {
            let part = span(name, new_span_id(), id, begin, end.max(begin), Vec::new());
            self.collector.collect(part);
        }
    }
}

/// Collects the spans of this node's part, as the leader, of a batch of another node that it received at `received` and has applied.
pub(crate) fn led(collector: &dyn Collector, traces: &[ForwardedTrace], received: Instant) {
    let at = wall_clock();
    let (begin, end) = (at(received), at(Instant::now()));
    for traced in traces {
        collector.collect(Span {
            trace: traced.trace,
            id: new_span_id(),
            parent: Some(traced.span),
            name: Cow::Borrowed("leader"),
            kind: SpanKind::Internal,
            begin,
            end,
            attributes: Vec::new(),
            failed: false,
        });
    }
}

/// Returns a function from moments of the monotonic clock to times of day.
fn wall_clock() -> impl Fn(Instant) -> SystemTime {
    let (now, now_at) = (Instant::now(), SystemTime::now());
    move |instant| now_at - now.saturating_duration_since(instant)
}

/// Returns a random id for a span.
pub fn new_span_id() -> SpanId {
    loop {
        let mut id = SpanId::default();
        getrandom::fill(&mut id).expect("the operating system gives random numbers");
        if id != SpanId::default() {
            return id;
        }
    }
}

/// Returns a random id for a trace.
pub fn new_trace_id() -> TraceId {
    loop {
        let mut id = TraceId::default();
        getrandom::fill(&mut id).expect("the operating system gives random numbers");
        if id != TraceId::default() {
            return id;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NullCollector;

    impl Collector for NullCollector {
        fn collect(&self, _: Span) {}

        fn counts(&self) -> SpanCounts {
            SpanCounts::default()
        }
    }

    #[test]
    fn fraction_of_sampled_traces_follows_the_ratio() {
        let count = |ratio| {
            let tracing = Tracing {
                collector: Arc::new(NullCollector),
                ratio,
            };
            (0..10_000).filter(|_| tracing.samples(new_trace_id())).count()
        };
        assert_eq!((count(0.0), count(1.0)), (0, 10_000));
        assert!((700..1_300).contains(&count(0.1)));
    }

    #[tokio::test]
    async fn scope_is_visible_only_within_it() {
        let scope = || Scope {
            trace: new_trace_id(),
            span: [7; 8],
            collector: Arc::new(NullCollector),
        };
        assert!(Scope::current().is_none());
        let span = || Scope::current().map(|scope| scope.span);
        assert_eq!(scope().enter(span), Some([7; 8]));
        assert_eq!(scope().run(async { span() }).await, Some([7; 8]));
        assert!(Scope::current().is_none());
    }
}
