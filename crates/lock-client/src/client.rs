//! The client itself: which servers there are, and where sessions begin.

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
use crate::http::Place;
use crate::servers::{Patience, SHORTEST_TRY, Servers};
use crate::session::SessionBuilder;
use crate::shutdown::Sessions;
use crate::token::{TokenProvider, is_on_this_machine};
use crate::znodes::Znodes;

/// How long a call is tried at all servers: some elections long.
const DEFAULT_PATIENCE: Duration = Duration::from_secs(15);

/// How long one server may take for an answer: longer than an election, during which a server holds its callers back.
const DEFAULT_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection may take: a server that does not accept one for so long does not live.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Name of a server in this process, for its `Host`: servers know all names below `localhost`.
const IN_PROCESS: &str = "in-process.localhost";

/// A cluster's client. Cheap to clone; all clones share their connections.
#[derive(Debug, Clone)]
pub struct LockClient {
    pub(crate) servers: Arc<Servers>,
    pub(crate) margin: Margin,
    pub(crate) sessions: Arc<Sessions>,
    /// Cancelled by the shutdown: requests then fail with [`Error::Stopped`](crate::Error::Stopped).
    stopped: CancellationToken,
}

/// What is no address of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// There is none.
    #[error("at least one address of a server is needed")]
    None,
    /// It is not `host:port`.
    #[error("{0:?} is not the address of a server: host:port, http://host:port or https://host:port")]
    Malformed(String),
    /// It asks for TLS.
    #[error(
        "{0:?} asks for TLS: say by which authority its servers are known (`ClientBuilder::tls`, `--ca`)"
    )]
    Tls(String),
    /// It asks to go without TLS, which the others have.
    #[error("{0:?} would be called without TLS, though an authority is given")]
    Plain(String),
    /// The token would be there for everybody to read on the way.
    #[error(
        "{0:?} would be shown the token without TLS, and whoever listens on the way could use it: say by which authority its \
         servers are known (`ClientBuilder::tls`, `--ca`), or that everybody on the way is trusted (`ClientBuilder::insecure`, \
         `--insecure`)"
    )]
    TokenInPlain(String),
}

/// Says how a client shall behave; see [`LockClient::builder`].
#[derive(Clone)]
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
    /// A client of the cluster whose servers have these addresses: `host:port` or `http://host:port`
    /// (with TLS: see [`ClientBuilder::tls`]). One is enough;
    /// with more of them it goes on when one dies. Nothing is sent before it is asked for something.
    pub fn new(addresses: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, AddressError> {
        Self::builder(addresses).build()
    }

    /// Likewise, with a say in its patience.
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
        }
    }

    /// A client of a server in this process. `connect` opens a connection: it gives one end of [`tokio::io::duplex`], and the server speaks
    /// HTTP at the other. An error says that the server does not listen.
    pub fn in_process(
        connect: impl Fn() -> io::Result<DuplexStream> + Send + Sync + 'static,
    ) -> ClientBuilder {
        ClientBuilder {
            in_process: Some(InProcess(Arc::new(connect))),
            ..Self::builder([IN_PROCESS])
        }
    }

    /// The servers' addresses, as `host:port`.
    pub fn addresses(&self) -> Vec<String> {
        self.servers.addresses()
    }

    /// A session to be opened. Locks belong to sessions.
    pub fn session(&self) -> SessionBuilder {
        SessionBuilder::new(self.clone())
    }

    /// The tree of znodes, for changes that belong to no session.
    pub fn znodes(&self) -> Znodes {
        Znodes::new(self.servers.clone(), None)
    }

    /// Closes all sessions of this client and its clones, and ends the client. Guards are lost with
    /// [`Loss::Stopped`](crate::Loss::Stopped), at once; calls that are under way, and later ones, fail with
    /// [`Error::Stopped`](crate::Error::Stopped).
    ///
    /// It takes a second at most. A session that could not be closed within that expires.
    pub async fn shut_down(&self) {
        self.sessions.close_all().await;
        self.stopped.cancel();
    }
}

impl ClientBuilder {
    /// How long a call is tried at all servers before it fails (15 s). What belongs to a session fails with it. Each server gets its part of
    /// this time at most, and half a second at least, so that one that is silent does not use up the time of the others.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience.total = patience;
        self
    }

    /// How long one server may take for an answer before the next one is asked (5 s). While a server waits for a new
    /// leader it answers nobody, so less than an election makes unrest.
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.patience.answer = timeout;
        self
    }

    /// How long connecting to a server may take (2 s).
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.patience.connect = timeout;
        self
    }

    /// Whether sessions call the server that leads the cluster, wherever that is, and not any of the given ones (`false`). Then an
    /// acquire, a release and every other change take a round trip between servers less. Who leads is learnt with heartbeats: soon
    /// after a session was opened, and after a change of leaders within a third of the session's time; until then, and while the
    /// leader cannot be reached, the others answer as ever. For locks that change hands often; where there are hundreds of busy
    /// clients, let all servers share the work.
    pub fn at_leader(mut self, at_leader: bool) -> Self {
        self.at_leader = at_leader;
        self
    }

    /// What is taken off the time of sessions; see [`Margin`].
    pub fn margin(mut self, margin: Margin) -> Self {
        self.margin = margin;
        self
    }

    /// Speaks TLS with all servers, which have to prove who they are; their addresses are `host:port` or `https://host:port`.
    pub fn tls(mut self, tls: ClientTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Says who calls, to clusters that are secured: a [`Token`](crate::Token), a [`TokenFile`](crate::TokenFile) that may be
    /// replaced, or whatever else gives one. It is never sent without TLS to other machines than this one.
    pub fn token(mut self, token: impl TokenProvider + 'static) -> Self {
        self.token = Some(Arc::new(token));
        self
    }

    /// Sends the token without TLS wherever the servers are: whoever listens on the way can use it.
    pub fn insecure(mut self, insecure: bool) -> Self {
        self.insecure = insecure;
        self
    }

    /// Runs connections, heartbeats and the last requests of dropped guards on this runtime, which needs its timers and its I/O enabled.
    ///
    /// Without this they run on one thread of the client's own, which starts with the first request and ends after the last clone of the
    /// client, session and guard. A session does not outlive the runtime that is given here: its heartbeats end with it, and so do they
    /// while all threads of the runtime are blocked.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// The client.
    pub fn build(mut self) -> Result<LockClient, AddressError> {
        let place = match self.in_process.take() {
            Some(connect) => Place::InProcess(connect),
            None => Place::Network(self.tls.take()),
        };
        let tls = matches!(place, Place::Network(Some(_)));
        let addresses: Vec<String> = match &place {
            Place::InProcess(_) => self.addresses,
            Place::Network(_) => {
                let addresses = self.addresses.iter().map(|text| host_and_port(text, tls));
                addresses.collect::<Result<_, _>>()?
            }
        };
        if addresses.is_empty() {
            return Err(AddressError::None);
        }
        if self.token.is_some()
            && matches!(place, Place::Network(None))
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
        Ok(LockClient {
            servers: Arc::new(Servers::new(
                addresses,
                self.patience,
                place,
                self.token,
                self.at_leader,
                self.runtime.map_or_else(Background::own, Background::given),
                stopped.clone(),
            )),
            margin: self.margin,
            sessions: Arc::default(),
            stopped,
        })
    }
}

/// `host:port` out of an address.
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
