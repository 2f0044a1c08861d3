//! The client: its servers, and how it is built.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::DuplexStream;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use transport_security::ClientTls;

use crate::background::Background;
use crate::connector::InProcess;
use crate::deadline::Margin;
use crate::http::{Endpoint, Http, Traceparent};
use crate::servers::{Patience, SHORTEST_TRY, Servers};
use crate::session::SessionBuilder;
use crate::shutdown::Sessions;
use crate::stats::Stats;
use crate::token::{TokenProvider, is_on_this_machine};
use crate::znodes::Znodes;

/// Default total time of a call at all servers: several elections.
const DEFAULT_PATIENCE: Duration = Duration::from_secs(15);

/// Default time for an answer of one server. It is longer than an election, during which a server holds answers back.
const DEFAULT_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Default time for a connection. A server that accepts none within this time has failed.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Host name of a server in this process. Servers accept all names below `localhost`.
const IN_PROCESS: &str = "in-process.localhost";

/// Client of a cluster. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct LockClient {
    pub(crate) servers: Arc<Servers>,
    pub(crate) margin: Margin,
    pub(crate) sessions: Arc<Sessions>,
    /// Cancelled by the shutdown: requests then fail with [`Error::Stopped`](crate::Error::Stopped).
    stopped: CancellationToken,
}

/// Error of a server address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The list of addresses is empty.
    #[error("at least one address of a server is needed")]
    None,
    /// The address is not `host:port`.
    #[error("{0:?} is not the address of a server: host:port, http://host:port or https://host:port")]
    Malformed(String),
    /// The address wants TLS, and the client has no authority.
    #[error(
        "{0:?} asks for TLS: say by which authority its servers are known (`ClientBuilder::tls`, `--ca`)"
    )]
    Tls(String),
    /// The address is without TLS, and the client has an authority.
    #[error("{0:?} would be called without TLS, though an authority is given")]
    Plain(String),
    /// The token would be sent without TLS over a network.
    #[error(
        "{0:?} would get the token without TLS, where everybody on the network path could read and use it: give the authority of its \
         servers (`ClientBuilder::tls`, `--ca`), or trust the network path (`ClientBuilder::insecure`, `--insecure`)"
    )]
    TokenInPlain(String),
}

/// Builder of a client; see [`LockClient::builder`].
#[derive(Clone)]
#[must_use = "a builder makes nothing before `build`"]
pub struct ClientBuilder {
    addresses: Vec<String>,
    patience: Patience,
    margin: Margin,
    tls: Option<ClientTls>,
    token: Option<Arc<dyn TokenProvider>>,
    insecure: bool,
    at_leader: bool,
    runtime: Option<Handle>,
    in_process: Option<InProcess>,
    traceparent: Option<Traceparent>,
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("addresses", &self.addresses)
            .field("patience", &self.patience)
            .field("margin", &self.margin)
            .field("tls", &self.tls)
            .field("has_token", &self.token.is_some())
            .field("insecure", &self.insecure)
            .finish()
    }
}

impl LockClient {
    /// Creates a client of the cluster with these servers: `host:port` or `http://host:port` (for TLS see [`ClientBuilder::tls`]). One
    /// server is enough; with more the client survives the loss of one. Sends nothing before the first call.
    pub fn new(addresses: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, AddressError> {
        Self::builder(addresses).build()
    }

    /// Returns a builder of a client, for more options.
    pub fn builder(addresses: impl IntoIterator<Item = impl AsRef<str>>) -> ClientBuilder {
        ClientBuilder {
            addresses: addresses
                .into_iter()
                .map(|address| address.as_ref().to_owned())
                .collect(),
            patience: Patience {
                total: DEFAULT_PATIENCE,
                answer: DEFAULT_ANSWER_TIMEOUT,
                connect: DEFAULT_CONNECT_TIMEOUT,
            },
            margin: Margin::default(),
            tls: None,
            token: None,
            insecure: false,
            at_leader: false,
            runtime: None,
            in_process: None,
            traceparent: None,
        }
    }

    /// Returns a builder of a client for a server in this process. `connect` opens a connection: it returns one end of
    /// [`tokio::io::duplex`], and the server speaks HTTP at the other end. An error means that the server does not listen.
    pub fn in_process(
        connect: impl Fn() -> io::Result<DuplexStream> + Send + Sync + 'static,
    ) -> ClientBuilder {
        ClientBuilder {
            in_process: Some(InProcess(Arc::new(connect))),
            ..Self::builder([IN_PROCESS])
        }
    }

    /// Returns the addresses of the servers, as `host:port`.
    pub fn addresses(&self) -> Vec<String> {
        self.servers.addresses()
    }

    /// Returns a builder of a session. Locks belong to sessions.
    pub fn session(&self) -> SessionBuilder {
        SessionBuilder::new(self.clone())
    }

    /// Returns what this client and its clones have done so far.
    pub fn stats(&self) -> Stats {
        self.servers.counts.snapshot()
    }

    /// Returns access to the tree of znodes, for changes that belong to no session.
    pub fn znodes(&self) -> Znodes {
        Znodes::new(self.servers.clone(), None)
    }

    /// Closes all sessions of this client and its clones, and ends the client. Guards are lost at once, with
    /// [`Loss::Stopped`](crate::Loss::Stopped). Pending and later calls fail with [`Error::Stopped`](crate::Error::Stopped).
    ///
    /// This takes at most a second. A session that could not be closed expires.
    ///
    /// # Cancel safety
    ///
    /// Sessions that were not closed yet expire, and requests still work. Call it again to end the client.
    pub async fn shut_down(&self) {
        self.sessions.close_all().await;
        self.stopped.cancel();
    }
}

impl ClientBuilder {
    /// Sets the total time of a call at all servers (15 s). One server gets at most its share of this time, and at least half a second,
    /// so that a server that does not answer leaves time for the others.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience.total = patience;
        self
    }

    /// Sets the time for an answer of one server (5 s); then the client asks the next one. Servers do not answer during an election, so a
    /// shorter time causes needless retries.
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.patience.answer = timeout;
        self
    }

    /// Sets the time for a connection to a server (2 s).
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.patience.connect = timeout;
        self
    }

    /// Makes sessions prefer the leader over the given servers (`false`). Acquires, releases and other changes then take one round trip
    /// between servers less. The client learns the leader from heartbeats: soon after a session is opened, and within a third of the TTL
    /// after a change of leaders. Until then, and while the leader is unreachable, the other servers answer. Use it for locks that change
    /// hands often; with hundreds of busy clients let all servers share the work.
    pub fn at_leader(mut self, at_leader: bool) -> Self {
        self.at_leader = at_leader;
        self
    }

    /// Sets the safety margin that is subtracted from the TTL of sessions; see [`Margin`].
    pub fn margin(mut self, margin: Margin) -> Self {
        self.margin = margin;
        self
    }

    /// Uses TLS with all servers, and verifies them. Addresses are `host:port` or `https://host:port`.
    pub fn tls(mut self, tls: ClientTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets the token for a secured cluster: a [`Token`](crate::Token), a [`TokenFile`](crate::TokenFile) that may be replaced, or another
    /// provider. The client never sends it to other machines without TLS.
    pub fn token(mut self, token: impl TokenProvider + 'static) -> Self {
        self.token = Some(Arc::new(token));
        self
    }

    /// Sends the token without TLS to any server. Everybody on the network path can read and use it.
    pub fn insecure(mut self, insecure: bool) -> Self {
        self.insecure = insecure;
        self
    }

    /// Sets a function that returns the trace context of the caller (W3C `traceparent`), for example of the current span of OpenTelemetry.
    /// The client calls it for each request, in the task of the caller and inside the request's span, and sends its result along.
    /// Heartbeats and event streams have no caller.
    pub fn traceparent(mut self, traceparent: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        self.traceparent = Some(Arc::new(traceparent));
        self
    }

    /// Runs connections, heartbeats and the last requests of dropped guards on this runtime, which needs timers and I/O.
    ///
    /// Without this they run on one thread of the client, which starts with the first request and ends after the last clone of the client,
    /// session and guard. With it sessions do not outlive the runtime, and heartbeats stop while all its threads are blocked.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Creates the client.
    pub fn build(mut self) -> Result<LockClient, AddressError> {
        let endpoint = match self.in_process.take() {
            Some(connect) => Endpoint::InProcess(connect),
            None => Endpoint::Network(self.tls.take()),
        };
        let tls = matches!(endpoint, Endpoint::Network(Some(_)));
        let addresses: Vec<String> = match &endpoint {
            Endpoint::InProcess(_) => self.addresses,
            Endpoint::Network(_) => {
                let addresses = self.addresses.iter().map(|text| host_and_port(text, tls));
                addresses.collect::<Result<_, _>>()?
            }
        };
        if addresses.is_empty() {
            return Err(AddressError::None);
        }
        if self.token.is_some()
            && matches!(endpoint, Endpoint::Network(None))
            && !self.insecure
            && let Some(far) = addresses.iter().find(|address| !is_on_this_machine(address))
        {
            return Err(AddressError::TokenInPlain(far.clone()));
        }
        let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let each = (self.patience.total / count).max(SHORTEST_TRY);
        self.patience.answer = self.patience.answer.min(each);
        self.patience.connect = self.patience.connect.min(each);
        let stopped = CancellationToken::new();
        let background = self.runtime.map_or_else(Background::own, Background::given);
        let connect = self.patience.connect;
        let http = Http::new(
            connect,
            endpoint,
            self.token,
            self.traceparent,
            background.clone(),
        );
        Ok(LockClient {
            servers: Arc::new(Servers::new(
                addresses,
                self.patience,
                http,
                self.at_leader,
                background,
                stopped.clone(),
            )),
            margin: self.margin,
            sessions: Arc::default(),
            stopped,
        })
    }
}

/// Returns the `host:port` of an address.
fn host_and_port(text: &str, tls: bool) -> Result<String, AddressError> {
    let malformed = || AddressError::Malformed(text.to_owned());
    let trimmed = text.trim();
    let (asks_for_tls, rest) = match trimmed.strip_prefix("https://") {
        Some(rest) => (Some(true), rest),
        None => match trimmed.strip_prefix("http://") {
            Some(rest) => (Some(false), rest),
            None => (None, trimmed),
        },
    };
    match asks_for_tls {
        Some(true) if !tls => return Err(AddressError::Tls(text.to_owned())),
        Some(false) if tls => return Err(AddressError::Plain(text.to_owned())),
        _ => {}
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let authority: hyper::http::uri::Authority = rest.parse().map_err(|_| malformed())?;
    match authority.port_u16() {
        Some(_) if !authority.host().is_empty() && !rest.contains('@') => Ok(rest.to_owned()),
        _ => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Token;

    #[test]
    fn a_token_is_not_sent_in_plain_to_other_machines() {
        let token = || Token::parse("lg_hidden").expect("it is one");
        let near = LockClient::builder(["127.0.0.1:1", "localhost:2"]).token(token());
        assert!(!format!("{near:?}").contains("hidden"));
        let client = near.build().expect("nobody is on the way");
        assert!(!format!("{client:?}").contains("hidden"));
        let far = LockClient::builder(["127.0.0.1:1", "http://lock-1:7400"]).token(token());
        let refused = far.clone().build().map(drop);
        assert_eq!(refused, Err(AddressError::TokenInPlain("lock-1:7400".to_owned())));
        let told = far.insecure(true);
        assert!(told.build().is_ok());
    }

    #[test]
    fn addresses_are_hosts_with_ports() {
        for (text, taken) in [
            ("127.0.0.1:7401", "127.0.0.1:7401"),
            ("http://lock-1.example:7400/", "lock-1.example:7400"),
            (" [::1]:7400 ", "[::1]:7400"),
        ] {
            assert_eq!(host_and_port(text, false).as_deref(), Ok(taken));
        }
        for text in [
            "",
            "lock-1",
            "lock-1:",
            ":7400",
            "lock-1:port",
            "http://a:1/v1",
            "me@a:1",
            "ftp://a:1",
        ] {
            assert!(
                matches!(host_and_port(text, false), Err(AddressError::Malformed(_))),
                "{text}"
            );
        }
        assert!(matches!(
            host_and_port("https://a:1", false),
            Err(AddressError::Tls(_))
        ));
        assert!(matches!(
            host_and_port("http://a:1", true),
            Err(AddressError::Plain(_))
        ));
        for text in ["https://a:1/", "a:1"] {
            assert_eq!(host_and_port(text, true).as_deref(), Ok("a:1"));
        }
        assert!(matches!(
            LockClient::new(Vec::<&str>::new()),
            Err(AddressError::None)
        ));
    }
}
