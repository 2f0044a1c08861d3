//! One-shot watches by long poll. A watch exists on this node only, and ends with its request.

use std::time::Duration;

use axum::extract::State;
use axum::http::Uri;
use lock_node::{Unavailable, WatchKind};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use znode_store::{Stat, ZPath, ZnodeEventKind, Zxid};

use super::auth::while_allowed;
use super::extract::{HandlerResult, ensure_freshness, no_content, ok, query};
use super::openapi::words;
use super::problem::Problem;
use super::url::znode_path;
use super::{Peer, Shared};

/// Prefix of the addresses of all watches.
const PREFIX: &str = "/v1/watch";

/// Default wait of a watch in milliseconds: below the timeouts of proxies.
pub const DEFAULT_TIMEOUT_MS: u64 = 30_000;

/// Maximum wait of one request in milliseconds, an hour. A caller that vanished without a trace (its host lost power)
/// keeps its connection for that time.
pub const MAX_TIMEOUT_MS: u64 = 3_600_000;

/// Kind of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = WatchKind)]
pub enum KindWord {
    /// Data of an existing znode.
    Data,
    /// Children of an existing znode.
    Children,
    /// Creation, deletion and data of a znode that may not exist yet.
    Exists,
    /// A znode, which may not exist yet, and all znodes below it.
    Recursive,
}

impl KindWord {
    /// Parses the name of a kind that a stream can watch.
    pub fn of_stream(word: &str) -> Option<Self> {
        [Self::Data, Self::Children, Self::Exists]
            .into_iter()
            .find(|kind| kind.word() == word)
    }

    /// Returns the name in requests and events.
    pub fn word(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Children => "children",
            Self::Exists => "exists",
            Self::Recursive => "recursive",
        }
    }

    /// Returns the node's kind of watch.
    pub fn kind(self) -> WatchKind {
        match self {
            Self::Data | Self::Exists => WatchKind::Data,
            Self::Children => WatchKind::Children,
            Self::Recursive => WatchKind::PersistentRecursive,
        }
    }

    /// Returns whether the watch requires an existing znode that the caller may read, as in ZooKeeper.
    pub fn needs_reading(self) -> bool {
        matches!(self, Self::Data | Self::Children)
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WatchQuery {
    kind: KindWord,
    #[param(value_type = Option<words::WatchTimeoutMs>)]
    timeout_ms: Option<u64>,
    /// Position that the caller has seen: a later change is reported at once.
    #[param(value_type = Option<words::Position>)]
    zxid: Option<u64>,
    /// Wait until this node has applied everything that was committed before.
    #[serde(default)]
    linearizable: bool,
}

#[derive(Serialize, ToSchema)]
pub struct EventAnswer<'a> {
    #[schema(value_type = words::ZnodeEvent)]
    event: &'static str,
    #[schema(value_type = words::ZnodePath)]
    path: &'a str,
    #[schema(value_type = words::Zxid)]
    zxid: u64,
}

/// Returns the event that a caller has missed since it saw the znode at `seen`, by ZooKeeper's rule for watches that
/// are set again.
pub fn missed(kind: KindWord, stat: &Stat, seen: Zxid) -> Option<(ZnodeEventKind, Zxid)> {
    let (what, at) = match kind {
        KindWord::Data => (ZnodeEventKind::DataChanged, stat.mzxid),
        KindWord::Children => (ZnodeEventKind::ChildrenChanged, stat.pzxid),
        KindWord::Exists => (ZnodeEventKind::Created, stat.mzxid),
        // The stat of a znode does not show changes below it; such a request was rejected.
        KindWord::Recursive => return None,
    };
    (at > seen).then_some((what, at))
}

/// Returns the name of the event.
pub fn event_word(kind: ZnodeEventKind) -> &'static str {
    match kind {
        ZnodeEventKind::Created => "created",
        ZnodeEventKind::Deleted => "deleted",
        ZnodeEventKind::DataChanged => "data_changed",
        ZnodeEventKind::ChildrenChanged => "children_changed",
    }
}

/// `GET /v1/watch/{path}`
pub async fn watch(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    let raw = uri.path().strip_prefix(PREFIX).expect("the route begins with it");
    let path = ZPath::parse(&znode_path(raw)?)?;
    let params: WatchQuery = query(&uri)?;
    let timeout_ms = params.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS);
    if timeout_ms > MAX_TIMEOUT_MS {
        return Err(Problem::bad_request(format!(
            "timeout_ms is at most {MAX_TIMEOUT_MS}"
        )));
    }
    if params.kind == KindWord::Recursive && params.zxid.is_some() {
        return Err(Problem::bad_request(
            "zxid is invalid with kind=recursive, because the metadata of a znode does not show changes below it",
        ));
    }
    ensure_freshness(&api, params.linearizable).await?;
    // A node that lags behind must not report a change as new that the caller has already seen through another node.
    if let Some(seen) = params.zxid
        && !api.node.caught_up_with(Zxid(seen)).await?
    {
        return Err(Problem::bad_request(format!(
            "zxid: the position {seen} has not been reached yet"
        )));
    }
    let (kind, caller) = (params.kind.kind(), peer.identities());
    let ((may_watch, read), watcher) = api.node.read_and_watch(&path, kind, caller.clone(), |store| {
        let view = store.seen_by(&caller);
        (view.watch(&path), view.get(&path).map(|(_, stat)| stat))
    })?;
    may_watch?;
    // The read and the registration see the same state, so every later change fires the watch.
    if let (Some(seen), Ok(stat)) = (params.zxid, &read)
        && let Some((event, zxid)) = missed(params.kind, stat, Zxid(seen))
    {
        return Ok(ok(&EventAnswer {
            event: event_word(event),
            path: path.as_str(),
            zxid: zxid.0,
        }));
    }
    if params.kind.needs_reading() {
        read?;
    }
    // The caller's rights are checked again before the answer. A caller that may not wait any more gets an error at once.
    let fired = async { Ok::<_, Problem>(watcher.fired().await) };
    let fired = while_allowed(&api.node, &peer, |view| view.watch(&path), fired);
    match tokio::time::timeout(Duration::from_millis(timeout_ms), fired).await {
        Ok(Err(problem)) => Err(problem),
        Ok(Ok(Some(event))) => Ok(ok(&EventAnswer {
            event: event_word(event.kind),
            path: event.path.as_str(),
            zxid: event.zxid.0,
        })),
        Ok(Ok(None)) => {
            Err(Unavailable::new("this node lost the watch and cannot tell if it has fired").into())
        }
        Err(_) => Ok(no_content()),
    }
}
