//! One HTTP/2 connection on which one call of gRPC is under way at a time: the least that a client of etcd does.

use anyhow::{Context, ensure};
use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version, header};
use tokio::net::TcpStream;

use crate::protobuf::Message;

/// Before each message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// A connection to one server.
pub struct Connection {
    requests: SendRequest<Bytes>,
    address: String,
}

/// A method of a service of that server.
#[derive(Debug, Clone)]
pub struct Call {
    uri: Uri,
    headers: HeaderMap,
}

impl Connection {
    /// Connects to `host:port`. Has to be in a `LocalSet`.
    pub async fn open(address: &str) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(address)
            .await
            .with_context(|| format!("connecting to {address}"))?;
        socket.set_nodelay(true)?;
        let (requests, connection) = h2::client::handshake(socket).await?;
        tokio::task::spawn_local(async move {
            // Whoever waits for an answer hears of it.
            let _ = connection.await;
        });
        Ok(Self {
            requests,
            address: address.to_owned(),
        })
    }

    /// The method of this path, such as `/etcdserverpb.KV/Put`.
    pub fn method(&self, path: &str) -> anyhow::Result<Call> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        let uri = format!("http://{}{path}", self.address);
        Ok(Call {
            uri: uri.parse().context("a path of a method")?,
            headers,
        })
    }

    /// Calls it, and returns the message that is answered.
    pub async fn call(&mut self, method: &Call, message: &Message) -> anyhow::Result<Bytes> {
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = method.uri.clone();
        *request.headers_mut() = method.headers.clone();
        let message = message.encoded();
        let mut body = BytesMut::with_capacity(PREFIX_BYTES + message.len());
        body.put_u8(0);
        body.put_u32(u32::try_from(message.len()).context("a long message")?);
        body.put_slice(message);

        // The connection is free: only one call is under way at a time.
        let mut ready = self.requests.clone().ready().await?;
        let (answer, mut stream) = ready.send_request(request, false)?;
        stream.send_data(body.freeze(), true)?;
        let answer = answer.await?;
        // A refusal has no body, and its trailers are its headers.
        status(answer.headers())?;
        let mut body = answer.into_body();
        let mut received = BytesMut::new();
        while let Some(piece) = body.data().await {
            let piece = piece?;
            body.flow_control().release_capacity(piece.len())?;
            received.extend_from_slice(&piece);
        }
        let trailers = body.trailers().await?;
        status(&trailers.context("an answer that does not say whether it is one")?)?;
        ensure!(
            received.len() >= PREFIX_BYTES && received[0] == 0,
            "an answer that is no message"
        );
        Ok(received.freeze().slice(PREFIX_BYTES..))
    }
}

/// An error unless the call went well, as far as that is said here.
fn status(headers: &HeaderMap) -> anyhow::Result<()> {
    let Some(status) = headers.get("grpc-status") else {
        return Ok(());
    };
    let message = headers.get("grpc-message");
    ensure!(
        status == "0",
        "grpc-status {}: {}",
        status.to_str().unwrap_or_default(),
        message.and_then(|text| text.to_str().ok()).unwrap_or_default()
    );
    Ok(())
}
