//! One node with its HTTP front end, inside whatever program starts it. Reads no files but the node's own, and
//! leaves the runtime, the log's subscriber and signals to the program.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lock_api::http;
use lock_api::http::{HttpConfig, LiveConfig, OperatorToken, Tracing};
use lock_api::locks::Locks;
use lock_client::{LockClient, LockSession};
use raft_node::metrics::sheet::Registry;
use raft_node::{
    AdmissionConfig, MemberAddress, MembershipChanged, MembershipError, MetricsConfig, Node, NodeConfig,
    NodeId, RaftTiming, SessionBounds, SnapshotConfig, SweepConfig, Tuning, WatchConfig,
};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use transport_security::TlsError;
use znode_store::Limits;

use crate::in_process::InProcess;
use crate::operator::OperatorFile;
use crate::transport::{TlsConfig, Transport, refuse_exposed, requires_access};
use crate::unsecured::Unsecured;
use crate::zookeeper::{self, ZooKeeper};

/// Pause between two looks whether a node is ready: elections take longer.
const READY_POLL: Duration = Duration::from_millis(20);

/// A running node with its front ends. Ends with [`Lockgate::stop`]; a dropped one goes on in the
/// background for as long as the runtime lives.
pub struct Lockgate {
    node: Node,
    locks: Locks,
    http_address: Option<SocketAddr>,
    zookeeper: zookeeper::Addresses,
    admin_address: Option<SocketAddr>,
    front_ends: Mutex<Vec<FrontEnd>>,
    /// Has the certificates looked at; none without TLS.
    certificates: Option<Arc<Notify>>,
    /// By what its operator is known.
    operator: Option<OperatorFile>,
    in_process: InProcess,
    bounds: LiveFrontEnds,
    /// What a server that stops is waiting for.
    stops_at: std::sync::Mutex<Option<&'static str>>,
}

/// The bounds of the front ends, which can be changed while they serve.
struct LiveFrontEnds {
    http: LiveConfig,
    admin: LiveConfig,
    #[cfg_attr(not(feature = "zookeeper"), expect(dead_code, reason = "there is nothing to configure"))]
    zookeeper: ZooKeeper,
}

/// What can be changed while a server runs: see [`Lockgate::reconfigure`].
#[derive(Debug, Clone)]
pub struct Reconfigured {
    /// What one HTTP caller can cost, and who may call from where.
    pub http: HttpConfig,
    /// What one caller of the port for administration can cost.
    pub admin: HttpConfig,
    /// What one client of ZooKeeper can cost.
    #[cfg(feature = "zookeeper")]
    pub zookeeper: zk_front::ZkConfig,
    /// How much the node takes in for the cluster.
    pub admission: AdmissionConfig,
    /// What else of the node can be changed.
    pub tuning: Tuning,
}

/// A task that serves clients until it is told to stop.
struct FrontEnd {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The node does not start.
    #[error(transparent)]
    Node(#[from] raft_node::StartError),
    /// The address for HTTP is not to be had.
    #[error("cannot listen for HTTP at {address}: {source}")]
    Http {
        /// Which address.
        address: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// Its certificates are of no use.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    /// It would be open to everybody.
    #[error(
        "this node would listen for {what} at {address}, which other machines can reach, without TLS: give it certificates \
         (`Builder::tls`), have it listen on 127.0.0.1, or accept that whoever reaches it can do everything (`Builder::insecure`)"
    )]
    Exposed {
        /// For whom.
        what: &'static str,
        /// Where.
        address: String,
    },
    /// The address for administration is not to be had.
    #[error("cannot listen for administration at {address}: {source}")]
    Administration {
        /// Which address.
        address: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The address for clients of ZooKeeper is not to be had.
    #[error("cannot listen for clients of ZooKeeper at {address}: {source}")]
    ZooKeeper {
        /// Which address.
        address: String,
        /// What the operating system said.
        source: io::Error,
    },
}

/// Why a node cannot serve yet, or any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the node is not ready: {0}")]
pub struct NotReady(String);

/// What a [`Lockgate`] is told before it starts. All but id, members and directory has defaults.
#[derive(Debug, Clone)]
pub struct Builder {
    config: NodeConfig,
    http: HttpConfig,
    http_listen: HttpListen,
    zookeeper: zookeeper::Settings,
    admin: HttpConfig,
    admin_listen: Option<String>,
    tls: Option<TlsConfig>,
    insecure: bool,
    access_required: Option<bool>,
}

#[derive(Debug, Clone)]
enum HttpListen {
    /// Where the members' list says that this node serves.
    AsMember,
    At(String),
    Nowhere,
}

impl Builder {
    /// This node's id: one of the members'. Default 1.
    pub fn node_id(mut self, id: NodeId) -> Self {
        self.config.node_id = id;
        self
    }

    /// The cluster's name; peers of another name are refused. Default `lockgate`.
    pub fn cluster(mut self, name: impl Into<String>) -> Self {
        self.config.cluster = name.into();
        self
    }

    /// Adds a member, this node or another: where its peers and where its clients reach it (`host:port`).
    pub fn member(mut self, id: NodeId, peer: impl Into<String>, http: impl Into<String>) -> Self {
        self.config.members.insert(
            id,
            MemberAddress {
                peer: peer.into(),
                http: http.into(),
            },
        );
        self
    }

    /// All members at once.
    pub fn members(mut self, members: BTreeMap<NodeId, MemberAddress>) -> Self {
        self.config.members = members;
        self
    }

    /// Joins a cluster that exists: forms none, and waits until a member adds this node
    /// ([`Lockgate::add_member`] there). Of the members only this node itself has to be named then.
    pub fn join(mut self) -> Self {
        self.config.join = true;
        self
    }

    /// Where log, vote and snapshots are kept. Default `data` in the working directory.
    pub fn data_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.config.data_dir = dir.into();
        self
    }

    /// Where to listen for peers, if not where the members' list says. Port 0 is no use here: peers call the port of the list.
    pub fn peer_listen(mut self, address: SocketAddr) -> Self {
        self.config.peer_listen = Some(address);
        self
    }

    /// Where to listen for HTTP, if not where the members' list says. Port 0: any free one, see
    /// [`Lockgate::http_address`].
    pub fn http_listen(mut self, address: impl Into<String>) -> Self {
        self.http_listen = HttpListen::At(address.into());
        self
    }

    /// Serves no HTTP: only this program takes locks here, and the other members.
    pub fn without_http(mut self) -> Self {
        self.http_listen = HttpListen::Nowhere;
        self
    }

    /// What one HTTP caller can cost.
    pub fn http_config(mut self, config: HttpConfig) -> Self {
        self.http = config;
        self
    }

    /// Serves clients of ZooKeeper, too: Curator, kazoo and all others. Port 0: any free one, see
    /// [`Lockgate::zookeeper_address`]. Without this none are served.
    #[cfg(feature = "zookeeper")]
    pub fn zookeeper_listen(mut self, address: impl Into<String>) -> Self {
        self.zookeeper.listen = Some(address.into());
        self
    }

    /// Serves clients of ZooKeeper at a second address without TLS, for as long as they move from one to the other. Whoever names this address
    /// accepts that what is said there can be read on the way. Where others than this machine can call it, tokens and the superuser's password
    /// are refused there, unless the server is [`Builder::insecure`]. Without [`Builder::tls`] it is one more address without TLS, under the
    /// same rules as the first one.
    #[cfg(feature = "zookeeper")]
    pub fn zookeeper_plain_listen(mut self, address: impl Into<String>) -> Self {
        self.zookeeper.plain_listen = Some(address.into());
        self
    }

    /// What one client of ZooKeeper can cost.
    #[cfg(feature = "zookeeper")]
    pub fn zookeeper_config(mut self, zookeeper: zk_front::ZkConfig) -> Self {
        self.zookeeper.config = zookeeper;
        self
    }

    /// Serves the same HTTP at another address, too, for the people who look after the cluster: with places of its own, which
    /// clients cannot take, and without being refused because clients ask for much. Port 0: any free one, see
    /// [`Lockgate::admin_address`]. It is protected as the other ports are; best have it listen on 127.0.0.1.
    pub fn admin_listen(mut self, address: impl Into<String>) -> Self {
        self.admin_listen = Some(address.into());
        self
    }

    /// What one caller can cost there.
    pub fn admin_config(mut self, config: HttpConfig) -> Self {
        self.admin = config;
        self
    }

    /// How much this node takes in for the cluster.
    pub fn admission(mut self, admission: AdmissionConfig) -> Self {
        self.config.admission = admission;
        self
    }

    /// Protects all connections, of peers and of clients. Without this, and without [`Builder::insecure`], a server does not start
    /// where others than its own machine can call it.
    pub fn tls(mut self, tls: TlsConfig) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Whether to start without TLS wherever it is called from, and to serve everybody there even if the cluster is not
    /// secured: whoever reaches it can do everything.
    pub fn insecure(mut self, insecure: bool) -> Self {
        self.insecure = insecure;
        self
    }

    /// Whether nobody but the operator is served before the cluster is secured. If it is not said: where others than this
    /// machine can call, unless [`Builder::insecure`].
    pub fn access_required(mut self, required: impl Into<Option<bool>>) -> Self {
        self.access_required = required.into();
        self
    }

    /// Timing of Raft. The same on all nodes.
    pub fn timing(mut self, timing: RaftTiming) -> Self {
        self.config.timing = timing;
        self
    }

    /// When to make snapshots.
    pub fn snapshots(mut self, snapshots: SnapshotConfig) -> Self {
        self.config.snapshots = snapshots;
        self
    }

    /// Bounds of session timeouts.
    pub fn sessions(mut self, bounds: SessionBounds) -> Self {
        self.config.sessions = bounds;
        self
    }

    /// When containers that nobody uses and TTL nodes whose time is over are swept.
    pub fn sweeps(mut self, sweeps: SweepConfig) -> Self {
        self.config.sweeps = sweeps;
        self
    }

    /// How much there may be of what in the tree. The leader's hold in the whole cluster.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.config.limits = limits;
        self
    }

    /// How much is kept for those who watch.
    pub fn watches(mut self, watches: WatchConfig) -> Self {
        self.config.watches = watches;
        self
    }

    /// Which locks are also counted on their own, and what is told of as slow.
    pub fn metrics(mut self, metrics: MetricsConfig) -> Self {
        self.config.metrics = metrics;
        self
    }

    /// Traces requests over HTTP, all of them or a part; call it after [`Builder::http_config`].
    pub fn traces(mut self, tracing: Tracing) -> Self {
        self.http.tracing = Some(tracing);
        self
    }

    /// After so long without an answer a proposal's outcome is given as unknown.
    pub fn propose_timeout(mut self, timeout: Duration) -> Self {
        self.config.propose_timeout = timeout;
        self
    }

    /// Starts the node and its HTTP front end on the runtime that this is called on. When it returns both
    /// listen; there may be no leader yet.
    pub async fn start(mut self) -> Result<Lockgate, StartError> {
        let address = match self.http_listen {
            HttpListen::Nowhere => None,
            HttpListen::At(address) => Some(address),
            HttpListen::AsMember => self
                .config
                .members
                .get(&self.config.node_id)
                .map(|own| own.http.clone()),
        };
        let transport = match &self.tls {
            Some(tls) => Some(Transport::new(tls, &self.config.cluster, self.config.node_id)?),
            None if self.insecure => None,
            None => {
                let admin = self.admin_listen.as_deref();
                refuse_exposed(&self.config, address.as_deref(), self.zookeeper.listens(), admin).await?;
                None
            }
        };
        self.config.tls = transport.as_ref().map(|transport| transport.peers.clone());
        // The ports first: a node that cannot be reached should not take part in elections.
        let http = match address {
            None => None,
            Some(address) => Some(
                listen(&address)
                    .await
                    .map_err(|source| StartError::Http { address, source })?,
            ),
        };
        let zookeeper_ports = self.zookeeper.bind().await?;
        let zookeeper_addresses = zookeeper_ports.addresses();
        let admin = match self.admin_listen {
            None => None,
            Some(address) => Some(
                listen(&address)
                    .await
                    .map_err(|source| StartError::Administration { address, source })?,
            ),
        };
        let address = |port: &Option<(TcpListener, SocketAddr)>| port.as_ref().map(|(_, address)| *address);
        let (http_address, admin_address) = (address(&http), address(&admin));
        let bound = [
            http_address,
            zookeeper_addresses.main,
            zookeeper_addresses.plain,
            admin_address,
        ];
        let bound = bound.into_iter().flatten();
        let access_required = requires_access(self.access_required, self.insecure, bound);
        self.http.secured_only = access_required;
        self.zookeeper
            .set_common(access_required, self.http.tracing.clone());
        let node = Node::start(self.config).await?;
        let operator = http.is_some().then(|| put_operator(&node)).flatten();
        let operator = operator.map(|(file, token)| {
            self.http.operator = Some(token);
            file
        });
        let locks = Locks::new(node.clone());
        let mut front_ends = Vec::new();
        let tls = transport.as_ref().map(|transport| transport.http.clone());
        self.http.names.certificate = tls.clone();
        let zookeeper = ZooKeeper::new(&node, self.zookeeper, zookeeper_addresses, transport.is_some());
        let mut registry = Registry::default();
        let mut doors = vec![("http", self.http.meter.clone())];
        if admin.is_some() {
            doors.push(("administration", self.admin.meter.clone()));
        }
        zookeeper.register(&mut registry, &mut doors);
        http::register_doors(&mut registry, doors);
        let (http_bounds, admin_bounds) = (LiveConfig::from(self.http), LiveConfig::from(self.admin));
        let router = http::measured_router(node.clone(), locks.clone(), http_bounds.clone(), registry);
        if let Some(listens) = http_address
            && access_required
        {
            let stop = CancellationToken::new();
            let own = node.config().members.get(&node.id());
            let unsecured = Unsecured {
                listens,
                called: own.map(|own| own.http.clone()).filter(|_| transport.is_some()),
                operator: operator.as_ref().map(|file| file.path().to_owned()),
            };
            front_ends.push(FrontEnd {
                task: tokio::spawn(unsecured.tell(node.clone(), stop.clone())),
                stop,
            });
        }
        let in_process = InProcess::new(router.clone(), http_bounds.clone());
        let administration = http::administration(router.clone());
        let admin = admin.map(|(listener, _)| (listener, administration, admin_bounds.clone(), None));
        let http = http.map(|(listener, _)| (listener, router, http_bounds.clone(), Some(node.clone())));
        for (listener, router, config, busy) in [http, admin].into_iter().flatten() {
            let stop = CancellationToken::new();
            let stopped = stop.clone().cancelled_owned();
            front_ends.push(FrontEnd {
                stop,
                task: tokio::spawn(http::serve(listener, router, config, tls.clone(), busy, stopped)),
            });
        }
        let tls = transport.as_ref().map(|transport| transport.zookeeper.clone());
        let serving = zookeeper.serve(zookeeper_ports, tls, self.insecure);
        front_ends.extend(serving.into_iter().map(|(stop, task)| FrontEnd { stop, task }));
        if let Some(transport) = &transport {
            let stop = CancellationToken::new();
            front_ends.push(FrontEnd {
                task: tokio::spawn(transport.follow(stop.clone())),
                stop,
            });
        }
        Ok(Lockgate {
            in_process,
            certificates: transport.map(|transport| transport.look_now()),
            operator,
            locks,
            node,
            http_address,
            zookeeper: zookeeper_addresses,
            admin_address,
            front_ends: Mutex::new(front_ends),
            stops_at: std::sync::Mutex::default(),
            bounds: LiveFrontEnds {
                http: http_bounds,
                admin: admin_bounds,
                zookeeper,
            },
        })
    }
}

/// A node whose disk is full, or whose directory cannot be written to any more, has to start all the same: others depend on it.
fn put_operator(node: &Node) -> Option<(OperatorFile, OperatorToken)> {
    let put = OperatorFile::put(&node.config().data_dir);
    put.inspect_err(
        |error| warn!(node = node.id(), %error, "the operator's token cannot be written, so this node has no operator"),
    )
    .ok()
}

async fn listen(address: &str) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

impl std::fmt::Debug for Lockgate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let node = self.node.id();
        f.debug_struct("Lockgate")
            .field("node", &node)
            .field("http_address", &self.http_address)
            .field("zookeeper_address", &self.zookeeper.main)
            .finish()
    }
}

impl Lockgate {
    /// Begins to describe a server.
    pub fn builder() -> Builder {
        Self::configured(NodeConfig::new(1, "lockgate", BTreeMap::new(), "data"))
    }

    /// Begins with a node that is configured already.
    pub fn configured(config: NodeConfig) -> Builder {
        Builder {
            config,
            http: HttpConfig::default(),
            http_listen: HttpListen::AsMember,
            zookeeper: zookeeper::Settings::default(),
            admin: HttpConfig::administration(),
            admin_listen: None,
            tls: None,
            insecure: false,
            access_required: None,
        }
    }

    /// The lock service: what the HTTP front end calls, for callers with sessions of their own.
    /// [`Lockgate::client`] is more comfortable.
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// The node: the tree, the sessions and the cluster's state.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Where HTTP is served; `None` without HTTP.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// Where clients of ZooKeeper are served; `None` where they are not.
    #[cfg(feature = "zookeeper")]
    pub fn zookeeper_address(&self) -> Option<SocketAddr> {
        self.zookeeper.main
    }

    /// Where they are also served without TLS; `None` where they are not.
    #[cfg(feature = "zookeeper")]
    pub fn zookeeper_plain_address(&self) -> Option<SocketAddr> {
        self.zookeeper.plain
    }

    /// Where administration has a port of its own; `None` where it has none.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// Whether connections are protected.
    pub fn is_secured(&self) -> bool {
        self.certificates.is_some()
    }

    /// Where the token of this node's operator is, which counts at this node alone: with it a cluster is secured. `None` without
    /// HTTP, or if it could not be written.
    pub fn operator_token_file(&self) -> Option<&Path> {
        self.operator.as_ref().map(OperatorFile::path)
    }

    /// Has certificates, keys and authorities looked at now, which happens every few seconds anyway. Those that make no sense
    /// are logged, and the earlier ones stay in use.
    pub fn reload_certificates(&self) {
        if let Some(certificates) = &self.certificates {
            certificates.notify_one();
        }
    }

    /// Changes what callers can cost from now on. Who is connected stays so, and what was taken in is carried out. What of it is
    /// taken at the start only (room for large bodies, times to drain) stays as it was.
    ///
    /// What does not go together with what the node was started with is refused, and then nothing is taken up.
    pub fn reconfigure(&self, new: Reconfigured) -> Result<(), StartError> {
        self.node.tune(new.tuning)?;
        self.bounds.http.set(new.http);
        self.bounds.admin.set(new.admin);
        #[cfg(feature = "zookeeper")]
        self.bounds.zookeeper.reconfigure(new.zookeeper);
        self.node.set_admission(new.admission);
        Ok(())
    }

    /// A client of this node for the program that the node runs in: sessions, locks and the tree of znodes, with the types of
    /// [`lock_client`]. It is there also [without HTTP](Builder::without_http), and whichever runtime it is called from.
    ///
    /// It calls as the node's operator, whom neither roles nor access control lists stop, because such a program can read everything that
    /// the node keeps. A client with fewer rights has a token and calls over the network.
    pub fn client(&self) -> &LockClient {
        self.in_process.client()
    }

    /// Opens a session of the program, with the default TTL of 10 s; short for [`Lockgate::client`]. Where there is no leader yet, it waits
    /// for one, for 15 s at most.
    pub async fn open_session(&self, name: &str) -> Result<LockSession, lock_client::Error> {
        self.client().session().name(name).open().await
    }

    /// Waits until the node can serve: it has found a leader, and has applied what was committed before. `Err` says what it still waits
    /// for after `timeout`, or why it cannot go on.
    pub async fn ready(&self, timeout: Duration) -> Result<(), NotReady> {
        let deadline = Instant::now() + timeout;
        loop {
            let Some(why) = self.node.not_ready() else {
                return Ok(());
            };
            if self.node.is_stopping() || Instant::now() >= deadline {
                return Err(NotReady(why));
            }
            tokio::time::sleep(READY_POLL).await;
        }
    }

    /// Waits until the node cannot go on, because its disk failed or its peers refuse it, and returns the reason. Never returns on a
    /// healthy node. Then stop it, and end the program or start another node.
    pub async fn failed(&self) -> String {
        self.node.failed().await
    }

    /// Takes a node in that was started with [`Builder::join`]: a learner, which gets everything, takes every request,
    /// and has no vote. Like all changes of the membership it can be asked for at any member, and again if the outcome
    /// is unknown: what is so already is a success. More of them are methods of [`Lockgate::node`].
    pub async fn add_member(
        &self,
        id: NodeId,
        peer: impl Into<String>,
        http: impl Into<String>,
    ) -> Result<MembershipChanged, MembershipError> {
        let address = MemberAddress {
            peer: peer.into(),
            http: http.into(),
        };
        self.node.add_member(id, address).await
    }

    /// Gives a learner that has caught up a vote.
    pub async fn promote_member(&self, id: NodeId) -> Result<MembershipChanged, MembershipError> {
        self.node.promote_member(id).await
    }

    /// Takes a voter's vote; it stays as a learner. Refused if the voters that remain could decide nothing now.
    pub async fn demote_member(&self, id: NodeId) -> Result<MembershipChanged, MembershipError> {
        self.node.demote_member(id, false).await
    }

    /// Removes a member, dead or alive, for ever: its id is never given again. Refused if the voters that remain could
    /// decide nothing now.
    pub async fn remove_member(&self, id: NodeId) -> Result<MembershipChanged, MembershipError> {
        self.node.remove_member(id, false).await
    }

    /// Moves leadership to a voter; `None`: to the one that has most of the log.
    pub async fn move_leader(&self, to: Option<NodeId>) -> Result<MembershipChanged, MembershipError> {
        self.node.move_leader(to).await
    }

    /// What a server that stops is waiting for. `None`: it does not stop, or has stopped.
    pub fn stops_at(&self) -> Option<&'static str> {
        self.node.stops_at().or(*self.waits_for())
    }

    /// Closes the sessions of [`Lockgate::client`], hands leadership over, answers those who wait, and ends everything that was started here.
    /// Returns when it has ended; calling it again is harmless.
    ///
    /// The program's own guards are lost at once, so release what has to be released in order before. Later calls of the client fail with
    /// [`lock_client::Error::Stopped`].
    ///
    /// It takes two seconds at most, whatever clients and peers do, or as long as a configured drain timeout, and one more if sessions of the
    /// program are open. A disk that hangs
    /// can hold it up: [`Lockgate::stops_at`] says what it waits for.
    pub async fn stop(&self) {
        let mut front_ends = self.front_ends.lock().await;
        *self.waits_for() = Some("sessions of this program");
        self.in_process.begin_stop().await;
        // No new callers first; then those who wait are answered, while the cluster can still be told of it.
        for front_end in &*front_ends {
            front_end.stop.cancel();
        }
        *self.waits_for() = Some("calls for locks");
        self.locks.close().await;
        *self.waits_for() = Some("connections of clients");
        // While the data directory is still this process's own.
        if let Some(operator) = &self.operator {
            operator.remove();
        }
        self.node.stop().await;
        self.in_process.end().await;
        for front_end in front_ends.drain(..) {
            if let Err(error) = front_end.task.await {
                tracing::error!(%error, "a front end ended badly");
            }
        }
        *self.waits_for() = None;
    }

    fn waits_for(&self) -> std::sync::MutexGuard<'_, Option<&'static str>> {
        self.stops_at
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
