//! HTTP front end: the part of Lockgate's API that the loads `lock`, `contended` and `semaphore` of `lockgate
//! bench` need. It uses the same library, hyper, but not axum. Sessions are accepted and ignored.

use std::convert::Infallible;
use std::rc::Rc;

use anyhow::Context;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::request::{Operation, Request as LockRequest, Submitted, submit};

/// TTL in the response to an opened session.
const TTL_MS: u64 = 30_000;

/// The response to a granted acquire after the lock's name, as long as Lockgate's.
const GRANT: &str = r#"","mode":"exclusive","holder":"_c_00000000000000000000000000000000-lock-0000000000","fencing_token":1000000,"holds":1,"permits":1}"#;

/// The fields of an acquire that matter here. A release needs none.
#[derive(Deserialize)]
struct Body {
    /// Number of permits of a semaphore.
    #[serde(default = "one")]
    limit: u8,
}

fn one() -> u8 {
    1
}

/// Serves clients until the process ends.
pub async fn serve(listener: TcpListener, submissions: mpsc::UnboundedSender<Submitted>) {
    let submissions = Rc::new(submissions);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let submissions = submissions.clone();
                tokio::task::spawn_local(async move {
                    if let Err(error) = serve_one(stream, &submissions).await {
                        eprintln!("bench-peers: a client: {error:#}");
                    }
                });
            }
            Err(error) => eprintln!("bench-peers: accepting a client: {error}"),
        }
    }
}

/// Serves one client until it closes its connection.
async fn serve_one(stream: TcpStream, submissions: &mpsc::UnboundedSender<Submitted>) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let service = service_fn(async |request| {
        let answer = answer(request, submissions).await.unwrap_or_else(|error| {
            let mut refused = Response::new(Full::from(format!("{error:#}")));
            *refused.status_mut() = StatusCode::BAD_REQUEST;
            refused
        });
        Ok::<_, Infallible>(answer)
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    connection.await.context("serving the connection")
}

async fn answer(
    request: Request<Incoming>,
    submissions: &mpsc::UnboundedSender<Submitted>,
) -> anyhow::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    if let Some(lock_and_verb) = path.strip_prefix("/v1/locks/") {
        let (lock, verb) = lock_and_verb
            .rsplit_once('/')
            .context("the path has no verb after the lock")?;
        let body = body.collect().await.context("reading the body")?.to_bytes();
        let operation = match verb {
            "acquire" => Operation::Acquire,
            "release" => Operation::Release,
            _ => anyhow::bail!("unknown verb {verb}"),
        };
        let fields: Body = serde_json::from_slice(&body).context("parsing the body")?;
        let request = LockRequest {
            operation,
            permits: fields.limit,
            key: Bytes::copy_from_slice(lock.as_bytes()),
        };
        let bytes = request.encode(&body);
        submit(submissions, request, bytes).await?;
        return Ok(match operation {
            Operation::Acquire => json(format!(r#"{{"lock":"{lock}{GRANT}"#)),
            _ => json(r#"{"holds":0}"#),
        });
    }
    match (&head.method, path.strip_prefix("/v1/sessions")) {
        (&Method::POST, Some("")) => Ok(json(format!(
            r#"{{"session":"0000000000000001","ttl_ms":{TTL_MS}}}"#
        ))),
        (&Method::POST, Some(_)) => Ok(json(format!(r#"{{"ttl_ms":{TTL_MS}}}"#))),
        (&Method::DELETE, Some(_)) => Ok(json("{}")),
        _ => anyhow::bail!("unknown route {} {path}", head.method),
    }
}

fn json(text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(text.into()));
    let is_json = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, is_json);
    answer
}
