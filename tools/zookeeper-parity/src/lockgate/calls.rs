//! Execution of a request on Lockgate's side: the effect, the reply, and the notifications.

use anyhow::Result;
use zk_front::translate::{self, Shape, code, notification};
use znode_store::{Command, Identities, Identity, SessionId, ZPath, Zxid};
use znode_watch::{WatchLists, WatcherId};

use super::{CallResult, Lockgate, wire_zxid};
use crate::generate::credentials;
use crate::trace::{Effect, StepResult};
use crate::wire::{ErrorCode, Notification, Reply, Request, SetWatches};
use crate::zookeeper::closes_connection;

impl Lockgate {
    /// Executes a request on a session's connection, if it has one.
    pub(super) fn call(&mut self, number: usize, request: &Request) -> Result<StepResult> {
        let skipped = StepResult {
            effect: Effect::Skipped,
            received: Vec::new(),
        };
        let Some(session) = &self.sessions[number] else {
            return Ok(skipped);
        };
        let Some(client) = &session.connection else {
            return Ok(skipped);
        };
        let (id, watcher, caller) = (session.id, client.watcher, client.identities());

        let CallResult { zxid, outcome, fired } = match request {
            Request::Auth { scheme, auth, .. } => {
                let auth = str::from_utf8(auth.as_deref().unwrap_or_default())?;
                self.auth(number, scheme, auth)
            }
            Request::CloseSession => {
                let mut fired = Vec::new();
                let command = Command::CloseSession { session: id };
                let (zxid, outcome) = self.apply(Some(id), caller, command, &mut fired);
                let outcome = outcome.map(|_| Reply::Done).map_err(|refusal| code(&refusal));
                CallResult {
                    zxid: wire_zxid(zxid),
                    outcome,
                    fired,
                }
            }
            Request::Create { .. }
            | Request::Delete { .. }
            | Request::SetData { .. }
            | Request::SetAcl { .. } => self.write(id, caller, request),
            Request::Multi(items) => self.multi(id, caller, items),
            Request::SetWatches2 {
                relative_zxid,
                watches,
            } => self.rewatch(watcher, *relative_zxid, watches)?,
            _ => {
                let outcome = self.read(id, watcher, &caller, request)?;
                CallResult {
                    zxid: wire_zxid(self.store.zxid()),
                    outcome,
                    fired: Vec::new(),
                }
            }
        };

        let received = self.received(number, fired);
        let closed = closes_connection(request, &outcome);
        let session = self.sessions[number]
            .as_mut()
            .expect("the session has made this call");
        session.seen.push(zxid);
        if closed {
            session.ended = *request == Request::CloseSession;
            session.connection = None;
            self.watches.disconnect(watcher);
        }
        Ok(StepResult {
            effect: Effect::Replied {
                zxid,
                outcome,
                closed,
            },
            received,
        })
    }

    /// Groups notifications by session, the acting one first.
    pub(super) fn received(
        &self,
        acting: usize,
        fired: Vec<(WatcherId, Notification)>,
    ) -> Vec<(usize, Vec<Notification>)> {
        let others = (0..self.sessions.len()).filter(|number| *number != acting);
        std::iter::once(acting)
            .chain(others)
            .filter_map(|number| {
                let watcher = self.sessions[number].as_ref()?.connection.as_ref()?.watcher;
                let its_own = fired.iter().filter(|(fired, _)| *fired == watcher);
                let notifications = its_own
                    .map(|(_, notification)| notification.clone())
                    .collect::<Vec<_>>();
                (!notifications.is_empty()).then_some((number, notifications))
            })
            .collect()
    }

    fn auth(&mut self, number: usize, scheme: &str, auth: &str) -> CallResult {
        let client = self.sessions[number]
            .as_mut()
            .and_then(|session| session.connection.as_mut());
        let client = client.expect("the session has made this call");
        let outcome = if scheme == "digest" {
            let (digest, is_super) = credentials(auth);
            if is_super {
                client.proven.push(Identity::Super);
            }
            client.proven.push(Identity::Digest(digest.into()));
            self.watches.set_identities(client.watcher, client.identities());
            Ok(Reply::Done)
        } else {
            Err(ErrorCode::AUTH_FAILED)
        };
        CallResult {
            zxid: 0,
            outcome,
            fired: Vec::new(),
        }
    }

    fn write(&mut self, session: SessionId, caller: Identities, request: &Request) -> CallResult {
        let mut fired = Vec::new();
        let op = match translate::op(request, false) {
            Ok(op) => op,
            // Rejected by the front end: no command, and no zxid.
            Err(code) => {
                return CallResult {
                    zxid: wire_zxid(self.store.zxid()),
                    outcome: Err(code),
                    fired,
                };
            }
        };
        let (zxid, outcome) = self.apply(Some(session), caller, Command::Write(op), &mut fired);
        let outcome = match outcome {
            Ok(reply) => Ok(translate::reply(reply, Shape::of(request))),
            Err(refusal) => Err(code(&refusal)),
        };
        CallResult {
            zxid: wire_zxid(zxid),
            outcome,
            fired,
        }
    }

    /// Executes a multi. An item that the front end rejects is replaced by one that the state machine rejects
    /// with the same code, since an earlier item may fail before it.
    fn multi(&mut self, session: SessionId, caller: Identities, items: &[Request]) -> CallResult {
        let mut fired = Vec::new();
        let ops = items
            .iter()
            .map(|item| translate::op(item, true).unwrap_or_else(translate::refused_with))
            .collect();
        let (zxid, outcome) = self.apply(Some(session), caller, Command::Multi(ops), &mut fired);
        let results = match outcome {
            Ok(znode_store::Reply::Multi(replies)) => items
                .iter()
                .zip(replies)
                .map(|(item, reply)| translate::result(reply, Shape::in_multi(item)))
                .collect(),
            Ok(other) => unreachable!("a multi was answered by {other:?}"),
            Err(refusal) => translate::failed_multi(&refusal, items.len()).expect("an item was rejected"),
        };
        CallResult {
            zxid: wire_zxid(zxid),
            outcome: Ok(Reply::Results(results)),
            fired,
        }
    }

    fn rewatch(
        &mut self,
        watcher: WatcherId,
        relative_zxid: i64,
        watches: &SetWatches,
    ) -> Result<CallResult> {
        let parse = |paths: &[String]| {
            paths
                .iter()
                .map(|path| ZPath::parse(path))
                .collect::<Result<Vec<_>, _>>()
        };
        let lists = WatchLists {
            data: parse(&watches.data)?,
            exists: parse(&watches.exist)?,
            children: parse(&watches.child)?,
            persistent: parse(&watches.persistent)?,
            recursive: parse(&watches.persistent_recursive)?,
        };
        let since = Zxid(relative_zxid.unsigned_abs());
        let mut fired = Vec::new();
        self.watches
            .rearm(watcher, &self.store, since, &lists, |notice| {
                fired.push((watcher, notification(&notice)))
            })?;
        Ok(CallResult {
            zxid: wire_zxid(self.store.zxid()),
            outcome: Ok(Reply::Done),
            fired,
        })
    }
}
