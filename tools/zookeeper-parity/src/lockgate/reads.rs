//! Requests that change no znode: reads with the caller's permissions, and the watches that they set.

use anyhow::{Result, bail};
use zk_front::reads;
use zk_front::translate::{self, code};
use znode_store::{Identities, SessionId, ZPath};
use znode_watch::{WatchKind, WatcherId};

use super::Lockgate;
use crate::show::Shown;
use crate::wire::{ErrorCode, Outcome, Reply, Request};

impl Lockgate {
    fn arm(&mut self, watcher: WatcherId, kind: WatchKind, path: &ZPath) -> Result<()> {
        Ok(self.watches.arm(watcher, kind, path)?)
    }

    /// Answers a request that changes no znode.
    pub(super) fn read(
        &mut self,
        session: SessionId,
        watcher: WatcherId,
        caller: &Identities,
        request: &Request,
    ) -> Result<Outcome> {
        match request {
            Request::Exists { path: text, watch } => {
                let Ok(path) = ZPath::parse(text) else {
                    let code = if text.contains('\0') {
                        ErrorCode::BAD_ARGUMENTS
                    } else {
                        ErrorCode::NO_NODE
                    };
                    return Ok(Err(code));
                };
                if *watch {
                    self.arm(watcher, WatchKind::Data, &path)?;
                }
                Ok(self.read_outcome(caller, request))
            }
            Request::GetData { path, watch }
            | Request::GetChildren { path, watch }
            | Request::GetChildren2 { path, watch } => {
                let outcome = self.read_outcome(caller, request);
                if *watch && outcome.is_ok() {
                    let kind = match request {
                        Request::GetData { .. } => WatchKind::Data,
                        _ => WatchKind::Children,
                    };
                    self.arm(watcher, kind, &ZPath::parse(path)?)?;
                }
                Ok(outcome)
            }
            Request::GetAcl { .. } | Request::GetAllChildrenNumber { .. } | Request::MultiRead(_) => {
                Ok(self.read_outcome(caller, request))
            }
            Request::GetEphemerals { prefix } => {
                let paths = self.store.seen_by(caller).ephemerals(session, prefix);
                let texts = paths.map(|paths| paths.iter().map(|path| path.as_str().to_owned()).collect());
                Ok(texts.map(Reply::Paths).map_err(|refusal| code(&refusal)))
            }
            Request::Sync { path } => Ok(Ok(Reply::Path(path.clone()))),
            Request::Ping => Ok(Ok(Reply::Done)),
            Request::WhoAmI => Ok(Ok(Reply::Identities(translate::identities(caller)))),
            Request::AddWatch { path, mode } => {
                let Some(kind) = translate::watch_kind(*mode) else {
                    return Ok(Err(ErrorCode::MARSHALLING_ERROR));
                };
                self.arm(watcher, kind, &ZPath::parse(path)?)?;
                Ok(Ok(Reply::Number(0)))
            }
            Request::CheckWatches { path, kind } => {
                let Some(which) = translate::watcher_type(*kind) else {
                    return Ok(Err(ErrorCode::MARSHALLING_ERROR));
                };
                let is_armed = self.watches.is_armed(watcher, &ZPath::parse(path)?, which);
                Ok(if is_armed {
                    Ok(Reply::Done)
                } else {
                    Err(ErrorCode::NO_WATCHER)
                })
            }
            Request::RemoveWatches { path, kind } => {
                let Some(which) = translate::watcher_type(*kind) else {
                    return Ok(Err(ErrorCode::MARSHALLING_ERROR));
                };
                let removed = self.watches.remove(watcher, &ZPath::parse(path)?, which);
                Ok(removed.map(|()| Reply::Done).map_err(|_| ErrorCode::NO_WATCHER))
            }
            other => bail!("programs do not contain {}", Shown(other)),
        }
    }

    /// Answers a request that changes nothing and sets no watch.
    pub(super) fn read_outcome(&self, caller: &Identities, request: &Request) -> Outcome {
        reads::answer(&self.store, caller, request)
    }
}
