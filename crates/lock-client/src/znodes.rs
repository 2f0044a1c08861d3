//! The tree of znodes: reads, changes, transactions, watches. The rules are ZooKeeper's, and the cluster's to decide.

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
use crate::http::Call;
use crate::servers::{Servers, read, request_id};
use crate::session_core::Core;

/// How long one request of a watch waits before it is asked again: below what proxies cut off.
const WATCH_POLL: Duration = Duration::from_secs(30);

/// What the addresses of znodes begin with.
const ZNODES: &str = "/v1/znodes";

/// What the addresses of watches begin with.
const WATCH: &str = "/v1/watch";

/// A way to the tree: for changes on behalf of a session ([`crate::LockSession::znodes`]), or of none
/// ([`crate::LockClient::znodes`]). Cheap to clone.
#[derive(Debug, Clone)]
pub struct Znodes {
    servers: Arc<Servers>,
    session: Option<Arc<Core>>,
}

/// What a znode is, beside its data.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Stat {
    /// The position of its creation.
    pub czxid: u64,
    /// The position of its data's last change.
    pub mzxid: u64,
    /// The position of its children's last change.
    pub pzxid: u64,
    /// When it was created (RFC 3339).
    pub created_at: String,
    /// When its data was changed last.
    pub modified_at: String,
    /// How often its data was changed.
    pub version: i32,
    /// How often its children were changed.
    pub cversion: i32,
    /// How often its access control list was changed.
    pub aversion: i32,
    /// The session that it ends with.
    pub ephemeral_owner: Option<String>,
    /// Whether it is swept after its last child has gone.
    pub container: bool,
    /// How long it lives without children and changes, in milliseconds.
    pub ttl_ms: Option<u64>,
    /// The bytes of its data.
    pub data_length: u32,
    /// How many children it has.
    pub num_children: u32,
}

/// A znode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Znode {
    /// Its data.
    pub data: Bytes,
    /// The rest.
    pub stat: Stat,
}

impl Znode {
    /// The data as text, if it is text.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.data).ok()
    }
}

/// A child of a znode.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Child {
    /// Its name below its parent.
    pub name: String,
    /// What it is.
    pub stat: Stat,
}

/// The kinds of znodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreateMode {
    /// Lives until it is deleted.
    Persistent,
    /// Ends with its session.
    Ephemeral,
    /// With a number after its name.
    PersistentSequential,
    /// Both.
    EphemeralSequential,
    /// Swept some time after its last child has gone.
    Container,
    /// Swept when it has no children and was not written for so long.
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

/// What is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchKind {
    /// The data of a znode that exists, and its end.
    Data,
    /// The children of a znode that exists, and its end.
    Children,
    /// A znode that may not exist yet: its coming, its end, its data.
    Exists,
    /// A znode, which may not exist yet, and all below it.
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

/// What a watch has seen.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct ZnodeEvent {
    /// `created`, `deleted`, `data_changed` or `children_changed`.
    pub event: String,
    /// Of which znode.
    pub path: String,
    /// At which position.
    pub zxid: u64,
}

#[derive(Deserialize)]
struct Looked {
    data: Option<String>,
    data_base64: Option<String>,
    stat: Stat,
    #[serde(default)]
    children: Vec<Child>,
    #[serde(default)]
    next_after: Option<String>,
}

impl Looked {
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

/// Where something is asked about a znode. What is no path at all would be another address.
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

/// What no server would let pass: a guard's lock is held by the guard's session alone.
fn of_another_session() -> Error {
    let refusal = Refusal {
        code: Code::NotHolder,
        status: 409,
        detail: "the transaction needs a lock that another session holds; a session writes under its own locks only".to_owned(),
        facts: Map::new(),
    };
    refusal.into()
}

/// Data as it is sent: text if it is text.
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

    /// Data and stat of a znode, with all that was committed before.
    pub async fn get(&self, path: &str) -> Result<Znode, Error> {
        let path = format!("{}?linearizable=true", address(ZNODES, path)?);
        self.servers.ask::<Looked>(&Call::get(path)).await?.znode()
    }

    /// Likewise; `None` if there is none.
    pub async fn find(&self, path: &str) -> Result<Option<Znode>, Error> {
        match self.get(path).await {
            Ok(znode) => Ok(Some(znode)),
            Err(error) if error.is(Code::NoNode) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All children of a znode, by name. They come in pages, so of a large znode that is changed meanwhile this is no
    /// picture of one moment.
    pub async fn children(&self, path: &str) -> Result<Vec<Child>, Error> {
        let mut children = Vec::new();
        let mut after = String::new();
        loop {
            let path = format!(
                "{}?linearizable=true&children=true&count=1000{after}",
                address(ZNODES, path)?
            );
            let mut page: Looked = self.servers.ask(&Call::get(path)).await?;
            children.append(&mut page.children);
            match page.next_after {
                Some(last) => after = format!("&after={}", encode::segment(&last)),
                None => return Ok(children),
            }
        }
    }

    /// Creates a znode, and missing parents if `parents` says so. Returns its path, with its number if it is sequential.
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
        let call = Call::with(Method::POST, address(ZNODES, path)?, &Value::Object(body));
        let Changed { path, stat } = self.change(&call).await?;
        Ok((path, stat))
    }

    /// Replaces the data, if the znode has this version; `None`: whatever its version.
    pub async fn set(&self, path: &str, data: impl AsRef<[u8]>, version: Option<i32>) -> Result<Stat, Error> {
        let mut body = self.body();
        put_data(data.as_ref(), &mut body);
        let path = format!("{}?version={}", address(ZNODES, path)?, version.unwrap_or(-1));
        let call = Call::with(Method::PUT, path, &Value::Object(body));
        Ok(self.change::<Changed>(&call).await?.stat)
    }

    /// Deletes a znode, if it has this version, and with `recursive` all below it.
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
        let call = Call {
            method: Method::DELETE,
            path,
            body: Bytes::new(),
        };
        self.sent(&call).await.map(drop)
    }

    /// Carries out all of the transaction, at one position, or nothing. A refusal names by the fact `index` which
    /// operation it was.
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
        let call = Call::with(Method::POST, "/v1/txn".to_owned(), &Value::Object(body));
        Ok(own.change::<Committed>(&call).await?.results)
    }

    /// Waits for the next change. What happened before the server has taken the request in is not told.
    pub async fn watch(&self, path: &str, kind: WatchKind) -> Result<ZnodeEvent, Error> {
        self.watch_since(path, kind, None).await
    }

    /// Waits for a change that is younger than `seen`: the position that a stat shows, `mzxid` of the data or `pzxid` of the
    /// children. If it has happened before the server has taken the request in, it is told at once. Not for
    /// [`WatchKind::Recursive`], of which no stat tells.
    pub async fn watch_after(&self, path: &str, kind: WatchKind, seen: u64) -> Result<ZnodeEvent, Error> {
        self.watch_since(path, kind, Some(seen)).await
    }

    async fn watch_since(&self, path: &str, kind: WatchKind, seen: Option<u64>) -> Result<ZnodeEvent, Error> {
        let seen = seen.map_or(String::new(), |zxid| format!("&seen_zxid={zxid}"));
        let call = Call::get(format!(
            "{}?kind={}&linearizable=true&timeout_ms={}{seen}",
            address(WATCH, path)?,
            kind.word(),
            millis(WATCH_POLL),
        ));
        let answer = WATCH_POLL + self.servers.patience.answer;
        loop {
            // 204: nothing has changed for so long.
            let body = self
                .servers
                .call_within(&call, answer + self.servers.patience.total, answer)
                .await?;
            if !body.is_empty() {
                return read(&body);
            }
        }
    }

    /// What every change says of itself.
    fn body(&self) -> Map<String, Value> {
        let mut body = Map::new();
        body.insert("request_id".into(), request_id().into());
        if let Some(core) = &self.session {
            body.insert("session".into(), core.id.clone().into());
        }
        body
    }

    async fn sent(&self, call: &Call) -> Result<Bytes, Error> {
        let answered = self.servers.call(call).await;
        match &self.session {
            Some(core) => answered.map_err(|error| core.refused(error)),
            None => answered,
        }
    }

    async fn change<T: serde::de::DeserializeOwned>(&self, call: &Call) -> Result<T, Error> {
        read(&self.sent(call).await?)
    }
}

/// Several changes, all or none.
#[derive(Debug, Clone, Default)]
pub struct Transaction {
    ops: Vec<Value>,
    /// Whose locks have to be held.
    session: Option<Arc<Core>>,
    /// No session holds the locks of two.
    of_several_sessions: bool,
}

impl Transaction {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses all of it unless the guard's lock is held, by the guard's session and grant. So what follows is written while
    /// the lock is held or not at all, however late it arrives. For one lock [`LockGuard::write`] is shorter. All guards of a transaction
    /// are of one session; else its commit is refused.
    pub fn held(mut self, guard: &LockGuard) -> Self {
        let session = guard.session();
        let known = self.session.get_or_insert_with(|| session.clone());
        self.of_several_sessions |= known.id != session.id;
        self.with(
            "held",
            json!({ "lock": guard.lock(), "fencing_token": guard.fencing_token().0 }),
        )
    }

    /// The same, if a guard's lock is held.
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

    /// Replaces the data of a znode, if it has this version.
    pub fn set(self, path: &str, data: impl AsRef<[u8]>, version: Option<i32>) -> Self {
        let mut op = Map::new();
        op.insert("path".into(), path.into());
        op.insert("version".into(), version.unwrap_or(-1).into());
        put_data(data.as_ref(), &mut op);
        self.with("set", Value::Object(op))
    }

    /// Deletes a znode, if it has this version.
    pub fn delete(self, path: &str, version: Option<i32>) -> Self {
        self.with(
            "delete",
            json!({ "path": path, "version": version.unwrap_or(-1) }),
        )
    }

    /// Refuses all of it unless the znode exists and has this version.
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
