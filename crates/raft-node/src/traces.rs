//! What a traced request leaves behind: spans, each a piece of time with a name and a parent. Whoever takes a request in begins a
//! [`Scope`]; what it proposes while it runs within becomes spans of their own. Who collects them, and how they travel, is
//! not known here; where nobody does, this costs the look at an empty place.

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::Instant;

use crate::calls::Times;
use crate::subject::Subject;

/// Names a trace: sixteen bytes that are not all 0.
pub type TraceId = [u8; 16];

/// Names a span within it, likewise.
pub type SpanId = [u8; 8];

/// Whoever collects spans. It must not wait.
pub trait Collector: Send + Sync {
    /// Takes one that is over.
    fn collect(&self, span: Span);

    /// What became of those that were taken.
    fn counts(&self) -> SpanCounts;
}

/// What became of spans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// They are where they were to go.
    pub sent: u64,
    /// They were lost.
    pub dropped: u64,
}

/// Which side of a request a span stands for.
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
    /// What it is a part of.
    pub parent: Option<SpanId>,
    /// What was done.
    pub name: Cow<'static, str>,
    /// On which side.
    pub kind: SpanKind,
    /// From when.
    pub begin: SystemTime,
    /// Until when.
    pub end: SystemTime,
    /// What else there is to say.
    pub attributes: Vec<(&'static str, String)>,
    /// Whether it went wrong.
    pub failed: bool,
}

/// The span that is open where some code runs.
#[derive(Clone)]
pub struct Scope {
    /// Of which request.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
    /// Who collects its parts.
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

    /// A proposal made within is over.
    pub(crate) fn proposed(
        self,
        subject: &Subject,
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
                .map(|path| ("lockgate.path", path.to_string())),
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
