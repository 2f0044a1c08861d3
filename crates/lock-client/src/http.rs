//! One request to one server: the only door to the HTTP library. No retries, no meaning.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Frame, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
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

/// The largest answer that is read: a page of a thousand znodes with their data stays far below.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// An idle connection is closed after so long. Servers and what stands between may forget it before.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// A host that vanished without a word is noticed by TCP after some of these; heartbeats notice it earlier.
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);

/// Where servers are.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// At addresses, and known by these certificates, if by any.
    Network(Option<ClientTls>),
    /// In this process.
    InProcess(InProcess),
}

/// What a request says that finds no runtime.
pub(crate) const NO_RUNTIME: &str = "the client cannot start a thread of its own";

/// A pool of connections to any number of servers.
#[derive(Clone)]
pub(crate) struct Http {
    client: Client<Connector, Full<Bytes>>,
    scheme: &'static str,
    /// Where connections live, whichever runtime their first request came from.
    background: Background,
    /// Says who calls; none: nobody in particular, or whoever the certificate names.
    token: Option<Arc<dyn TokenProvider>>,
    /// Notifies open streams when a request finds no file descriptor for a connection.
    descriptor_needed: Arc<Notify>,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A provider may be anything; none of what it knows is for logs.
        f.debug_struct("Http")
            .field("scheme", &self.scheme)
            .field("has_token", &self.token.is_some())
            .finish_non_exhaustive()
    }
}

/// A request that may be sent to any server, more than once.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Path and query, encoded.
    pub(crate) path: String,
    /// JSON; empty for none.
    pub(crate) body: Bytes,
}

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

/// What a server answers who asks for a stream.
pub(crate) enum Opened {
    Stream(Chunks),
    /// It has none.
    Answer(Answer),
}

/// A body that comes piece by piece.
pub(crate) struct Chunks(Incoming);

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum SendError {
    /// There was no connection: the server has seen nothing of it.
    NotSent(String),
    /// Nor was there, because this process has as many files open as it may have.
    NoDescriptor(String),
    /// It was sent, or begun to be: nobody knows what became of it.
    Broken(String),
}

impl Http {
    pub(crate) fn new(
        connect_timeout: Duration,
        place: Place,
        token: Option<Arc<dyn TokenProvider>>,
        background: Background,
    ) -> Self {
        let scheme = match &place {
            Place::Network(Some(_)) => "https",
            Place::Network(None) | Place::InProcess(_) => "http",
        };
        let connector = match place {
            Place::InProcess(connect) => Connector::InProcess(connect),
            Place::Network(tls) => {
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
            descriptor_needed: Arc::default(),
        }
    }

    /// Sends a request to `server` (`host:port`) and reads the answer. Dropped before that, it closes the connection, by
    /// which the server knows that nobody waits any more.
    pub(crate) async fn send(&self, server: &str, call: &Call) -> Result<Answer, SendError> {
        let response = self.begin(server, call).await.inspect_err(|error| {
            if matches!(error, SendError::NoDescriptor(_)) {
                self.descriptor_needed.notify_waiters();
            }
        })?;
        read(server, response).await
    }

    /// Waits until a request finds no descriptor. A stream, without which a client can do, then gives its own up: heartbeats and releases
    /// need one.
    pub(crate) async fn descriptor_needed(&self) {
        self.descriptor_needed.notified().await;
    }

    /// Asks `server` for a stream. Dropped, or when the stream is, the connection is closed.
    pub(crate) async fn open(&self, server: &str, path: &str) -> Result<Opened, SendError> {
        let response = self.begin(server, &Call::get(path.to_owned())).await?;
        match response.status() {
            StatusCode::OK => Ok(Opened::Stream(Chunks(response.into_body()))),
            _ => read(server, response).await.map(Opened::Answer),
        }
    }

    /// The same connections, for who has the token of this moment and keeps it; `None`: without one.
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

    async fn begin(&self, server: &str, call: &Call) -> Result<Response<Incoming>, SendError> {
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
    let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES)
        .collect()
        .await;
    let body = body.map_err(|error| SendError::Broken(format!("{server}: {error}")))?;
    Ok(Answer {
        status,
        body: body.to_bytes(),
    })
}

impl Chunks {
    /// What comes next; `None`: nothing does.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, String>> {
        loop {
            let frame = self.0.frame().await?;
            match frame.map(Frame::into_data) {
                Ok(Ok(bytes)) => return Some(Ok(bytes)),
                // Trailers, which say nothing here.
                Ok(Err(_)) => {}
                Err(error) => return Some(Err(with_causes(&error))),
            }
        }
    }
}

/// Whether the reason is that this process, or the machine, has no file descriptor left.
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

/// An error in one line: hyper's own text says little without what caused it.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
