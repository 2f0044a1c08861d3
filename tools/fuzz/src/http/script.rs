//! The format of an input: HTTP requests as text, with a separator between them.
//!
//! ```text
//! POST /v1/locks/a/acquire
//! x-some-header: and its value
//!
//! {"session": "{session}"}␞GET /v1/locks/a
//! ```
//!
//! `{session}`, `{holder}`, `{token}` and `{lease}` stand for values of the latest responses, and a target may
//! define more such names. This module also lists the excluded requests.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Method, Request, Uri};

use super::response::Facts;

/// Separator of two requests: the record separator of ASCII.
pub const SEPARATOR: u8 = 0x1e;

/// Maximum number of requests in an input.
const MAX_REQUESTS: usize = 12;

/// Excluded paths: changes of the members would make the node call any address in the input. Tests elsewhere
/// cover the decoding of these requests and their responses.
const EXCLUDED: [&str; 2] = ["/v1/cluster/members", "/v1/cluster/leader"];

/// A parsed input.
pub struct Script<'a> {
    requests: Vec<ScriptedRequest<'a>>,
}

/// One request as written in the input.
pub struct ScriptedRequest<'a> {
    method: &'a [u8],
    target: &'a str,
    headers: Vec<(&'a [u8], &'a [u8])>,
    body: &'a [u8],
}

impl<'a> Script<'a> {
    /// Parses an input; `None` if it contains no request.
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        let parts = bytes.split(|byte| *byte == SEPARATOR).take(MAX_REQUESTS);
        let requests: Vec<_> = parts.filter_map(ScriptedRequest::of).collect();
        (!requests.is_empty()).then_some(Self { requests })
    }

    /// Returns the requests in their order.
    pub fn requests(&self) -> impl Iterator<Item = &ScriptedRequest<'a>> {
        self.requests.iter()
    }
}

impl<'a> ScriptedRequest<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let end = bytes.windows(2).position(|two| two == b"\n\n");
        let (head, body) = match end {
            Some(end) => (&bytes[..end], &bytes[end + 2..]),
            None => (bytes, &bytes[bytes.len()..]),
        };
        let mut lines = head.split(|byte| *byte == b'\n');
        let first = lines.next()?;
        let space = first.iter().position(|byte| *byte == b' ')?;
        let target = std::str::from_utf8(&first[space + 1..]).ok()?;
        let headers = lines.filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        });
        Some(Self {
            method: &first[..space],
            target,
            headers: headers.collect(),
            body,
        })
    }

    /// Builds the request that a server would receive; `None` if a server would reject it unparsed, or if it
    /// is excluded.
    pub fn build(&self, facts: &Facts) -> Option<Request<Body>> {
        let uri: Uri = facts.put_into_target(self.target).parse().ok()?;
        if EXCLUDED.iter().any(|excluded| uri.path().starts_with(excluded)) {
            return None;
        }
        let mut request = Request::new(Body::from(facts.put_into_body(self.body)));
        *request.method_mut() = Method::from_bytes(self.method).ok()?;
        *request.uri_mut() = uri;
        for (name, value) in &self.headers {
            let (name, value) = (
                HeaderName::from_bytes(name).ok()?,
                HeaderValue::from_bytes(&facts.put_into_body(value)).ok()?,
            );
            request.headers_mut().append(name, value);
        }
        Some(request)
    }
}
