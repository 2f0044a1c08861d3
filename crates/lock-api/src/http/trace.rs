//! Selection of traced requests, and the span of a request. If a caller sends `traceparent` (W3C Trace Context), its
//! trace continues here; of all other requests a configured fraction is traced. Proposals are traced where they are
//! made (`lock_node::traces`).

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
pub use lock_node::traces::Tracing;
use lock_node::traces::{Collector, Scope, Span, SpanId, SpanKind, TraceId, new_span_id, new_trace_id};

use super::Shared;
use super::problem::Code;
use super::url::without_secret;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Header that tells a caller the id of its request's trace (W3C Trace Context, level 2).
const TRACERESPONSE: HeaderName = HeaderName::from_static("traceresponse");

/// Maximum number of characters of an address in a span. Percent-encoded names of locks fit, with rare exceptions.
const MAX_PATH_CHARS: usize = 256;

/// Trace context of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Parent {
    trace: TraceId,
    span: SpanId,
    is_sampled: bool,
}

/// Layer in front of the router that traces requests. Present only if tracing is configured.
pub async fn follow(State(api): State<Shared>, request: Request, next: Next) -> Response {
    let config = api.config();
    let Some(tracing) = &config.tracing else {
        return next.run(request).await;
    };
    let parent = parent(request.headers());
    let trace = parent.map_or_else(new_trace_id, |parent| parent.trace);
    let is_traced = match parent {
        Some(parent) => parent.is_sampled,
        None => tracing.samples(trace),
    };
    if !is_traced {
        return next.run(request).await;
    }
    let (method, route) = api.requests.words(&request);
    let name = match route {
        "" => "HTTP".to_owned(),
        route => format!("{method} {route}"),
    };
    let path: String = without_secret(request.uri().path())
        .chars()
        .take(MAX_PATH_CHARS)
        .collect();
    let open = Open {
        collector: tracing.collector.clone(),
        span: Some(Span {
            trace,
            id: new_span_id(),
            parent: parent.map(|parent| parent.span),
            name: name.into(),
            kind: SpanKind::Server,
            begin: SystemTime::now(),
            end: SystemTime::UNIX_EPOCH,
            attributes: vec![
                ("http.request.method", request.method().as_str().to_owned()),
                ("http.route", route.to_owned()),
                ("url.path", path),
            ],
            failed: false,
        }),
    };
    open.serve(trace, request, next).await
}

/// A request that is not answered yet. If its caller hangs up, its span ends there.
struct Open {
    collector: Arc<dyn Collector>,
    span: Option<Span>,
}

impl Open {
    async fn serve(mut self, trace: TraceId, request: Request, next: Next) -> Response {
        let id = self.span.as_ref().map_or_else(SpanId::default, |span| span.id);
        let scope = Scope {
            trace,
            span: id,
            collector: self.collector.clone(),
        };
        let mut response = scope.run(next.run(request)).await;
        if let Some(mut span) = self.span.take() {
            let status = response.status();
            span.attributes
                .push(("http.response.status_code", status.as_u16().to_string()));
            if let Some(code) = response.extensions().get::<Code>() {
                span.attributes.push(("error.type", code.word().to_owned()));
            }
            span.failed = status.is_server_error();
            end(&*self.collector, span);
        }
        let named = format!("00-{}-{}-01", hex(&trace), hex(&id));
        let named = HeaderValue::try_from(named).expect("digits and dashes are a header");
        response.headers_mut().insert(TRACERESPONSE, named);
        response
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(mut span) = self.span.take() {
            span.attributes.push(("error.type", "caller_gone".to_owned()));
            end(&*self.collector, span);
        }
    }
}

fn end(collector: &dyn Collector, mut span: Span) {
    // The clock may have been set back meanwhile.
    span.end = SystemTime::now().max(span.begin);
    collector.collect(span);
}

/// Parses `traceparent`, such as `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`. Later versions begin with
/// the same fields. The standard requires that an invalid value is ignored.
fn parent(headers: &HeaderMap) -> Option<Parent> {
    let mut given = headers.get_all(TRACEPARENT).iter();
    let text = given.next()?.to_str().ok()?;
    if given.next().is_some() {
        return None;
    }
    let mut parts = text.split('-');
    let version: [u8; 1] = unhex(parts.next()?)?;
    let trace: TraceId = unhex(parts.next()?)?;
    let span: SpanId = unhex(parts.next()?)?;
    let [flags] = unhex(parts.next()?)?;
    let has_more = parts.next().is_some();
    let is_wrong = version == [0xff] || version == [0] && has_more;
    if is_wrong || trace == TraceId::default() || span == SpanId::default() {
        return None;
    }
    Some(Parent {
        trace,
        span,
        is_sampled: flags & 1 == 1,
    })
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_lower = |letter: u8| letter.is_ascii_digit() || (b'a'..=b'f').contains(&letter);
    if text.len() != 2 * N || !text.bytes().all(is_lower) {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(texts: &[&str]) -> Option<Parent> {
        let mut headers = HeaderMap::new();
        for text in texts {
            headers.append(TRACEPARENT, text.parse().unwrap());
        }
        parent(&headers)
    }

    #[test]
    fn a_trace_goes_on_if_its_name_is_one() {
        const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let known = given(&[GOOD]).unwrap();
        assert_eq!(hex(&known.trace), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(
            (hex(&known.span).as_str(), known.is_sampled),
            ("00f067aa0ba902b7", true)
        );
        let not_sampled = given(&[&GOOD.replace("-01", "-00")]).unwrap();
        assert!(!not_sampled.is_sampled);
        let later = given(&[&format!("{}-more", GOOD.replacen("00", "01", 1))]);
        assert_eq!(later, Some(known), "a later version has more to say");
        for bad in [
            "",
            "00",
            &GOOD.replace("4bf9", "4BF9"),
            &GOOD.replacen("00", "ff", 1),
            &format!("{GOOD}-more"),
            &GOOD[..GOOD.len() - 1],
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01",
        ] {
            assert_eq!(given(&[bad]), None, "{bad:?}");
        }
        assert_eq!(given(&[GOOD, GOOD]), None, "nobody knows which");
    }
}
