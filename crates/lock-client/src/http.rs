//! HTTP exchange with one server. The only file that uses the HTTP library; it neither retries nor interprets answers.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Frame, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use nix::errno::Errno;
use tokio::sync::Notify;
use transport_security::ClientTls;

use crate::background::Background;
use crate::connector::{Connector, InProcess};
use crate::token::{TokenError, TokenProvider};

/// Maximum size of an answer. A page of a thousand znodes with their data is far below.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Time after which an idle connection is closed. Servers and proxies may close it earlier.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval of TCP keep-alive, which detects hosts that vanished. Heartbeats detect them earlier.
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);

/// Header of the W3C Trace Context.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Returns the trace context of the caller; see [`crate::ClientBuilder::traceparent`].
pub(crate) type Traceparent = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Location of the servers.
#[derive(Debug, Clone)]
pub(crate) enum Endpoint {
    /// At network addresses; with TLS if there are certificates to verify.
    Network(Option<ClientTls>),
    /// In this process.
    InProcess(InProcess),
}

/// Reason of a request that fails for want of a runtime.
pub(crate) const NO_RUNTIME: &str = "the client cannot start a thread of its own";

/// Pool of connections to any number of servers.
#[derive(Clone)]
pub(crate) struct Http {
    client: Client<Connector, Full<Bytes>>,
    scheme: &'static str,
    /// Runtime of the connections, whichever runtime their first request came from.
    background: Background,
    /// Token of the caller; `None` for callers without one, or with a certificate.
    token: Option<Arc<dyn TokenProvider>>,
    traceparent: Option<Traceparent>,
    /// Notifies open streams when a request finds no file descriptor for a connection.
    descriptor_needed: Arc<Notify>,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A provider may contain secrets, so it is not shown.
        f.debug_struct("Http")
            .field("scheme", &self.scheme)
            .field("has_token", &self.token.is_some())
            .finish_non_exhaustive()
    }
}

/// Request that may be sent to any server, more than once.
#[derive(Debug, Clone)]
pub(crate) struct ApiRequest {
    pub(crate) method: Method,
    /// Path and query, encoded.
    pub(crate) path: String,
    /// JSON; empty without a body.
    pub(crate) body: Bytes,
    /// `true` for a request that no caller waits for, so it belongs to no trace.
    pub(crate) in_background: bool,
}

/// Answer of a server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
    /// Time after which the server takes the request again (`Retry-After`).
    pub(crate) retry_after: Option<Duration>,
}

/// Answer of a server to a request for a stream.
pub(crate) enum Opened {
    Stream(Chunks),
    /// There is no stream, but an ordinary answer.
    Answer(Answer),
}

/// Body that arrives in chunks.
pub(crate) struct Chunks(Incoming);

/// Reason why there is no answer.
#[derive(Debug)]
pub(crate) enum SendError {
    /// There was no connection, so the server has not received the request.
    NotSent(String),
    /// The same, because this process has no free file descriptor.
    NoDescriptor(String),
    /// The request was sent, perhaps in part. Its outcome is unknown.
    Broken(String),
}

impl Http {
    pub(crate) fn new(
        connect_timeout: Duration,
        endpoint: Endpoint,
        token: Option<Arc<dyn TokenProvider>>,
        traceparent: Option<Traceparent>,
        background: Background,
    ) -> Self {
        let scheme = match &endpoint {
            Endpoint::Network(Some(_)) => "https",
            Endpoint::Network(None) | Endpoint::InProcess(_) => "http",
        };
        let connector = match endpoint {
            Endpoint::InProcess(connect) => Connector::InProcess(connect),
            Endpoint::Network(tls) => {
                let mut tcp = HttpConnector::new();
                tcp.enforce_http(false);
                tcp.set_nodelay(true);
                tcp.set_connect_timeout(Some(connect_timeout));
                tcp.set_keepalive(Some(TCP_KEEPALIVE));
                Connector::Network {
                    tcp,
                    tls,
                    handshake_timeout: connect_timeout,
                }
            }
        };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .build(connector);
        Self {
            client,
            scheme,
            background,
            token,
            traceparent,
            descriptor_needed: Arc::default(),
        }
    }

    /// Sends a request to `server` (`host:port`) and reads the answer. If dropped before, it closes the connection, and the server detects
    /// that.
    pub(crate) async fn send(&self, server: &str, call: &ApiRequest) -> Result<Answer, SendError> {
        let response = self.begin(server, call).await.inspect_err(|error| {
            if matches!(error, SendError::NoDescriptor(_)) {
                self.descriptor_needed.notify_waiters();
            }
        })?;
        read(server, response).await
    }

    /// Waits until a request finds no file descriptor. An open stream, which is optional, then closes: heartbeats and releases need the
    /// descriptor.
    pub(crate) async fn descriptor_needed(&self) {
        self.descriptor_needed.notified().await;
    }

    /// Opens a stream at `server`. Dropping the future or the stream closes the connection.
    pub(crate) async fn open(&self, server: &str, path: &str) -> Result<Opened, SendError> {
        let call = ApiRequest::get(path.to_owned()).in_background();
        let response = self.begin(server, &call).await?;
        match response.status() {
            StatusCode::OK => Ok(Opened::Stream(Chunks(response.into_body()))),
            _ => read(server, response).await.map(Opened::Answer),
        }
    }

    /// Returns the same pool with the current token fixed; `None` if there is no token.
    pub(crate) fn pinned(&self) -> Result<Option<Self>, TokenError> {
        let Some(provider) = &self.token else {
            return Ok(None);
        };
        let token = Arc::new(provider.token()?);
        Ok(Some(Self {
            token: Some(token),
            ..self.clone()
        }))
    }

    async fn begin(&self, server: &str, call: &ApiRequest) -> Result<Response<Incoming>, SendError> {
        let uri: Uri = format!("{}://{server}{}", self.scheme, call.path)
            .parse()
            .map_err(|error| SendError::NotSent(format!("{server}{}: {error}", call.path)))?;
        let mut request = Request::new(Full::new(call.body.clone()));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = uri;
        if !call.body.is_empty() {
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().insert(CONTENT_TYPE, json);
        }
        if let Some(provider) = &self.token {
            let token = provider
                .token()
                .map_err(|error| SendError::NotSent(format!("there is no token to show: {error}")))?;
            request.headers_mut().insert(AUTHORIZATION, token.header());
        }
        if let Some(traceparent) = self.traceparent.as_ref().filter(|_| !call.in_background)
            && let Some(context) = traceparent()
        {
            match HeaderValue::try_from(context) {
                Ok(context) => drop(request.headers_mut().insert(TRACEPARENT, context)),
                Err(error) => tracing::debug!(%error, "the trace context of the program is malformed"),
            }
        }
        let sent = self.background.within(self.client.request(request));
        let sent = sent.map_err(|error| SendError::NotSent(format!("{server}: {NO_RUNTIME}: {error}")))?;
        sent.await.map_err(|error| {
            let told = format!("{server}: {}", with_causes(&error));
            match error.is_connect() {
                true if is_out_of_descriptors(&error) => SendError::NoDescriptor(told),
                true => SendError::NotSent(told),
                false => SendError::Broken(told),
            }
        })
    }
}

async fn read(server: &str, response: Response<Incoming>) -> Result<Answer, SendError> {
    let status = response.status().as_u16();
    let named = response.headers().get(RETRY_AFTER);
    let seconds = named.and_then(|named| named.to_str().ok()?.parse().ok());
    let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES)
        .collect()
        .await;
    let body = body.map_err(|error| SendError::Broken(format!("{server}: {error}")))?;
    Ok(Answer {
        status,
        body: body.to_bytes(),
        retry_after: seconds.map(Duration::from_secs),
    })
}

impl Chunks {
    /// Returns the next chunk; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, String>> {
        loop {
            let frame = self.0.frame().await?;
            match frame.map(Frame::into_data) {
                Ok(Ok(bytes)) => return Some(Ok(bytes)),
                // Trailers have no meaning here.
                Ok(Err(_)) => {}
                Err(error) => return Some(Err(with_causes(&error))),
            }
        }
    }
}

/// Returns whether the cause is that this process, or the machine, has no free file descriptor.
fn is_out_of_descriptors(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let code = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::raw_os_error);
        if code.is_some_and(|code| [Errno::EMFILE, Errno::ENFILE].contains(&Errno::from_raw(code))) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Returns an error with its causes in one line: hyper's own text is short.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
