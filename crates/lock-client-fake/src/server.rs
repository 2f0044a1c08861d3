//! HTTP over a pipe in memory.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::stream::unfold;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use znode_store::{SessionId, Zxid};

use crate::api::{Answer, Call};
use crate::state::{Notice, Shared};

/// Capacity of a pipe in each direction, in bytes.
const PIPE_BYTES: usize = 16 * 1024;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Opens a connection to the cluster, on the runtime of the client.
pub(crate) fn connect(shared: &Arc<Shared>) -> DuplexStream {
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let shared = shared.clone();
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(serve(shared, request).await) }
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(far), service);
    // The connection ends when the client closes it, in the middle of a request or not.
    tokio::spawn(connection.map(drop));
    near
}

async fn serve(shared: Arc<Shared>, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    // A request that is cut has no reader of its answer.
    let body = body
        .collect()
        .await
        .map(|body| body.to_bytes())
        .unwrap_or_default();
    let target = head.uri.path_and_query().map_or("", |target| target.as_str());
    let answered = match Call::new(head.method.as_str(), target, &body) {
        Ok(call) => shared.answer(call).await,
        Err(problem) => Err(problem),
    };
    let (status, document) = match answered {
        Ok(Answer::Document(status, document)) => (status, document),
        Ok(Answer::Events(session, after)) => return Response::new(events(shared, session, after)),
        Err(problem) => (problem.status, problem.document()),
    };
    let body = if document.is_null() {
        String::new()
    } else {
        document.to_string()
    };
    let mut response = Response::new(Full::from(body).boxed_unsync());
    *response.status_mut() = status.try_into().expect("it is a status");
    response
}

/// Server-sent events of a session, from the first one after this position to its end.
fn events(shared: Arc<Shared>, session: SessionId, after: Zxid) -> Body {
    let frames = unfold((0, false), move |(from, has_ended)| {
        let shared = shared.clone();
        async move {
            if has_ended {
                return None;
            }
            let next = shared.until(None, |state| {
                let mut notices = state.notices.iter().enumerate().skip(from);
                let next = notices.find(|(_, notice)| notice.session == session && notice.zxid > after);
                next.map(|(at, notice)| (at, notice.clone()))
            });
            let (at, Notice { zxid, word, data, .. }) = next.await?;
            let text = format!("id: {zxid}\nevent: {word}\ndata: {data}\n\n");
            Some((
                Ok(Frame::data(Bytes::from(text))),
                (at + 1, word == "session_ended"),
            ))
        }
    });
    StreamBody::new(frames).boxed_unsync()
}
