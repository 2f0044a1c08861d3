//! Clients that speak HTTP: as much of Lockgate's API as the loads `lock`, `contended` and `semaphore` of `lockgate bench` need, by the
//! same library, hyper, and none of axum, which stands on it. Sessions are words here, and last for ever.

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

use super::serve::{Asked, stored};
use super::{Request as Wanted, Want};

/// What a session is told of its time, of which a client's heartbeats make three.
const TTL_MS: u64 = 30_000;

/// An answer that grants, but for the lock's name: as long as Lockgate's, with a holder as long as its holders.
const GRANT: &str = r#"","mode":"exclusive","holder":"_c_00000000000000000000000000000000-lock-0000000000","fencing_token":1000000,"holds":1,"permits":1}"#;

/// What is said with an acquire, as far as anything depends on it. That of a release says no more than is in its address.
#[derive(Deserialize)]
struct Body {
    /// How many permits a semaphore has.
    #[serde(default = "one")]
    limit: u8,
}

fn one() -> u8 {
    1
}

/// Serves who comes, until the process ends. What has to be stored goes to `ask`.
pub async fn serve(listener: TcpListener, ask: mpsc::UnboundedSender<Asked>) {
    let ask = Rc::new(ask);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let ask = ask.clone();
                tokio::task::spawn_local(async move {
                    if let Err(error) = serve_one(stream, &ask).await {
                        eprintln!("bench-peers: a client: {error:#}");
                    }
                });
            }
            Err(error) => eprintln!("bench-peers: accepting a client: {error}"),
        }
    }
}

/// Answers one client, until it closes its connection.
async fn serve_one(stream: TcpStream, ask: &mpsc::UnboundedSender<Asked>) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let service = service_fn(async |request| {
        let answer = answer(request, ask).await.unwrap_or_else(|error| {
            let mut refused = Response::new(Full::from(format!("{error:#}")));
            *refused.status_mut() = StatusCode::BAD_REQUEST;
            refused
        });
        Ok::<_, Infallible>(answer)
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    connection.await.context("its connection")
}

async fn answer(
    request: Request<Incoming>,
    ask: &mpsc::UnboundedSender<Asked>,
) -> anyhow::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    if let Some(lock_and_verb) = path.strip_prefix("/v1/locks/") {
        let (lock, verb) = lock_and_verb.rsplit_once('/').context("a lock without a verb")?;
        let body = body.collect().await.context("its body")?.to_bytes();
        let want = match verb {
            "acquire" => Want::Acquire,
            "release" => Want::Release,
            _ => anyhow::bail!("nothing is known of {verb}"),
        };
        let said: Body = serde_json::from_slice(&body).context("its body")?;
        let request = Wanted {
            want,
            permits: said.limit,
            key: Bytes::copy_from_slice(lock.as_bytes()),
        };
        let frame = request.frame(&body).slice(4..);
        stored(ask, request, frame).await?;
        return Ok(match want {
            Want::Acquire => json(format!(r#"{{"lock":"{lock}{GRANT}"#)),
            _ => json(r#"{"holds":0}"#),
        });
    }
    match (&head.method, path.strip_prefix("/v1/sessions")) {
        (&Method::POST, Some("")) => Ok(json(format!(
            r#"{{"session":"0000000000000001","ttl_ms":{TTL_MS}}}"#
        ))),
        (&Method::POST, Some(_)) => Ok(json(format!(r#"{{"ttl_ms":{TTL_MS}}}"#))),
        (&Method::DELETE, Some(_)) => Ok(json("{}")),
        _ => anyhow::bail!("nothing is known of {} {path}", head.method),
    }
}

fn json(text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(text.into()));
    let is_json = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, is_json);
    answer
}
