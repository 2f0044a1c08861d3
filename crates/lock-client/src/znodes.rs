//! Tree of znodes: reads, changes, transactions, watches. The rules are ZooKeeper's, and the cluster applies them.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::encode::{self, millis};
use crate::error::{Code, Error, Refusal};
use crate::guard::LockGuard;
use crate::http::ApiRequest;
use crate::servers::{Servers, read, request_id};
use crate::session_core::Core;
use crate::words::words;

/// Wait of one request of a watch, which is below the idle timeouts of proxies.
const WATCH_POLL: Duration = Duration::from_secs(30);

/// Prefix of the addresses of znodes.
const ZNODES: &str = "/v1/znodes";

/// Prefix of the addresses of watches.
const WATCH: &str = "/v1/watch";

/// Access to the tree: in the name of a session ([`crate::LockSession::znodes`]), or of none ([`crate::LockClient::znodes`]). Cheap to
/// clone.
///
/// # Cancel safety
///
/// Reads and watches are cancel safe. If a change is dropped, it is made or not, as after [`Error::Unknown`].
#[derive(Debug, Clone)]
pub struct Znodes {
    servers: Arc<Servers>,
    session: Option<Arc<Core>>,
}

/// Metadata of a znode.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Stat {
    /// Log position of its creation.
    pub czxid: u64,
    /// Log position of the last change of its data.
    pub mzxid: u64,
    /// Log position of the last change of its children.
    pub pzxid: u64,
    /// Time of creation (RFC 3339).
    pub created_at: String,
    /// Time of the last change of its data.
    pub modified_at: String,
    /// Number of changes of its data.
    pub version: i32,
    /// Number of changes of its children.
    pub cversion: i32,
    /// Number of changes of its access control list.
    pub aversion: i32,
    /// Session of an ephemeral znode.
    pub ephemeral_owner: Option<String>,
    /// `true` for a container, which is deleted after its last child.
    pub container: bool,
    /// TTL of a znode without children, in milliseconds.
    pub ttl_ms: Option<u64>,
    /// Length of its data in bytes.
    pub data_length: u32,
    /// Number of its children.
    pub num_children: u32,
}

/// Znode with its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Znode {
    /// Data.
    pub data: Bytes,
    /// Metadata.
    pub stat: Stat,
}

impl Znode {
    /// Returns the data as text, if it is UTF-8.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.data).ok()
    }
}

/// Child of a znode.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Child {
    /// Name below its parent.
    pub name: String,
    /// Metadata.
    pub stat: Stat,
}

/// Mode of a new znode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreateMode {
    /// Lives until it is deleted.
    Persistent,
    /// Ends with its session.
    Ephemeral,
    /// Lives until it is deleted, and has a number after its name.
    PersistentSequential,
    /// Ends with its session, and has a number after its name.
    EphemeralSequential,
    /// Deleted some time after its last child.
    Container,
    /// Deleted when it has had no children and no write for this time.
    Ttl(Duration),
    /// The same, with a number after its name.
    TtlSequential(Duration),
}

impl CreateMode {
    fn put(self, into: &mut Map<String, Value>) {
        let (word, ttl) = match self {
            Self::Persistent => ("persistent", None),
            Self::Ephemeral => ("ephemeral", None),
            Self::PersistentSequential => ("persistent_sequential", None),
            Self::EphemeralSequential => ("ephemeral_sequential", None),
            Self::Container => ("container", None),
            Self::Ttl(ttl) => ("ttl", Some(ttl)),
            Self::TtlSequential(ttl) => ("ttl_sequential", Some(ttl)),
        };
        into.insert("mode".into(), word.into());
        if let Some(ttl) = ttl {
            into.insert("ttl_ms".into(), millis(ttl).into());
        }
    }
}

/// Subject of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchKind {
    /// Data and deletion of an existing znode.
    Data,
    /// Children and deletion of an existing znode.
    Children,
    /// Creation, deletion and data of a znode that may not exist yet.
    Exists,
    /// The same, and everything below.
    Recursive,
}

impl WatchKind {
    fn word(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Children => "children",
            Self::Exists => "exists",
            Self::Recursive => "recursive",
        }
    }
}

words! {
    /// Change of a znode.
    ZnodeChange {
        /// It was created.
        Created = "created";
        /// It was deleted.
        Deleted = "deleted";
        /// Its data was replaced.
        DataChanged = "data_changed";
        /// A child was created or deleted.
        ChildrenChanged = "children_changed";
    }
}

/// Event of a watch.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct ZnodeEvent {
    /// Change.
    pub event: ZnodeChange,
    /// Path of the changed znode.
    pub path: String,
    /// Log position of the change.
    pub zxid: u64,
}

#[derive(Deserialize)]
struct ZnodeAnswer {
    data: Option<String>,
    data_base64: Option<String>,
    stat: Stat,
    #[serde(default)]
    children: Vec<Child>,
    #[serde(default)]
    next_cursor: Option<String>,
}

impl ZnodeAnswer {
    fn znode(self) -> Result<Znode, Error> {
        let data = match (self.data, self.data_base64) {
            (Some(text), _) => text.into(),
            (None, Some(base64)) => BASE64
                .decode(base64)
                .map_err(|error| Error::Unknown(format!("data that is not base64: {error}")))?
                .into(),
            (None, None) => Bytes::new(),
        };
        Ok(Znode {
            data,
            stat: self.stat,
        })
    }
}

#[derive(Deserialize)]
struct Changed {
    path: String,
    stat: Stat,
}

/// Returns the address of a znode. A text that is no path would be another address.
fn address(prefix: &str, path: &str) -> Result<String, Error> {
    if path.starts_with('/') {
        return Ok(format!("{prefix}{}", encode::path(path)));
    }
    let refusal = Refusal {
        code: Code::BadPath,
        status: 400,
        detail: format!("{path:?} is not the path of a znode: it has to begin with a slash"),
        facts: Map::new(),
    };
    Err(refusal.into())
}

/// Refusal of a transaction that no server would execute: only a guard's own session holds its lock.
fn of_another_session() -> Error {
    let refusal = Refusal {
        code: Code::NotHolder,
        status: 409,
        detail: "the transaction needs a lock that another session holds; a session writes under its own locks only".to_owned(),
        facts: Map::new(),
    };
    refusal.into()
}

/// Adds data to a request: as text if it is UTF-8.
fn put_data(data: &[u8], into: &mut Map<String, Value>) {
    match std::str::from_utf8(data) {
        Ok(text) => into.insert("data".into(), text.into()),
        Err(_) => into.insert("data_base64".into(), BASE64.encode(data).into()),
    };
}

impl Znodes {
    pub(crate) fn new(servers: Arc<Servers>, session: Option<Arc<Core>>) -> Self {
        Self { servers, session }
    }

    /// Returns data and metadata of a znode, with everything that was committed before.
    pub async fn get(&self, path: &str) -> Result<Znode, Error> {
        let path = format!("{}?linearizable=true", address(ZNODES, path)?);
        self.servers
            .ask::<ZnodeAnswer>(&ApiRequest::get(path))
            .await?
            .znode()
    }

    /// Returns the same; `None` if the znode does not exist.
    pub async fn find(&self, path: &str) -> Result<Option<Znode>, Error> {
        match self.get(path).await {
            Ok(znode) => Ok(Some(znode)),
            Err(error) if error.is(Code::NoZnode) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns all children of a znode, by name. The client reads pages, so the list of a large znode is not of one moment.
    pub async fn children(&self, path: &str) -> Result<Vec<Child>, Error> {
        let mut children = Vec::new();
        let mut after = String::new();
        loop {
            let path = format!(
                "{}?linearizable=true&children=true&limit=1000{after}",
                address(ZNODES, path)?
            );
            let mut page: ZnodeAnswer = self.servers.ask(&ApiRequest::get(path)).await?;
            children.append(&mut page.children);
            match page.next_cursor {
                Some(last) => after = format!("&cursor={}", encode::segment(&last)),
                None => return Ok(children),
            }
        }
    }

    /// Creates a znode, and with `parents` its missing parents. Returns its path, with its number if it is sequential.
    pub async fn create(
        &self,
        path: &str,
        data: impl AsRef<[u8]>,
        mode: CreateMode,
        parents: bool,
    ) -> Result<(String, Stat), Error> {
        let mut body = self.body();
        put_data(data.as_ref(), &mut body);
        mode.put(&mut body);
        body.insert("parents".into(), parents.into());
        let call = ApiRequest::with(Method::POST, address(ZNODES, path)?, &Value::Object(body));
        let Changed { path, stat } = self.change(&call).await?;
        Ok((path, stat))
    }

    /// Replaces the data if the znode has this version; `None` means any version.
    pub async fn set(&self, path: &str, data: impl AsRef<[u8]>, version: Option<i32>) -> Result<Stat, Error> {
        let mut body = self.body();
        put_data(data.as_ref(), &mut body);
        let path = format!("{}?version={}", address(ZNODES, path)?, version.unwrap_or(-1));
        let call = ApiRequest::with(Method::PUT, path, &Value::Object(body));
        Ok(self.change::<Changed>(&call).await?.stat)
    }

    /// Deletes a znode if it has this version, and with `recursive` its descendants.
    pub async fn delete(&self, path: &str, version: Option<i32>, recursive: bool) -> Result<(), Error> {
        let session = match &self.session {
            Some(core) => format!("&session={}", core.id),
            None => String::new(),
        };
        let path = format!(
            "{}?version={}&recursive={recursive}&request_id={}{session}",
            address(ZNODES, path)?,
            version.unwrap_or(-1),
            request_id(),
        );
        let call = ApiRequest::delete(path);
        self.sent(&call).await.map(drop)
    }

    /// Executes all changes of the transaction at one log position, or none. The fact `index` of a refusal is the number of the change.
    ///
    /// A transaction with a [held](Transaction::held) lock is sent in the name of the guard's session.
    pub async fn commit(&self, transaction: Transaction) -> Result<Vec<Value>, Error> {
        #[derive(Deserialize)]
        struct Committed {
            results: Vec<Value>,
        }
        let own = match (&self.session, &transaction.session) {
            (Some(own), Some(of_guard)) if own.id != of_guard.id => return Err(of_another_session()),
            (None, Some(of_guard)) => &Self::new(of_guard.servers.clone(), Some(of_guard.clone())),
            _ => self,
        };
        if transaction.of_several_sessions {
            return Err(of_another_session());
        }
        let mut body = own.body();
        body.insert("ops".into(), transaction.ops.into());
        let call = ApiRequest::with(Method::POST, "/v1/txn".to_owned(), &Value::Object(body));
        Ok(own.change::<Committed>(&call).await?.results)
    }

    /// Waits for the next change. Misses changes before the server has received the request.
    pub async fn watch(&self, path: &str, kind: WatchKind) -> Result<ZnodeEvent, Error> {
        self.watch_since(path, kind, None).await
    }

    /// Waits for a change after log position `seen`, which is `mzxid` of the data or `pzxid` of the children in a stat. Misses nothing
    /// after that position. [`WatchKind::Recursive`] has no such position.
    pub async fn watch_after(&self, path: &str, kind: WatchKind, seen: u64) -> Result<ZnodeEvent, Error> {
        self.watch_since(path, kind, Some(seen)).await
    }

    async fn watch_since(&self, path: &str, kind: WatchKind, seen: Option<u64>) -> Result<ZnodeEvent, Error> {
        let seen = seen.map_or(String::new(), |zxid| format!("&zxid={zxid}"));
        let call = ApiRequest::get(format!(
            "{}?kind={}&linearizable=true&timeout_ms={}{seen}",
            address(WATCH, path)?,
            kind.word(),
            millis(WATCH_POLL),
        ));
        let answer = WATCH_POLL + self.servers.patience.answer;
        loop {
            // Status 204: no change yet.
            let body = self
                .servers
                .call_within(&call, answer + self.servers.patience.total, answer)
                .await?;
            if !body.is_empty() {
                return read(&body);
            }
        }
    }

    /// Returns the common fields of all changes.
    fn body(&self) -> Map<String, Value> {
        let mut body = Map::new();
        body.insert("request_id".into(), request_id().into());
        if let Some(core) = &self.session {
            body.insert("session".into(), core.id.clone().into());
        }
        body
    }

    async fn sent(&self, call: &ApiRequest) -> Result<Bytes, Error> {
        let answered = self.servers.call(call).await;
        match &self.session {
            Some(core) => answered.map_err(|error| core.refused(error)),
            None => answered,
        }
    }

    async fn change<T: serde::de::DeserializeOwned>(&self, call: &ApiRequest) -> Result<T, Error> {
        read(&self.sent(call).await?)
    }
}

/// Changes that are executed together, or not at all.
#[derive(Debug, Clone, Default)]
#[must_use = "a transaction changes nothing before it is committed"]
pub struct Transaction {
    ops: Vec<Value>,
    /// Session whose locks have to be held.
    session: Option<Arc<Core>>,
    /// Set if guards of two sessions were named, which no session can fulfil.
    of_several_sessions: bool,
}

impl Transaction {
    /// Empty transaction.
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses the transaction unless the guard's session holds the lock by the guard's grant. So the changes are made while the lock is
    /// held, or not at all, however late they arrive. For one lock [`LockGuard::write`] is shorter. All guards have to be of one session;
    /// otherwise the commit is refused.
    pub fn held(mut self, guard: &LockGuard) -> Self {
        let session = guard.session();
        let known = self.session.get_or_insert_with(|| session.clone());
        self.of_several_sessions |= known.id != session.id;
        self.with(
            "held",
            json!({ "lock": guard.lock(), "fencing_token": guard.fencing_token().0 }),
        )
    }

    /// Returns the same transaction, if a guard's lock is held.
    pub(crate) fn after_held(mut self, guard: &LockGuard) -> Self {
        let changes = std::mem::take(&mut self.ops);
        self = self.held(guard);
        self.ops.extend(changes);
        self
    }

    /// Creates a znode.
    pub fn create(self, path: &str, data: impl AsRef<[u8]>, mode: CreateMode) -> Self {
        let mut op = Map::new();
        op.insert("path".into(), path.into());
        put_data(data.as_ref(), &mut op);
        mode.put(&mut op);
        self.with("create", Value::Object(op))
    }

    /// Replaces the data of a znode if it has this version.
    pub fn set(self, path: &str, data: impl AsRef<[u8]>, version: Option<i32>) -> Self {
        let mut op = Map::new();
        op.insert("path".into(), path.into());
        op.insert("version".into(), version.unwrap_or(-1).into());
        put_data(data.as_ref(), &mut op);
        self.with("set", Value::Object(op))
    }

    /// Deletes a znode if it has this version.
    pub fn delete(self, path: &str, version: Option<i32>) -> Self {
        self.with(
            "delete",
            json!({ "path": path, "version": version.unwrap_or(-1) }),
        )
    }

    /// Refuses the transaction unless the znode exists and has this version.
    pub fn check(self, path: &str, version: Option<i32>) -> Self {
        self.with("check", json!({ "path": path, "version": version.unwrap_or(-1) }))
    }

    fn with(mut self, name: &str, op: Value) -> Self {
        let mut named = Map::new();
        named.insert(name.to_owned(), op);
        self.ops.push(Value::Object(named));
        self
    }
}
