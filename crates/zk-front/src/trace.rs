//! Span of a traced request of a ZooKeeper client. The protocol cannot carry a caller's trace context, so
//! each request begins a trace of its own, and a configured share of them is traced. Proposals within the
//! request are traced by `lock_node::traces`.

use std::sync::Arc;
use std::time::SystemTime;

use lock_node::traces::{Collector, Scope, Span, SpanKind, Tracing, new_span_id, new_trace_id};
use zk_wire::{ErrorCode, Request, op_code};
use znode_store::SessionId;

/// Maximum length of a path in a span, in characters. The path may be any text that a client sends.
const MAX_PATH_CHARS: usize = 256;

/// Name of unknown operations.
const OTHER: &str = "other";

/// Span of a request that is not answered yet. It ends when the connection is lost.
pub(crate) struct Traced {
    collector: Arc<dyn Collector>,
    span: Option<Span>,
}

impl Traced {
    /// Begins a span if the request is sampled. Boxed, because most requests are not, and all have a field
    /// for it.
    pub fn of(tracing: Option<&Tracing>, op: i32) -> Option<Box<Self>> {
        let tracing = tracing?;
        let trace = new_trace_id();
        if !tracing.samples(trace) {
            return None;
        }
        let operation = op_code::name(op).unwrap_or(OTHER);
        let span = Span {
            trace,
            id: new_span_id(),
            parent: None,
            name: format!("ZooKeeper {operation}").into(),
            kind: SpanKind::Server,
            begin: SystemTime::now(),
            end: SystemTime::UNIX_EPOCH,
            attributes: vec![
                ("rpc.system", "zookeeper".to_owned()),
                ("rpc.method", operation.to_owned()),
            ],
            failed: false,
        };
        Some(Box::new(Self {
            collector: tracing.collector.clone(),
            span: Some(span),
        }))
    }

    /// Adds the session and the path to the span.
    pub fn about(&mut self, session: SessionId, request: Option<&Request>) {
        let Some(span) = &mut self.span else { return };
        span.attributes.push(("lockgate.session", session.to_string()));
        if let Some(path) = request.and_then(path) {
            let path = path.chars().take(MAX_PATH_CHARS).collect();
            span.attributes.push(("lockgate.path", path));
        }
    }

    /// Returns the scope for work within the span.
    pub fn scope(&self) -> Option<Scope> {
        self.span.as_ref().map(|span| Scope {
            trace: span.trace,
            span: span.id,
            collector: self.collector.clone(),
        })
    }

    /// Ends the span with the result of the request.
    pub fn answered(&mut self, code: ErrorCode) {
        let Some(mut span) = self.span.take() else { return };
        if code != ErrorCode::OK {
            span.attributes.push(("error.type", code.to_string()));
            span.failed = code == ErrorCode::SYSTEM_ERROR;
        }
        self.end(span);
    }

    fn end(&self, mut span: Span) {
        // The clock may have been set back meanwhile.
        span.end = SystemTime::now().max(span.begin);
        self.collector.collect(span);
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if let Some(mut span) = self.span.take() {
            span.attributes.push(("error.type", "connection_lost".to_owned()));
            self.end(span);
        }
    }
}

/// Runs `work` within the span, if there is one.
pub(crate) fn within<T>(traced: Option<&Traced>, work: impl FnOnce() -> T) -> T {
    match traced.and_then(Traced::scope) {
        Some(scope) => scope.enter(work),
        None => work(),
    }
}

fn path(request: &Request) -> Option<&str> {
    match request {
        Request::Create { path, .. }
        | Request::Delete { path, .. }
        | Request::SetData { path, .. }
        | Request::SetAcl { path, .. }
        | Request::Check { path, .. }
        | Request::Exists { path, .. }
        | Request::GetData { path, .. }
        | Request::GetAcl { path }
        | Request::GetChildren { path, .. }
        | Request::GetChildren2 { path, .. }
        | Request::GetAllChildrenNumber { path }
        | Request::GetEphemerals { prefix: path }
        | Request::Sync { path }
        | Request::AddWatch { path, .. }
        | Request::CheckWatches { path, .. }
        | Request::RemoveWatches { path, .. } => Some(path),
        _ => None,
    }
}
