//! Transport of requests to nodes and of responses to clients. Both may be lost, and a request may arrive
//! twice.

use std::time::Duration;

use lock_api::{LeaseStatus, LockError, Locks, PlaceOutcome, WaitFor};
use lock_node::znode_watch::WatchKind;
use lock_node::{HeartbeatError, Node, OpenSessionError, ProposeError};
use znode_store::{Command, Identities, LockCommand, Refusal, Reply, Request, RequestId, SessionId};

use super::{ClientId, ClientRequest, ClientResponse, LeaseWait, OpId};
use crate::agenda::Event;
use crate::network::{Network, Shared};
use crate::time::{MILLI, Micros};

/// Maximum delay of a duplicate request, as from the buffers of an intermediary.
const LATEST_COPY: Micros = 800 * MILLI;

/// Sends a request.
pub fn send(network: &mut Network, machine: usize, client: ClientId, op: OpId, ask: ClientRequest) {
    if network.clients_cut_off(machine) || network.loses_of_client() {
        return;
    }
    // To the server a copy of a lock request is another request, which a client that counts its attempts
    // never makes.
    let may_be_copied = !matches!(
        ask,
        ClientRequest::Acquire { .. }
            | ClientRequest::AcquireLease { .. }
            | ClientRequest::Upgrade { .. }
            | ClientRequest::Watch { .. }
    );
    if may_be_copied && network.copies_of_client() {
        let (delay, ask) = (network.client_delay() + network.within(LATEST_COPY), ask.clone());
        let copy = Event::Request {
            machine,
            client,
            op,
            ask,
        };
        network.agenda.after(delay, copy);
    }
    let delay = network.client_delay();
    let request = Event::Request {
        machine,
        client,
        op,
        ask,
    };
    network.agenda.after(delay, request);
}

/// Sends a response.
pub fn answer(network: &Shared, machine: usize, client: ClientId, op: OpId, answer: ClientResponse) {
    let mut network = network.lock();
    if network.clients_cut_off(machine) || network.loses_of_client() {
        return;
    }
    let delay = network.client_delay();
    network
        .agenda
        .after(delay, Event::ClientResponse { client, op, answer });
}

/// Executes a request at a node.
pub async fn perform(node: &Node, locks: &Locks, ask: ClientRequest, network: &Shared) -> ClientResponse {
    let now = network.lock().agenda.now();
    match ask {
        ClientRequest::Open {
            timeout_ms,
            request_id,
        } => {
            let timeout = Some(Duration::from_millis(timeout_ms));
            match node
                .open_session(timeout, "client", "simulated", Some(request_id))
                .await
            {
                Ok(opened) => ClientResponse::Opened(opened.session, now, micros(opened.timeout)),
                Err(OpenSessionError::Refused(refusal)) => ClientResponse::Refused(refusal),
                Err(OpenSessionError::Propose(error)) => error.into(),
                Err(OpenSessionError::TooMany { .. }) => ClientResponse::Unavailable,
            }
        }
        ClientRequest::Heartbeat(session) => match node.heartbeat(session).await {
            Ok(timeout) => ClientResponse::Refreshed(session, now, micros(timeout)),
            Err(HeartbeatError::SessionEnded | HeartbeatError::NoSession) => ClientResponse::Ended(session),
            Err(HeartbeatError::Unavailable(_)) => ClientResponse::Unavailable,
        },
        ClientRequest::Close { session, request_id } => {
            propose(node, Some(session), request_id, Command::CloseSession { session }).await
        }
        ClientRequest::Acquire {
            session,
            mut wishes,
            wait_ms,
            request_id,
            retry,
        } => {
            let wait = match wait_ms {
                Some(ms) => WaitFor::For(Duration::from_millis(ms)),
                None => WaitFor::Try,
            };
            let id = Some(request_id);
            let granted = match wishes.len() {
                1 => {
                    let wish = wishes.remove(0);
                    let granted = locks.acquire_again(session, wish, wait, id, retry).await;
                    granted.map(|grant| vec![grant])
                }
                _ => locks.acquire_many(session, wishes, wait, id, retry).await,
            };
            granted.map_or_else(Into::into, ClientResponse::Granted)
        }
        ClientRequest::AcquireLease {
            wish,
            bounds,
            ttl_ms,
            wait,
            request_id,
            retry,
        } => {
            let (ttl, id) = (Duration::from_millis(ttl_ms), Some(request_id));
            let leased = match wait {
                LeaseWait::Queue => locks.queue_for_lease(ttl, wish, bounds, id, retry).await,
                LeaseWait::Try => {
                    locks
                        .acquire_lease(ttl, wish, bounds, WaitFor::Try, id, retry)
                        .await
                }
                LeaseWait::For(ms) => {
                    let wait = WaitFor::For(Duration::from_millis(ms));
                    locks.acquire_lease(ttl, wish, bounds, wait, id, retry).await
                }
            };
            let lives_from = (!matches!(wait, LeaseWait::For(_))).then_some(now);
            leased.map_or_else(Into::into, |leased| ClientResponse::Leased(leased, lives_from))
        }
        ClientRequest::AwaitGrant {
            contender: (lock, holder),
            wait_ms,
        } => {
            let time = Duration::from_millis(wait_ms);
            match locks.wait_for_grant(&lock, &holder, time).await {
                Ok(PlaceOutcome::Granted(grant)) => ClientResponse::Granted(vec![grant]),
                Ok(PlaceOutcome::Waits) => ClientResponse::StillWaits,
                Ok(PlaceOutcome::Gone(_)) => ClientResponse::Gone,
                Err(error) => error.into(),
            }
        }
        ClientRequest::RenewLease {
            lease,
            ttl_ms,
            request_id,
        } => {
            let ttl = ttl_ms.map(Duration::from_millis);
            match locks.renew_lease(lease, ttl, Some(request_id)).await {
                Ok(LeaseStatus { expires_in, .. }) => {
                    let lives = expires_in.expect("it was just renewed");
                    ClientResponse::LeaseRenewed(lease.session, now, micros(lives))
                }
                Err(error) => of_lease(error, lease.session),
            }
        }
        ClientRequest::ChangeLease {
            lock,
            lease,
            change,
            request_id,
        } => {
            let command = Command::Lock(LockCommand::ChangeLease { lock, lease, change });
            match propose(node, None, request_id, command).await {
                ClientResponse::Applied(applied) => match applied.outcome {
                    Ok(Reply::LeaseRenewed { session, timeout_ms }) => {
                        ClientResponse::LeaseRenewed(session, now, Micros::from(timeout_ms) * MILLI)
                    }
                    Ok(_) => ClientResponse::Released,
                    Err(refusal) => of_lease(LockError::Refused(refusal), lease),
                },
                other => other,
            }
        }
        ClientRequest::ReleaseLease { lease, request_id } => {
            let released = locks.release_lease(lease, Some(request_id)).await;
            released.map_or_else(
                |error| of_lease(error, lease.session),
                |()| ClientResponse::Released,
            )
        }
        ClientRequest::Release {
            session,
            mut holders,
            request_id,
        } => {
            let id = Some(request_id);
            let released = match holders.len() {
                1 => {
                    let (lock, holder) = holders.remove(0);
                    locks.release(session, lock, holder, id).await.map(drop)
                }
                _ => locks.release_many(session, holders, id).await.map(drop),
            };
            released.map_or_else(Into::into, |()| ClientResponse::Released)
        }
        ClientRequest::Upgrade {
            session,
            held: (lock, holder),
            wait_ms,
            request_id,
            retry,
        } => {
            let wait = WaitFor::For(Duration::from_millis(wait_ms));
            let upgraded = locks.upgrade(session, lock, holder, wait, Some(request_id), retry);
            upgraded
                .await
                .map_or_else(Into::into, |grant| ClientResponse::Granted(vec![grant]))
        }
        ClientRequest::Downgrade {
            session,
            held: (lock, holder),
            to,
            request_id,
        } => {
            let downgraded = locks.downgrade(session, lock, holder, to, Some(request_id));
            downgraded
                .await
                .map_or_else(Into::into, |grant| ClientResponse::Granted(vec![grant]))
        }
        ClientRequest::Write {
            session,
            mut ops,
            request_id,
        } => {
            let command = match ops.len() {
                1 => Command::Write(ops.remove(0)),
                _ => Command::Multi(ops),
            };
            propose(node, session, request_id, command).await
        }
        ClientRequest::Read(path) => match node.read_barrier().await {
            Ok(()) => ClientResponse::ReadAt(node.read(|store| {
                // The content is checked by the digests; this read is about its position.
                let _ = store.get(&path);
                store.zxid()
            })),
            Err(_) => ClientResponse::Unavailable,
        },
        ClientRequest::Watch { path, wait_ms } => {
            let nobody = Identities::none();
            let armed = node.read_and_watch(&path, WatchKind::Data, nobody, |store| store.zxid());
            let Ok((read, watcher)) = armed else {
                return ClientResponse::Unavailable;
            };
            tokio::select! {
                biased;
                notice = watcher.fired() => match notice {
                    Some(notice) => ClientResponse::Notified(read, notice.zxid),
                    // The node is stopping, or cannot notify.
                    None => ClientResponse::Unavailable,
                },
                () = tokio::time::sleep(Duration::from_millis(wait_ms)) => {
                    ClientResponse::NotNotified(read, node.read(|store| store.zxid()))
                }
            }
        }
    }
}

/// Reports the end of a lease as that of its session.
fn of_lease(error: LockError, session: SessionId) -> ClientResponse {
    match error {
        LockError::Refused(Refusal::LeaseExpired) => ClientResponse::Ended(session),
        other => other.into(),
    }
}

async fn propose(
    node: &Node,
    session: Option<SessionId>,
    request_id: RequestId,
    command: Command,
) -> ClientResponse {
    let request = Request {
        session,
        request_id: Some(request_id),
        caller: Identities::none(),
        command,
    };
    match node.propose(request).await {
        Ok(applied) => ClientResponse::Applied(applied),
        Err(error) => error.into(),
    }
}

impl From<ProposeError> for ClientResponse {
    fn from(error: ProposeError) -> Self {
        match error {
            ProposeError::Unavailable(_) => Self::Unavailable,
            ProposeError::OutcomeUnknown(_) => Self::Unknown,
        }
    }
}

impl From<LockError> for ClientResponse {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Refused(Refusal::SessionEnded(session) | Refusal::NoSession(session)) => {
                Self::Ended(session)
            }
            LockError::Refused(refusal) => Self::Refused(refusal),
            LockError::Unavailable(_) => Self::Unavailable,
            LockError::OutcomeUnknown(_) => Self::Unknown,
        }
    }
}

fn micros(duration: Duration) -> Micros {
    duration.as_micros() as Micros
}
