//! Traces of requests: spans, each a piece of time with a name and a parent. A front end begins a [`Scope`] for a request; proposals within
//! it become spans of their own. The collector of spans and their transport are outside of this module. Without a collector a scope costs
//! one check.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::Instant;

use crate::command_label::{CommandLabel, MAX_SHOWN};
use crate::pending_proposals::Times;
use instruments::text_format::{Instruments, Sheet};

/// Names a trace: sixteen bytes that are not all 0.
pub type TraceId = [u8; 16];

/// Names a span within it, likewise.
pub type SpanId = [u8; 8];

/// Collector of spans. It must not wait.
pub trait Collector: Send + Sync {
    /// Takes one that is over.
    fn collect(&self, span: Span);

    /// Returns the numbers of sent and dropped spans.
    fn counts(&self) -> SpanCounts;
}

/// Numbers of spans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// They are where they were to go.
    pub sent: u64,
    /// They were lost.
    pub dropped: u64,
}

/// Side of a request that a span stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// It was served.
    Server,
    /// It is a part of what the server did.
    Internal,
}

/// A piece of a request's time.
#[derive(Debug, Clone)]
pub struct Span {
    /// Of which request.
    pub trace: TraceId,
    /// Its own name.
    pub id: SpanId,
    /// Parent.
    pub parent: Option<SpanId>,
    /// Name.
    pub name: Cow<'static, str>,
    /// On which side.
    pub kind: SpanKind,
    /// From when.
    pub begin: SystemTime,
    /// End.
    pub end: SystemTime,
    /// Attributes.
    pub attributes: Vec<(&'static str, String)>,
    /// It failed.
    pub failed: bool,
}

/// Destination of spans, and the sampling of requests.
#[derive(Clone)]
pub struct Tracing {
    /// Collector.
    pub collector: Arc<dyn Collector>,
    /// The part of the requests that is traced whose callers say nothing of it: 0 for none, 1 for all.
    pub ratio: f64,
}

impl Tracing {
    /// Returns whether a new trace is sampled: its id decides, which is random.
    pub fn takes(&self, trace: TraceId) -> bool {
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

/// The span that is open where some code runs.
#[derive(Clone)]
pub struct Scope {
    /// Of which request.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
    /// Collector of its parts.
    pub collector: Arc<dyn Collector>,
}

tokio::task_local! {
    static CURRENT: Scope;
}

impl Scope {
    /// The one that the caller runs in; `None`: nothing is traced here.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// Runs `future` within this one.
    pub async fn run<F: Future>(self, future: F) -> F::Output {
        CURRENT.scope(self, future).await
    }

    /// The same with what does not wait.
    pub fn enter<T>(self, work: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self, work)
    }

    /// A proposal made within is over.
    pub(crate) fn proposed(
        self,
        subject: &CommandLabel,
        asked: Instant,
        answered: Instant,
        times: Option<&Times>,
        outcome: &'static str,
    ) {
        let id = draw_span();
        let (now, now_at) = (Instant::now(), SystemTime::now());
        let at = |instant: Instant| now_at - now.saturating_duration_since(instant);
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
        let mut proposal = span("proposal", id, self.span, asked, answered, attributes);
        proposal.failed = !matches!(outcome, "done" | "refused");
        self.collector.collect(proposal);
        let Some(times) = times else { return };
        let applying = times.stamps.applying;
        for (name, begin, end) in [
            ("queue", times.asked, times.stamps.sent),
            ("commit", times.stamps.sent, applying.began),
            ("apply", applying.began, applying.ended),
            ("reply", applying.ended, times.answered),
        ] {
            let part = span(name, draw_span(), id, begin, end.max(begin), Vec::new());
            self.collector.collect(part);
        }
    }
}

/// A name for a span that nobody else has.
pub fn draw_span() -> SpanId {
    loop {
        let mut id = SpanId::default();
        getrandom::fill(&mut id).expect("the operating system gives random numbers");
        if id != SpanId::default() {
            return id;
        }
    }
}

/// The same for a trace.
pub fn draw_trace() -> TraceId {
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

    struct Nobody;

    impl Collector for Nobody {
        fn collect(&self, _: Span) {}

        fn counts(&self) -> SpanCounts {
            SpanCounts::default()
        }
    }

    #[test]
    fn the_ratio_is_kept() {
        let count = |ratio| {
            let tracing = Tracing {
                collector: Arc::new(Nobody),
                ratio,
            };
            (0..10_000).filter(|_| tracing.takes(draw_trace())).count()
        };
        assert_eq!((count(0.0), count(1.0)), (0, 10_000));
        assert!((700..1_300).contains(&count(0.1)));
    }

    #[tokio::test]
    async fn scope_is_visible_only_within_it() {
        let scope = || Scope {
            trace: draw_trace(),
            span: [7; 8],
            collector: Arc::new(Nobody),
        };
        assert!(Scope::current().is_none());
        let span = || Scope::current().map(|scope| scope.span);
        assert_eq!(scope().enter(span), Some([7; 8]));
        assert_eq!(scope().run(async { span() }).await, Some([7; 8]));
        assert!(Scope::current().is_none());
    }
}
