//! Parsing of bodies and queries, and JSON answers, for all routes. It knows no route and gives no value a meaning.

use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, UNIX_EPOCH};

use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use axum::extract::Query;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::Response;
use futures_util::StreamExt;
use lock_node::Unavailable;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use tokio::time::Instant;
use utoipa::IntoParams;
use znode_store::SessionId;

use super::Api;
use super::lenient_parsing::{self, json_terms};
use super::problem::Problem;

/// Bytes of a too large body that are read and discarded, so that a caller that is still sending sees the answer
/// instead of a reset connection.
const DISCARD_BYTES: usize = 1024 * 1024;

/// Time for a body to begin, and to continue where it flows slower than [`MIN_BODY_BYTES_PER_SECOND`].
const BODY_GRACE: Duration = Duration::from_secs(5);

/// Minimum rate of a body, beside the grace. A telephone at the edge of its network is faster, and a caller that is
/// slower on purpose gets no more time than a body of its size needs.
const MIN_BODY_BYTES_PER_SECOND: u64 = 16 * 1024;

/// Initial capacity of an answer. It suffices for all answers but lists, and is small beside the other memory of a
/// request.
const ANSWER_BYTES: usize = 512;

/// Result of a handler.
pub type HandlerResult = Result<Response, Problem>;

/// Reads a whole body of at most `limit` bytes within `timeout`, at [`MIN_BODY_BYTES_PER_SECOND`] or faster.
pub async fn read_body(body: Body, limit: usize, timeout: Duration) -> Result<Bytes, Problem> {
    // A declared length far above the limit is rejected before a byte of the body is read.
    if body.size_hint().lower() > (limit + DISCARD_BYTES) as u64 {
        return Err(Problem::body_too_large(limit));
    }
    collect(body, limit, timeout).await
}

/// Returns the time after the beginning of a body at which its next bytes are overdue.
fn body_deadline(received: usize, timeout: Duration) -> Duration {
    let at_least_rate = Duration::from_millis(received as u64 * 1000 / MIN_BODY_BYTES_PER_SECOND);
    timeout.min(BODY_GRACE + at_least_rate)
}

/// Returns the next bytes of a body if they have arrived already.
async fn at_hand(chunks: &mut BodyDataStream) -> Poll<Option<Result<Bytes, axum::Error>>> {
    poll_fn(|context| Poll::Ready(chunks.poll_next_unpin(context))).await
}

async fn collect(body: Body, limit: usize, timeout: Duration) -> Result<Bytes, Problem> {
    let mut begin = None;
    let mut chunks = body.into_data_stream();
    let mut first = Bytes::new();
    let mut more = Vec::new();
    let mut length = 0;
    while !chunks.is_end_stream() {
        let chunk = match at_hand(&mut chunks).await {
            Poll::Ready(chunk) => chunk,
            // Nearly every body arrives with its head; only a slow caller needs a timer.
            Poll::Pending => {
                let begin = *begin.get_or_insert_with(Instant::now);
                let within = body_deadline(length, timeout);
                tokio::time::timeout_at(begin + within, chunks.next())
                    .await
                    .map_err(|_| Problem::body_timeout(within))?
            }
        };
        let Some(chunk) = chunk else { break };
        let chunk = chunk.map_err(|error| Problem::bad_request(format!("the body: {error}")))?;
        length += chunk.len();
        if length > limit + DISCARD_BYTES {
            return Err(Problem::body_too_large(limit));
        } else if length > limit {
            more = Vec::new();
        } else if first.is_empty() {
            // Nearly every body arrives in one piece, which is used without a copy.
            first = chunk;
        } else {
            if more.is_empty() {
                more.extend_from_slice(&first);
            }
            more.extend_from_slice(&chunk);
        }
    }
    match (length > limit, more.is_empty()) {
        (true, _) => Err(Problem::body_too_large(limit)),
        (false, true) => Ok(first),
        (false, false) => Ok(more.into()),
    }
}

/// Parses a JSON object, whatever the `Content-Type` says, so that `curl -d` works. An empty body is an empty object,
/// and whole numbers are accepted in every notation.
pub fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Problem> {
    match bytes.trim_ascii_start().first() {
        None => Ok(serde_json::from_slice(b"{}")?),
        Some(b'{') => Ok(serde_json::from_slice(bytes).or_else(|_| lenient_parsing::json(bytes))?),
        // serde would read the elements of a list as fields in their order, which no caller means.
        Some(_) => Err(Problem::bad_request("the body: expected a JSON object")),
    }
}

/// Parses the query. The type rejects unknown parameters, and numbers are accepted in the notations of JSON.
pub fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    if let Ok(Query(query)) = Query::try_from_uri(uri) {
        return Ok(query);
    }
    let Query(parameters) = Query::try_from_uri(uri)?;
    lenient_parsing::query(parameters)
        .map_err(|error| Problem::bad_request(format!("the query: {}", json_terms(&error))))
}

/// Rejects a query, for routes without parameters.
pub fn no_query(uri: &Uri) -> Result<(), Problem> {
    match uri.query() {
        None | Some("") => Ok(()),
        Some(_) => Err(Problem::bad_request("this address has no parameters")),
    }
}

/// Parses the id of a session. A malformed id is reported as an unknown session.
pub fn session_id(text: &str) -> Result<SessionId, Problem> {
    text.parse().map_err(|_| Problem::unknown_session(text))
}

/// Builds an answer with a JSON document.
pub fn json(status: StatusCode, document: &impl Serialize) -> Response {
    let mut bytes = Vec::with_capacity(ANSWER_BYTES);
    serde_json::to_writer(&mut bytes, document)
        .expect("answers are made of strings, numbers, lists and structs");
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Builds an answer with status 200 and a document.
pub fn ok(document: &impl Serialize) -> Response {
    json(StatusCode::OK, document)
}

/// Builds an answer with status 201, a document, and the address of what was created.
pub fn created(location: &str, document: &impl Serialize) -> Response {
    let mut response = json(StatusCode::CREATED, document);
    let location = HeaderValue::try_from(location).expect("an encoded path is a header");
    response.headers_mut().insert(LOCATION, location);
    response
}

/// Builds an answer with status 204 and no body.
pub fn no_content() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// Makes the reads that follow linearizable, if requested. Otherwise they are at least as new as anything that this
/// node returned before its last start.
pub async fn ensure_freshness(api: &Api, linearizable: bool) -> Result<(), Unavailable> {
    if linearizable {
        api.node.read_barrier().await
    } else {
        api.node.caught_up_once().await
    }
}

/// Query of reads without parameters of their own.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReadQuery {
    /// Wait until this node has applied everything that was committed before.
    #[serde(default)]
    pub linearizable: bool,
}

/// Maximum number of items on a page of a list. One page is read at once, and no command is applied meanwhile.
pub const MAX_PAGE: usize = 1000;

/// Default number of items on a page.
pub const DEFAULT_PAGE: usize = 100;

/// Checks the requested length of a page.
pub fn page_length(limit: Option<usize>) -> Result<usize, Problem> {
    match limit {
        None => Ok(DEFAULT_PAGE),
        Some(limit @ 1..=MAX_PAGE) => Ok(limit),
        Some(_) => Err(Problem::bad_request(format!("limit is from 1 to {MAX_PAGE}"))),
    }
}

/// Time for people: milliseconds since 1970, serialized as RFC 3339 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamp(pub u64);

/// Last millisecond that RFC 3339 can represent. Times come from clocks, and from znodes that any client may write.
const END_OF_TIME_MS: u64 = 253_402_300_799_999;

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let time = UNIX_EPOCH + Duration::from_millis(self.0.min(END_OF_TIME_MS));
        serializer.collect_str(&humantime::format_rfc3339_millis(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::problem::Code;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn pieces(pieces: Vec<Vec<u8>>) -> Body {
        let pieces = pieces
            .into_iter()
            .map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)));
        Body::from_stream(futures_util::stream::iter(pieces))
    }

    #[tokio::test]
    async fn bodies_are_read_up_to_the_limit_and_not_beyond() {
        let read = |body, limit| read_body(body, limit, TIMEOUT);
        assert_eq!(read(Body::empty(), 0).await.unwrap(), Bytes::new());
        assert_eq!(read(Body::from("abc"), 3).await.unwrap(), "abc");
        assert_eq!(
            read(pieces(vec![b"ab".into(), b"c".into(), b"d".into()]), 4)
                .await
                .unwrap(),
            "abcd"
        );
        for body in [
            Body::from("abcd"),
            Body::from(vec![0; 2 * DISCARD_BYTES]),
            pieces(vec![b"ab".into(), b"cd".into()]),
            pieces(vec![vec![0; DISCARD_BYTES]; 3]),
        ] {
            assert_eq!(read(body, 3).await.unwrap_err().code(), Code::TooLarge);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn missing_body_times_out() {
        let body = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        assert_eq!(
            read_body(body, 3, TIMEOUT).await.unwrap_err().code(),
            Code::RequestTimeout
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_has_to_flow() {
        // One byte a second would finish within half a minute, the timeout.
        let drops = futures_util::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((Ok::<_, std::io::Error>(Bytes::from_static(b"x")), ()))
        });
        let begin = Instant::now();
        let read = read_body(Body::from_stream(drops), 1_000, 6 * TIMEOUT).await;
        assert_eq!(read.unwrap_err().code(), Code::RequestTimeout);
        assert!(begin.elapsed() <= BODY_GRACE + Duration::from_secs(1));

        // A body that flows may take longer.
        let flow = futures_util::stream::unfold(0, |piece| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let bytes = Bytes::from(vec![0; 2 * MIN_BODY_BYTES_PER_SECOND as usize]);
            (piece < 20).then_some((Ok::<_, std::io::Error>(bytes), piece + 1))
        });
        let limit = 40 * MIN_BODY_BYTES_PER_SECOND as usize;
        assert_eq!(
            read_body(Body::from_stream(flow), limit, 6 * TIMEOUT)
                .await
                .unwrap()
                .len(),
            limit
        );
    }

    #[test]
    fn times_are_shown_in_utc_and_never_fail() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
            (END_OF_TIME_MS, "9999-12-31T23:59:59.999Z"),
            (u64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(serde_json::to_value(Timestamp(ms)).unwrap(), text);
        }
    }

    #[test]
    fn unknown_parameters_and_wrong_values_are_refused() {
        let read = |text: &str| query::<ReadQuery>(&text.parse().unwrap()).map(|query| query.linearizable);
        assert!(!read("/x").unwrap());
        assert!(read("/x?linearizable=true").unwrap());
        for text in [
            "/x?linear=true",
            "/x?linearizable=yes",
            "/x?linearizable=true&linearizable=true",
        ] {
            assert_eq!(read(text).unwrap_err().code(), Code::BadRequest, "{text}");
        }
    }
}
