//! Node with its front ends, inside the program that starts it. Reads no files but the node's own, and leaves the runtime, the log
//! subscriber and signals to the program.

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
use lock_node::metrics::text_format::Registry;
use lock_node::{
    AdmissionConfig, MemberAddress, MembershipChanged, MembershipError, MetricsConfig, Node, NodeConfig,
    NodeId, RaftTiming, RuntimeConfig, SessionBounds, SnapshotConfig, SweepConfig, WatchConfig,
};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use znode_store::Limits;

use crate::in_process::InProcess;
use crate::operator::OperatorFile;
use crate::redis::{self, Redis};
use crate::setup_notice::SetupNotice;
use crate::start_error::StartError;
use crate::transport::{TlsConfig, Transport, refuse_exposed, requires_access};
use crate::zookeeper::{self, ZooKeeper};

/// Poll interval of readiness. Elections take longer.
const READY_POLL: Duration = Duration::from_millis(20);

/// Running node with its front ends. [`Lockgate::stop`] ends it. A node that is dropped runs in the background until its runtime ends.
pub struct Lockgate {
    node: Node,
    locks: Locks,
    http_address: Option<SocketAddr>,
    zookeeper: zookeeper::Addresses,
    redis_address: Option<SocketAddr>,
    admin_address: Option<SocketAddr>,
    front_ends: Mutex<Vec<FrontEnd>>,
    /// Triggers a check of the certificate files; `None` without TLS.
    certificates: Option<Arc<Notify>>,
    /// File with the operator's token.
    operator: Option<OperatorFile>,
    in_process: InProcess,
    bounds: LiveFrontEnds,
    /// Component that [`Lockgate::stop`] waits for.
    stopping_component: std::sync::Mutex<Option<&'static str>>,
}

/// Bounds of the front ends, which can be changed while they serve.
struct LiveFrontEnds {
    http: LiveConfig,
    admin: LiveConfig,
    redis: Redis,
    #[cfg_attr(
        not(feature = "zookeeper"),
        expect(dead_code, reason = "there is nothing to configure")
    )]
    zookeeper: ZooKeeper,
}

/// Settings that can be changed while a server runs: see [`Lockgate::reconfigure`].
#[derive(Debug, Clone)]
pub struct LiveSettings {
    /// Bounds of HTTP callers, and the names and origins that are allowed.
    pub http: HttpConfig,
    /// Bounds of callers of the administration port.
    pub admin: HttpConfig,
    /// Bounds of clients of ZooKeeper.
    #[cfg(feature = "zookeeper")]
    pub zookeeper: zk_front::ZkConfig,
    /// Bounds of clients of Redis.
    pub redis: redis_front::RedisConfig,
    /// Admission control of the node.
    pub admission: AdmissionConfig,
    /// Other settings of the node.
    pub tuning: RuntimeConfig,
}

/// Task that serves clients until it is cancelled.
struct FrontEnd {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Error of [`Lockgate::ready`]: the node cannot serve yet, or has failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the node is not ready: {0}")]
pub struct NotReady(String);

/// Settings of a [`Lockgate`]. All but the id, the members and the directory have defaults.
#[derive(Debug, Clone)]
#[must_use = "a builder starts nothing before `start`"]
pub struct Builder {
    config: NodeConfig,
    http: HttpConfig,
    http_listen: HttpListen,
    zookeeper: zookeeper::Settings,
    redis: redis::Settings,
    admin: HttpConfig,
    admin_listen: Option<String>,
    tls: Option<TlsConfig>,
    insecure: bool,
    access_required: Option<bool>,
}

#[derive(Debug, Clone)]
enum HttpListen {
    /// The node's HTTP address in the member list.
    AsMember,
    At(String),
    Nowhere,
}

impl Builder {
    /// Sets the id of this node, which is one of the members. Default 1.
    pub fn node_id(mut self, id: NodeId) -> Self {
        self.config.raft.node_id = id;
        self
    }

    /// Sets the name of the cluster. The node rejects peers of another cluster. Default `lockgate`.
    pub fn cluster(mut self, name: impl Into<String>) -> Self {
        self.config.raft.cluster = name.into();
        self
    }

    /// Adds a member, this node or another, with its addresses for peers and for HTTP clients (`host:port`).
    pub fn member(mut self, id: NodeId, peer: impl Into<String>, http: impl Into<String>) -> Self {
        self.config.raft.members.insert(
            id,
            MemberAddress {
                peer: peer.into(),
                http: http.into(),
            },
        );
        self
    }

    /// Sets all members.
    pub fn members(mut self, members: BTreeMap<NodeId, MemberAddress>) -> Self {
        self.config.raft.members = members;
        self
    }

    /// Joins an existing cluster: the node waits until a member adds it ([`Lockgate::add_member`] there). The member list then needs only
    /// this node.
    pub fn join(mut self) -> Self {
        self.config.raft.join = true;
        self
    }

    /// Sets the directory of log, vote and snapshots. Default `data` in the working directory.
    pub fn data_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.config.raft.data_dir = dir.into();
        self
    }

    /// Sets the address to listen at for peers, if it differs from the member list. Peers call the port of the list, so port 0 has no use.
    pub fn peer_listen(mut self, address: SocketAddr) -> Self {
        self.config.raft.peer_listen = Some(address);
        self
    }

    /// Sets the address to listen at for HTTP, if it differs from the member list. With port 0 the system chooses a port, which
    /// [`Lockgate::http_address`] returns.
    pub fn http_listen(mut self, address: impl Into<String>) -> Self {
        self.http_listen = HttpListen::At(address.into());
        self
    }

    /// Serves no HTTP. This program, and clients of other members, still take locks.
    pub fn without_http(mut self) -> Self {
        self.http_listen = HttpListen::Nowhere;
        self
    }

    /// Sets the bounds of HTTP callers.
    pub fn http_config(mut self, config: HttpConfig) -> Self {
        self.http = config;
        self
    }

    /// Serves clients of ZooKeeper too: Curator, kazoo and others. With port 0 the system chooses a port, which
    /// [`Lockgate::zookeeper_address`] returns.
    #[cfg(feature = "zookeeper")]
    pub fn zookeeper_listen(mut self, address: impl Into<String>) -> Self {
        self.zookeeper.listen = Some(address.into());
        self
    }

    /// Serves clients of ZooKeeper at a second address without TLS, for a migration to TLS. Everybody on the
    /// network path can read these connections. If other machines can reach the address, the node rejects
    /// tokens and the superuser's password there, unless the server is [`Builder::insecure`]. Without
    /// [`Builder::tls`] this is one more address under the same rules as the first one.
    #[cfg(feature = "zookeeper")]
    pub fn zookeeper_plain_listen(mut self, address: impl Into<String>) -> Self {
        self.zookeeper.plain_listen = Some(address.into());
        self
    }

    /// Sets the bounds of clients of ZooKeeper.
    #[cfg(feature = "zookeeper")]
    pub fn zookeeper_config(mut self, zookeeper: zk_front::ZkConfig) -> Self {
        self.zookeeper.config = zookeeper;
        self
    }

    /// Serves clients of Redis too, for locks. With port 0 the system chooses a port, which [`Lockgate::redis_address`] returns.
    pub fn redis_listen(mut self, address: impl Into<String>) -> Self {
        self.redis.listen = Some(address.into());
        self
    }

    /// Sets the bounds of clients of Redis, and where their locks are.
    pub fn redis_config(mut self, redis: redis_front::RedisConfig) -> Self {
        self.redis.config = redis;
        self
    }

    /// Serves the same HTTP at another address, for operators. Its connections have limits of their own, which clients cannot exhaust, and
    /// no load shedding. With port 0 the system chooses a port, which [`Lockgate::admin_address`] returns. It has the protection of the
    /// other ports; 127.0.0.1 is recommended.
    pub fn admin_listen(mut self, address: impl Into<String>) -> Self {
        self.admin_listen = Some(address.into());
        self
    }

    /// Sets the bounds of callers of the administration port.
    pub fn admin_config(mut self, config: HttpConfig) -> Self {
        self.admin = config;
        self
    }

    /// Sets the admission control of this node.
    pub fn admission(mut self, admission: AdmissionConfig) -> Self {
        self.config.admission = admission;
        self
    }

    /// Uses TLS for all connections, of peers and of clients. Without this, and without [`Builder::insecure`], a node does not start if
    /// other machines can reach it.
    pub fn tls(mut self, tls: TlsConfig) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Starts without TLS at any address, and serves every caller there even if the cluster is not secured.
    /// Everybody with network access to the node can do everything.
    pub fn insecure(mut self, insecure: bool) -> Self {
        self.insecure = insecure;
        self
    }

    /// Sets whether only the operator is served before the cluster is secured. By default that is so if other machines can reach the node,
    /// unless it is [`Builder::insecure`].
    pub fn access_required(mut self, required: impl Into<Option<bool>>) -> Self {
        self.access_required = required.into();
        self
    }

    /// Sets the timing of Raft, which is the same on all nodes.
    pub fn timing(mut self, timing: RaftTiming) -> Self {
        self.config.raft.timing = timing;
        self
    }

    /// Sets when snapshots are made.
    pub fn snapshots(mut self, snapshots: SnapshotConfig) -> Self {
        self.config.raft.snapshots = snapshots;
        self
    }

    /// Sets the bounds of session TTLs.
    pub fn sessions(mut self, bounds: SessionBounds) -> Self {
        self.config.sessions = bounds;
        self
    }

    /// Sets when unused containers and expired TTL znodes are deleted.
    pub fn sweeps(mut self, sweeps: SweepConfig) -> Self {
        self.config.sweeps = sweeps;
        self
    }

    /// Sets the limits of the tree. Those of the leader apply to the whole cluster.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.config.limits = limits;
        self
    }

    /// Sets the limits of the notification queues.
    pub fn watches(mut self, watches: WatchConfig) -> Self {
        self.config.watches = watches;
        self
    }

    /// Sets which locks have metrics of their own, and which requests count as slow.
    pub fn metrics(mut self, metrics: MetricsConfig) -> Self {
        self.config.metrics = metrics;
        self
    }

    /// Traces all requests, or a part. Call it after [`Builder::http_config`].
    pub fn traces(mut self, tracing: Tracing) -> Self {
        self.config.tracing = Some(tracing.clone());
        self.http.tracing = Some(tracing);
        self
    }

    /// Sets the commit timeout. A proposal without an outcome after it has an unknown outcome.
    pub fn propose_timeout(mut self, timeout: Duration) -> Self {
        self.config.raft.propose_timeout = timeout;
        self
    }

    /// Starts the node and its front ends on the current runtime. Returns when they listen; there may be no leader yet.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: if dropped, parts of the node may run until the runtime ends.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime, or on one without I/O or timers.
    pub async fn start(mut self) -> Result<Lockgate, StartError> {
        let transport = self.transport().await?;
        self.config.raft.tls = transport.as_ref().map(|transport| transport.peers.clone());
        // Ports first: an unreachable node should not take part in elections.
        let ports = self.bind().await?;
        let address = |port: &Option<(TcpListener, SocketAddr)>| port.as_ref().map(|(_, address)| *address);
        let (http_address, admin_address) = (address(&ports.http), address(&ports.admin));
        let zookeeper_addresses = ports.zookeeper.addresses();
        let redis_address = address(&ports.redis);
        let bound = [
            http_address,
            redis_address,
            zookeeper_addresses.main,
            zookeeper_addresses.plain,
            admin_address,
        ];
        let bound = bound.into_iter().flatten();
        let access_required = requires_access(self.access_required, self.insecure, bound);
        self.http.secured_only = access_required;
        self.redis.config.secured_only = access_required;
        self.redis.config.tracing = self.http.tracing.clone();
        self.zookeeper
            .set_common(access_required, self.http.tracing.clone());
        let node = Node::start(self.config).await?;
        let operator = ports
            .http
            .is_some()
            .then(|| create_operator_token(&node))
            .flatten();
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
        let mut port_metrics = vec![("http", self.http.meter.clone())];
        if ports.admin.is_some() {
            port_metrics.push(("administration", self.admin.meter.clone()));
        }
        zookeeper.register(&mut registry, &mut port_metrics);
        let redis = Redis::new(&node, self.redis.config, redis_address);
        redis.register(&mut registry, &mut port_metrics);
        http::register_connections(&mut registry, port_metrics);
        let (http_bounds, admin_bounds) = (LiveConfig::from(self.http), LiveConfig::from(self.admin));
        let router = http::measured_router(node.clone(), locks.clone(), http_bounds.clone(), registry);
        if let Some(address) = http_address
            && access_required
        {
            let own = node.config().raft.members.get(&node.id());
            let notice = SetupNotice {
                address,
                advertised_address: own.map(|own| own.http.clone()).filter(|_| transport.is_some()),
                operator: operator.as_ref().map(|file| file.path().to_owned()),
            };
            front_ends.push(FrontEnd::spawn(|stop| {
                notice.log_until_secured(node.clone(), stop)
            }));
        }
        let in_process = InProcess::new(router.clone(), http_bounds.clone());
        let administration = http::administration(router.clone());
        let admin = ports
            .admin
            .map(|(listener, _)| (listener, administration, admin_bounds.clone(), None));
        let http = ports
            .http
            .map(|(listener, _)| (listener, router, http_bounds.clone(), Some(node.clone())));
        for (listener, router, config, busy) in [http, admin].into_iter().flatten() {
            let tls = tls.clone();
            front_ends.push(FrontEnd::spawn(|stop| {
                http::serve(listener, router, config, tls, busy, stop.cancelled_owned())
            }));
        }
        let tls = transport.as_ref().map(|transport| transport.zookeeper.clone());
        let serving = zookeeper.serve(ports.zookeeper, tls, self.insecure);
        let tls = transport.as_ref().map(|transport| transport.redis.clone());
        let serving = serving
            .into_iter()
            .chain(redis.serve(ports.redis, tls, self.insecure));
        front_ends.extend(serving.map(|(stop, task)| FrontEnd { stop, task }));
        if let Some(transport) = &transport {
            front_ends.push(FrontEnd::spawn(|stop| transport.follow(stop)));
        }
        Ok(Lockgate {
            in_process,
            certificates: transport.map(|transport| transport.reload_trigger()),
            operator,
            locks,
            node,
            http_address,
            zookeeper: zookeeper_addresses,
            redis_address,
            admin_address,
            front_ends: Mutex::new(front_ends),
            stopping_component: std::sync::Mutex::default(),
            bounds: LiveFrontEnds {
                http: http_bounds,
                admin: admin_bounds,
                redis,
                zookeeper,
            },
        })
    }
}

/// Ports of the front ends, open and not served yet.
struct Ports {
    http: Option<(TcpListener, SocketAddr)>,
    zookeeper: zookeeper::Bound,
    redis: Option<(TcpListener, SocketAddr)>,
    admin: Option<(TcpListener, SocketAddr)>,
}

impl Builder {
    /// Returns the address of HTTP, as it is configured.
    fn http_address(&self) -> Option<&str> {
        let raft = &self.config.raft;
        match &self.http_listen {
            HttpListen::Nowhere => None,
            HttpListen::At(address) => Some(address.as_str()),
            HttpListen::AsMember => raft.members.get(&raft.node_id).map(|own| own.http.as_str()),
        }
    }

    /// Reads the certificates. Without any, the node must be insecure or listen where no other machine reaches it.
    async fn transport(&self) -> Result<Option<Transport>, StartError> {
        let raft = &self.config.raft;
        match &self.tls {
            Some(tls) => Ok(Some(Transport::new(tls, &raft.cluster, raft.node_id)?)),
            None if self.insecure => Ok(None),
            None => {
                let (http, admin) = (self.http_address(), self.admin_listen.as_deref());
                let redis = self.redis.listen.as_deref();
                refuse_exposed(&self.config, http, self.zookeeper.listens(), redis, admin).await?;
                Ok(None)
            }
        }
    }

    async fn bind(&self) -> Result<Ports, StartError> {
        let http = listen(self.http_address(), |address, source| StartError::Http {
            address,
            source,
        });
        let http = http.await?;
        let zookeeper = self.zookeeper.bind().await?;
        let redis = listen(self.redis.listen.as_deref(), |address, source| {
            StartError::Redis { address, source }
        });
        let redis = redis.await?;
        let admin = listen(self.admin_listen.as_deref(), |address, source| {
            StartError::Administration { address, source }
        });
        let admin = admin.await?;
        Ok(Ports {
            http,
            zookeeper,
            redis,
            admin,
        })
    }
}

impl FrontEnd {
    /// Spawns a task that ends with the token.
    fn spawn<F: Future<Output = ()> + Send + 'static>(run: impl FnOnce(CancellationToken) -> F) -> Self {
        let stop = CancellationToken::new();
        Self {
            task: tokio::spawn(run(stop.clone())),
            stop,
        }
    }
}

/// Writes the operator's token. A node that has no space or permission to write it starts all the same,
/// because others depend on it.
fn create_operator_token(node: &Node) -> Option<(OperatorFile, OperatorToken)> {
    let created = OperatorFile::create(&node.config().raft.data_dir);
    created.inspect_err(
        |error| warn!(node = node.id(), %error, "the node cannot write its operator's token and accepts no operator"),
    )
    .ok()
}

async fn listen(
    address: Option<&str>,
    error: impl FnOnce(String, io::Error) -> StartError,
) -> Result<Option<(TcpListener, SocketAddr)>, StartError> {
    let Some(address) = address else {
        return Ok(None);
    };
    let bind = async {
        let listener = TcpListener::bind(address).await?;
        let bound = listener.local_addr()?;
        Ok::<_, io::Error>((listener, bound))
    };
    bind.await
        .map(Some)
        .map_err(|source| error(address.to_owned(), source))
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
    /// Returns a builder.
    pub fn builder() -> Builder {
        Self::configured(NodeConfig::new(1, "lockgate", BTreeMap::new(), "data"))
    }

    /// Returns a builder for a node with this configuration.
    pub fn configured(config: NodeConfig) -> Builder {
        Builder {
            config,
            http: HttpConfig::default(),
            http_listen: HttpListen::AsMember,
            zookeeper: zookeeper::Settings::default(),
            redis: redis::Settings::default(),
            admin: HttpConfig::administration(),
            admin_listen: None,
            tls: None,
            insecure: false,
            access_required: None,
        }
    }

    /// Returns the lock service behind the HTTP front end, for callers with sessions of their own. Programs usually want
    /// [`Lockgate::client`].
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Returns the node: the tree, the sessions and the state of the cluster.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Returns the address of HTTP; `None` without HTTP.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// Returns the address for clients of ZooKeeper; `None` if none are served.
    #[cfg(feature = "zookeeper")]
    pub fn zookeeper_address(&self) -> Option<SocketAddr> {
        self.zookeeper.main
    }

    /// Returns the address for clients of ZooKeeper without TLS, beside that with TLS; `None` without one.
    #[cfg(feature = "zookeeper")]
    pub fn zookeeper_plain_address(&self) -> Option<SocketAddr> {
        self.zookeeper.plain
    }

    /// Returns the address for clients of Redis; `None` if none are served.
    pub fn redis_address(&self) -> Option<SocketAddr> {
        self.redis_address
    }

    /// Returns the address of the administration port; `None` without one.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// Returns whether connections use TLS.
    pub fn is_secured(&self) -> bool {
        self.certificates.is_some()
    }

    /// Returns the path of the operator's token, which is valid at this node only, and secures a cluster. `None` without HTTP, or if it
    /// could not be written.
    pub fn operator_token_file(&self) -> Option<&Path> {
        self.operator.as_ref().map(OperatorFile::path)
    }

    /// Checks certificates, keys and authorities for changes now, in addition to the check every few seconds. Unusable files are logged,
    /// and the earlier ones stay in use.
    pub fn reload_certificates(&self) {
        if let Some(certificates) = &self.certificates {
            certificates.notify_one();
        }
    }

    /// Changes the bounds of callers from now on. Connections stay open, and admitted requests are executed. Settings that apply at the
    /// start only (memory for large bodies, drain timeouts) do not change.
    ///
    /// Fails without any change if the settings contradict those that the node was started with.
    pub fn reconfigure(&self, new: LiveSettings) -> Result<(), StartError> {
        self.node.tune(new.tuning).map_err(StartError::Node)?;
        self.bounds.http.set(new.http);
        self.bounds.admin.set(new.admin);
        #[cfg(feature = "zookeeper")]
        self.bounds.zookeeper.reconfigure(new.zookeeper);
        self.bounds.redis.reconfigure(new.redis);
        self.node.set_admission(new.admission);
        Ok(())
    }

    /// Returns a client of this node for the program around it: sessions, locks and the tree of znodes, with the types of [`lock_client`].
    /// It works also [without HTTP](Builder::without_http), and from any runtime.
    ///
    /// It calls as the node's operator, whom neither roles nor access control lists restrict, because such a program can read all data of
    /// the node. For fewer rights use a client with a token over the network.
    pub fn client(&self) -> &LockClient {
        self.in_process.client()
    }

    /// Opens a session with the default TTL of 10 s, by [`Lockgate::client`]. Waits for a leader, at most 15 s.
    pub async fn open_session(&self, name: &str) -> Result<LockSession, lock_client::Error> {
        self.client().session().name(name).open().await
    }

    /// Waits until the node can serve: it knows a leader, and has applied all entries that were committed
    /// before. After `timeout` the error names the missing condition.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
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

    /// Waits until the node has failed, because its disk failed or its peers reject it. Returns the reason;
    /// for a healthy node it never returns. Then stop the node, and end the program or start another node.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn failed(&self) -> String {
        self.node.failed().await
    }

    /// Adds a node that was started with [`Builder::join`], as a learner: it replicates everything, serves every request, and has no vote.
    /// Any member accepts changes of the membership. A change whose outcome is unknown can be repeated: it succeeds if it was made.
    /// [`Lockgate::node`] has more of them.
    ///
    /// # Cancel safety
    ///
    /// If this or another change of the membership is dropped, it may still be made.
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

    /// Gives a vote to a learner that has caught up.
    pub async fn promote_member(&self, id: NodeId) -> Result<MembershipChanged, MembershipError> {
        self.node.promote_member(id).await
    }

    /// Makes a voter a learner. Fails if the remaining voters have no majority at present.
    pub async fn demote_member(&self, id: NodeId) -> Result<MembershipChanged, MembershipError> {
        self.node.demote_member(id, false).await
    }

    /// Removes a member, also a dead one. Its id is never used again. Fails if the remaining voters have no
    /// majority at present.
    pub async fn remove_member(&self, id: NodeId) -> Result<MembershipChanged, MembershipError> {
        self.node.remove_member(id, false).await
    }

    /// Moves leadership to a voter; with `None` to the one with most of the log.
    pub async fn move_leader(&self, to: Option<NodeId>) -> Result<MembershipChanged, MembershipError> {
        self.node.move_leader(to).await
    }

    /// Returns the component that [`Lockgate::stop`] waits for; `None` if the server does not stop, or has stopped.
    pub fn stops_at(&self) -> Option<&'static str> {
        self.node.stops_at().or(*self.stopping_component())
    }

    /// Closes the sessions of [`Lockgate::client`], moves leadership to another node, answers waiting callers, and ends all tasks of the
    /// node. Returns when they have ended. Further calls have no effect.
    ///
    /// The program's own guards are lost at once, so release locks before if their order matters. Later calls of the client fail with
    /// [`lock_client::Error::Stopped`].
    ///
    /// This takes at most two seconds, or a configured drain timeout, and one more second if sessions of the program are open. A disk that
    /// hangs can delay it: [`Lockgate::stops_at`] returns what it waits for.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the stop has begun. Call it again to complete it.
    pub async fn stop(&self) {
        let mut front_ends = self.front_ends.lock().await;
        *self.stopping_component() = Some("sessions of this program");
        self.in_process.begin_stop().await;
        // No new callers first; then waiting callers get their answers, while commits are still possible.
        for front_end in &*front_ends {
            front_end.stop.cancel();
        }
        *self.stopping_component() = Some("calls for locks");
        self.locks.close().await;
        *self.stopping_component() = Some("connections of clients");
        // While this process still owns the data directory.
        if let Some(operator) = &self.operator {
            operator.remove();
        }
        self.node.stop().await;
        self.in_process.end().await;
        for front_end in front_ends.drain(..) {
            if let Err(error) = front_end.task.await {
                tracing::error!(%error, "a front end panicked");
            }
        }
        *self.stopping_component() = None;
    }

    fn stopping_component(&self) -> std::sync::MutexGuard<'_, Option<&'static str>> {
        self.stopping_component
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
