//! Read requests: answers them from this node's state, and sets the watches that they request.

use std::sync::Arc;

use bytes::Bytes;
use lock_node::{Node, NotArmed, WatchConnection, WatchKind, WatchLists, WatchedRead, WatchesLost};
use tokio::time::Instant;
use zk_wire::{ErrorCode, MultiResult, Outcome, Reply, Request, SetWatches};
use znode_store::{BadPath, Identities, MAX_OPERATIONS, SessionId, Store, ZPath, Zxid};

use crate::ensemble;
use crate::translate::{self, code, stat};

/// Bytes of data and names after which the remaining items of a multiRead are refused: the apply loop is blocked while they are read.
const MAX_MULTI_READ_BYTES: usize = 4 * 1024 * 1024;

/// Reader of this node's state on behalf of one connection.
pub(crate) struct LocalReader<'a> {
    /// Session of the client.
    pub session: SessionId,
    /// Identities of the client.
    pub caller: &'a Identities,
    /// Watches of the connection.
    pub watches: &'a WatchConnection,
    /// The node.
    pub node: &'a Node,
}

/// Outcome of a read, and the zxid of the state that was read.
pub(crate) struct ReadResult {
    pub zxid: Zxid,
    pub outcome: Outcome,
}

impl LocalReader<'_> {
    /// Answers a read request from this node's state.
    ///
    /// # Errors
    ///
    /// If the connection's watches are lost; then nothing may be answered.
    pub fn read(&self, request: &Request) -> Result<ReadResult, WatchesLost> {
        let read = self.watches.read();
        let began = may_take_long(request).then(Instant::now);
        let zxid = read.store().zxid();
        let outcome = self.answer(&read, request);
        began.inspect(|began| self.node.note_read(*began));
        let outcome = match outcome {
            Ok(mut reply) => {
                drop(read);
                ensemble::fill_in(self.node, request, &mut reply);
                Ok(reply)
            }
            Err(ReadError::Code(code)) => Err(code),
            Err(ReadError::Lost(lost)) => return Err(lost),
        };
        Ok(ReadResult { zxid, outcome })
    }

    fn answer(&self, read: &WatchedRead<'_>, request: &Request) -> Result<Reply, ReadError> {
        match request {
            // The watch is also set if the znode does not exist.
            Request::Exists { path, watch } => {
                let at = readable(path).map_err(|_| no_such_path(path))?;
                let view = read.store().seen_by(self.caller);
                view.watch(&at).map_err(|refusal| code(&refusal))?;
                if *watch && let Ok(path) = ZPath::parse(path) {
                    read.arm(WatchKind::Data, &path)?;
                }
                Ok(answer(read.store(), self.caller, request)?)
            }
            Request::GetData { path, watch } => {
                self.read_and_watch(read, request, path, *watch, WatchKind::Data)
            }
            Request::GetChildren { path, watch } | Request::GetChildren2 { path, watch } => {
                self.read_and_watch(read, request, path, *watch, WatchKind::Children)
            }
            Request::GetEphemerals { prefix } => {
                let paths = read.store().seen_by(self.caller).ephemerals(self.session, prefix);
                let paths = paths.map_err(|refusal| code(&refusal))?;
                Ok(Reply::Paths(paths.into_iter().map(String::from).collect()))
            }
            Request::WhoAmI => Ok(Reply::Identities(translate::identities(self.caller))),
            Request::AddWatch { path, mode } => {
                let kind = translate::watch_kind(*mode).ok_or(ErrorCode::MARSHALLING_ERROR)?;
                let at = readable(path).map_err(|_| ErrorCode::BAD_ARGUMENTS)?;
                let view = read.store().seen_by(self.caller);
                view.watch(&at).map_err(|refusal| code(&refusal))?;
                if let Ok(path) = ZPath::parse(path) {
                    read.arm(kind, &path)?;
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
                read.rearm(Zxid(relative_zxid.max(&0).cast_unsigned()), &lists(watches))?;
                Ok(Reply::Done)
            }
            other => Ok(answer(read.store(), self.caller, other)?),
        }
    }

    fn read_and_watch(
        &self,
        read: &WatchedRead<'_>,
        request: &Request,
        path: &str,
        watch: bool,
        kind: WatchKind,
    ) -> Result<Reply, ReadError> {
        let reply = answer(read.store(), self.caller, request)?;
        if watch && let Ok(path) = ZPath::parse(path) {
            read.arm(kind, &path)?;
        }
        Ok(reply)
    }
}

/// Returns whether the work of a read grows with the number of znodes, so that its duration is measured.
fn may_take_long(request: &Request) -> bool {
    matches!(
        request,
        Request::GetChildren { .. }
            | Request::GetChildren2 { .. }
            | Request::GetAllChildrenNumber { .. }
            | Request::GetEphemerals { .. }
            | Request::MultiRead(_)
            | Request::SetWatches { .. }
            | Request::SetWatches2 { .. }
    )
}

/// Answers a read request without setting watches. Watches in a multiRead are ignored, as in ZooKeeper. An
/// invalid path yields the same error as a missing znode.
///
/// # Panics
///
/// If the request is not a read.
pub fn answer(store: &Store, caller: &Identities, request: &Request) -> Outcome {
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
            // The root counts as a descendant of its other name, the empty path.
            .map(|number| number + u64::from(path.is_empty()))
            .map(|number| Reply::Number(number.try_into().unwrap_or(i32::MAX))),
        Request::MultiRead(items) => {
            let mut room = MAX_MULTI_READ_BYTES;
            let result = |(at, item)| {
                if at >= MAX_OPERATIONS || room == 0 {
                    return MultiResult::Error(ErrorCode::QUOTA_EXCEEDED);
                }
                let result = answer(store, caller, item).map_or_else(MultiResult::Error, multi_result);
                room = room.saturating_sub(result_bytes(&result));
                result
            };
            return Ok(Reply::Results(items.iter().enumerate().map(result).collect()));
        }
        other => unreachable!("operation {} is not a read", other.op_code()),
    };
    reply.map_err(|refusal| code(&refusal))
}

/// Returns the number of bytes of data and names in the result of an item of a multiRead.
fn result_bytes(result: &MultiResult) -> usize {
    match result {
        MultiResult::GetData(data, _) => data.as_ref().map_or(0, Bytes::len),
        MultiResult::GetChildren(names) => names.iter().map(String::len).sum(),
        _ => 0,
    }
}

fn multi_result(reply: Reply) -> MultiResult {
    match reply {
        Reply::Data(data, stat) => MultiResult::GetData(data, stat),
        Reply::Names(names) => MultiResult::GetChildren(names),
        other => unreachable!("unexpected reply to an item of a multiRead: {other:?}"),
    }
}

fn names(names: &[Arc<str>]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

/// Parses the path of a read. In ZooKeeper the root can also be read, and only read, by the empty path. A
/// watch of the empty path never fires, so it is not stored.
fn readable(path: &str) -> Result<ZPath, BadPath> {
    match path {
        "" => Ok(ZPath::root()),
        path => ZPath::parse(path),
    }
}

/// Returns the error of a lookup of an invalid path, which ZooKeeper looks up like any other.
fn no_such_path(path: &str) -> ErrorCode {
    if path.contains('\0') {
        ErrorCode::BAD_ARGUMENTS
    } else {
        ErrorCode::NO_NODE
    }
}

/// Parses the lists of watches, without those that can never fire.
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

/// Reason why a read is not answered with a reply.
enum ReadError {
    Code(ErrorCode),
    Lost(WatchesLost),
}

impl From<ErrorCode> for ReadError {
    fn from(code: ErrorCode) -> Self {
        Self::Code(code)
    }
}

impl From<WatchesLost> for ReadError {
    fn from(lost: WatchesLost) -> Self {
        Self::Lost(lost)
    }
}

impl From<NotArmed> for ReadError {
    fn from(not_armed: NotArmed) -> Self {
        match not_armed {
            // The same error as for every other limit.
            NotArmed::TooMany(_) => Self::Code(ErrorCode::QUOTA_EXCEEDED),
            NotArmed::Lost(lost) => Self::Lost(lost),
        }
    }
}
