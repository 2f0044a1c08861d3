//! An HTTP/2 connection with one gRPC call at a time: the minimum for a client of etcd.

use anyhow::{Context, ensure};
use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version, header};
use tokio::net::TcpStream;

use crate::protobuf::Message;

/// Length of the prefix of each message: a flag for compression, and the message's length.
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
    /// Connects to `host:port`. Must be called within a `LocalSet`.
    pub async fn open(address: &str) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(address)
            .await
            .with_context(|| format!("connecting to {address}"))?;
        socket.set_nodelay(true)?;
        let (requests, connection) = h2::client::handshake(socket).await?;
        tokio::task::spawn_local(async move {
            // An error reaches the caller that waits for a response.
            let _ = connection.await;
        });
        Ok(Self {
            requests,
            address: address.to_owned(),
        })
    }

    /// Returns the method of this path, such as `/etcdserverpb.KV/Put`.
    pub fn method(&self, path: &str) -> anyhow::Result<Call> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        let uri = format!("http://{}{path}", self.address);
        Ok(Call {
            uri: uri.parse().context("the path of a method")?,
            headers,
        })
    }

    /// Calls the method and returns the response message.
    pub async fn call(&mut self, method: &Call, message: &Message) -> anyhow::Result<Bytes> {
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = method.uri.clone();
        *request.headers_mut() = method.headers.clone();
        let message = message.encoded();
        let mut body = BytesMut::with_capacity(PREFIX_BYTES + message.len());
        body.put_u8(0);
        body.put_u32(u32::try_from(message.len()).context("the message is too long")?);
        body.put_slice(message);

        // The connection is free, as only one call runs at a time.
        let mut ready = self.requests.clone().ready().await?;
        let (answer, mut stream) = ready.send_request(request, false)?;
        stream.send_data(body.freeze(), true)?;
        let answer = answer.await?;
        // A failed call has no body; its trailers are sent as headers.
        status(answer.headers())?;
        let mut body = answer.into_body();
        let mut received = BytesMut::new();
        while let Some(piece) = body.data().await {
            let piece = piece?;
            body.flow_control().release_capacity(piece.len())?;
            received.extend_from_slice(&piece);
        }
        let trailers = body.trailers().await?;
        status(&trailers.context("the response has no trailers")?)?;
        ensure!(
            received.len() >= PREFIX_BYTES && received[0] == 0,
            "the response is not a message"
        );
        Ok(received.freeze().slice(PREFIX_BYTES..))
    }
}

/// Returns an error if the headers report a failed call.
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
