//! One HTTP request to one node with a time limit, for the management of the cluster. Clients of workloads
//! have their own HTTP code.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// Response of a node.
#[derive(Debug)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// Headers; `date` is the node's wall clock.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

impl Response {
    /// Returns the body as JSON, or `null` if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Returns the document of a successful response.
    pub fn success(self) -> anyhow::Result<Value> {
        ensure!(
            (200..300).contains(&self.status),
            "the node answered {}: {}",
            self.status,
            String::from_utf8_lossy(&self.body)
        );
        Ok(self.json())
    }
}

/// Sends one request on a connection of its own.
pub async fn call(
    node: SocketAddr,
    method: Method,
    path: &str,
    body: &Value,
    timeout: Duration,
) -> anyhow::Result<Response> {
    let what = format!("{method} {path} at {node}");
    let request_response = async {
        let stream = TcpStream::connect(node).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let bytes = match body {
            Value::Null => Bytes::new(),
            document => Bytes::from(document.to_string()),
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", node.to_string())
            .header("content-type", "application/json")
            .body(Full::new(bytes))?;
        let response = async {
            let response = sender.send_request(request).await?;
            let (head, body) = response.into_parts();
            let body = body.collect().await?.to_bytes();
            anyhow::Ok(Response {
                status: head.status.as_u16(),
                headers: head.headers,
                body,
            })
        };
        // The connection has to be polled for the response to arrive; its own end says nothing more.
        tokio::pin!(response, connection);
        tokio::select! {
            biased;
            response = &mut response => response,
            ended = &mut connection => match ended {
                Ok(()) => response.await,
                Err(error) => Err(error.into()),
            },
        }
    };
    match tokio::time::timeout(timeout, request_response).await {
        Ok(response) => response.with_context(|| what),
        Err(_) => anyhow::bail!("{what}: no answer within {} ms", timeout.as_millis()),
    }
}

/// Reads a document with `GET`.
pub async fn get(node: SocketAddr, path: &str, timeout: Duration) -> anyhow::Result<Value> {
    call(node, Method::GET, path, &Value::Null, timeout)
        .await?
        .success()
}
