//! Requests that change no znode: what a client may see, and the watches that it leaves.

use std::sync::Arc;

use bytes::Bytes;
use raft_node::{Node, NotArmed, WatchConnection, WatchKind, WatchLists, WatchesLost, WatchingLook};
use zk_wire::{ErrorCode, MultiResult, Outcome, Reply, Request, SetWatches};
use znode_store::{BadPath, Identities, SessionId, Store, ZPath, Zxid};

use crate::ensemble;
use crate::translate::{self, code, stat};

/// Who looks.
pub(crate) struct Looker<'a> {
    /// Its session.
    pub session: SessionId,
    /// What it has proven.
    pub caller: &'a Identities,
    /// Its connection's watches.
    pub watches: &'a WatchConnection,
    /// Where it looks.
    pub node: &'a Node,
}

/// What was seen, and as of when.
pub(crate) struct Seen {
    pub zxid: Zxid,
    pub outcome: Outcome,
}

impl Looker<'_> {
    /// Answers a request that changes no znode, from this node's state. An error: the connection has no watches any more,
    /// and nothing may be answered.
    pub fn look(&self, request: &Request) -> Result<Seen, WatchesLost> {
        let look = self.watches.look();
        let zxid = look.store().zxid();
        let outcome = match self.answer(&look, request) {
            Ok(mut reply) => {
                drop(look);
                ensemble::fill_in(self.node, request, &mut reply);
                Ok(reply)
            }
            Err(Refused::With(code)) => Err(code),
            Err(Refused::Lost(lost)) => return Err(lost),
        };
        Ok(Seen { zxid, outcome })
    }

    fn answer(&self, look: &WatchingLook<'_>, request: &Request) -> Result<Reply, Refused> {
        match request {
            // Leaves a watch also where nothing is.
            Request::Exists { path, watch } => {
                let at = readable(path).map_err(|_| no_such_path(path))?;
                let view = look.store().seen_by(self.caller);
                view.watch(&at).map_err(|refusal| code(&refusal))?;
                if *watch && let Ok(path) = ZPath::parse(path) {
                    look.arm(WatchKind::Data, &path)?;
                }
                Ok(see(look.store(), self.caller, request)?)
            }
            Request::GetData { path, watch } => {
                self.see_and_watch(look, request, path, *watch, WatchKind::Data)
            }
            Request::GetChildren { path, watch } | Request::GetChildren2 { path, watch } => {
                self.see_and_watch(look, request, path, *watch, WatchKind::Children)
            }
            Request::GetEphemerals { prefix } => {
                let paths = look.store().seen_by(self.caller).ephemerals(self.session, prefix);
                let paths = paths.map_err(|refusal| code(&refusal))?;
                Ok(Reply::Paths(paths.into_iter().map(String::from).collect()))
            }
            Request::WhoAmI => Ok(Reply::Identities(translate::identities(self.caller))),
            Request::AddWatch { path, mode } => {
                let kind = translate::watch_kind(*mode).ok_or(ErrorCode::MARSHALLING_ERROR)?;
                let at = readable(path).map_err(|_| ErrorCode::BAD_ARGUMENTS)?;
                let view = look.store().seen_by(self.caller);
                view.watch(&at).map_err(|refusal| code(&refusal))?;
                if let Ok(path) = ZPath::parse(path) {
                    look.arm(kind, &path)?;
                }
                Ok(Reply::Number(ErrorCode::OK.0))
            }
            Request::CheckWatches { path, kind } => {
                let which = translate::watcher_type(*kind).ok_or(ErrorCode::MARSHALLING_ERROR)?;
                let is_armed = ZPath::parse(path).is_ok_and(|path| self.watches.is_armed(&path, which));
                is_armed
                    .then_some(Reply::Done)
                    .ok_or(ErrorCode::NO_WATCHER.into())
            }
            Request::RemoveWatches { path, kind } => {
                let which = translate::watcher_type(*kind).ok_or(ErrorCode::MARSHALLING_ERROR)?;
                let removed = ZPath::parse(path).is_ok_and(|path| self.watches.remove(&path, which).is_ok());
                removed.then_some(Reply::Done).ok_or(ErrorCode::NO_WATCHER.into())
            }
            Request::SetWatches {
                relative_zxid,
                watches,
            }
            | Request::SetWatches2 {
                relative_zxid,
                watches,
            } => {
                look.rearm(Zxid(relative_zxid.max(&0).cast_unsigned()), &lists(watches))?;
                Ok(Reply::Done)
            }
            other => Ok(see(look.store(), self.caller, other)?),
        }
    }

    fn see_and_watch(
        &self,
        look: &WatchingLook<'_>,
        request: &Request,
        path: &str,
        watch: bool,
        kind: WatchKind,
    ) -> Result<Reply, Refused> {
        let reply = see(look.store(), self.caller, request)?;
        if watch && let Ok(path) = ZPath::parse(path) {
            look.arm(kind, &path)?;
        }
        Ok(reply)
    }
}

/// Answers a request that changes nothing and leaves no watch (those of a multiRead are not heeded, as in ZooKeeper). No znode
/// has a path that is none.
///
/// # Panics
///
/// If the request is of another kind.
pub fn see(store: &Store, caller: &Identities, request: &Request) -> Outcome {
    let parse = |path: &str| readable(path).map_err(|_| ErrorCode::NO_NODE);
    let view = store.seen_by(caller);
    let reply = match request {
        Request::Exists { path, .. } => {
            let path = readable(path).map_err(|_| no_such_path(path))?;
            view.exists(&path).map(|of| Reply::Stat(stat(&of)))
        }
        Request::GetData { path, .. } => view
            .get(&parse(path)?)
            .map(|(data, of)| Reply::Data(data.non_null().map(Bytes::copy_from_slice), stat(&of))),
        Request::GetAcl { path } => view
            .acl(&parse(path)?)
            .map(|(acl, of)| Reply::Acl(translate::acl_entries(&acl), stat(&of))),
        Request::GetChildren { path, .. } => view
            .children(&parse(path)?)
            .map(|(found, _)| Reply::Names(names(&found))),
        Request::GetChildren2 { path, .. } => view
            .children(&parse(path)?)
            .map(|(found, of)| Reply::NamesAndStat(names(&found), stat(&of))),
        Request::GetAllChildrenNumber { path } => view
            .descendants(&parse(path)?)
            // The root is below its other name.
            .map(|number| number + u64::from(path.is_empty()))
            .map(|number| Reply::Number(number.try_into().unwrap_or(i32::MAX))),
        Request::MultiRead(items) => {
            let result = |item| see(store, caller, item).map_or_else(MultiResult::Error, multi_result);
            return Ok(Reply::Results(items.iter().map(result).collect()));
        }
        other => unreachable!("operation {} is no look", other.op_code()),
    };
    reply.map_err(|refusal| code(&refusal))
}

fn multi_result(reply: Reply) -> MultiResult {
    match reply {
        Reply::Data(data, stat) => MultiResult::GetData(data, stat),
        Reply::Names(names) => MultiResult::GetChildren(names),
        other => unreachable!("no item of a multiRead is answered by {other:?}"),
    }
}

fn names(names: &[Arc<str>]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

/// The path that a read means. The root has another name in ZooKeeper, no text at all, by which it can be read and nothing
/// else. What watches that name is never told of anything, so nothing is kept of it.
fn readable(path: &str) -> Result<ZPath, BadPath> {
    match path {
        "" => Ok(ZPath::root()),
        path => ZPath::parse(path),
    }
}

/// ZooKeeper looks a path up, and does not ask whether it could be one.
fn no_such_path(path: &str) -> ErrorCode {
    if path.contains('\0') {
        ErrorCode::BAD_ARGUMENTS
    } else {
        ErrorCode::NO_NODE
    }
}

/// What nothing can ever be told of is left out.
fn lists(watches: &SetWatches) -> WatchLists {
    let parse = |paths: &[String]| paths.iter().filter_map(|path| ZPath::parse(path).ok()).collect();
    WatchLists {
        data: parse(&watches.data),
        exists: parse(&watches.exist),
        children: parse(&watches.child),
        persistent: parse(&watches.persistent),
        recursive: parse(&watches.persistent_recursive),
    }
}

/// Why a look is not answered as it was meant.
enum Refused {
    With(ErrorCode),
    Lost(WatchesLost),
}

impl From<ErrorCode> for Refused {
    fn from(code: ErrorCode) -> Self {
        Self::With(code)
    }
}

impl From<WatchesLost> for Refused {
    fn from(lost: WatchesLost) -> Self {
        Self::Lost(lost)
    }
}

impl From<NotArmed> for Refused {
    fn from(not_armed: NotArmed) -> Self {
        match not_armed {
            // As whatever else there is enough of.
            NotArmed::TooMany(_) => Self::With(ErrorCode::QUOTA_EXCEEDED),
            NotArmed::Lost(lost) => Self::Lost(lost),
        }
    }
}
