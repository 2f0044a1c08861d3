//! Openings of sessions.

use alloc::sync::Arc;

use crate::apply::context::Context;
use crate::model::access::principal::Principal;
use crate::model::address::CallerAddress;
use crate::model::event::Event;
use crate::model::identity::Identities;
use crate::model::ids::{LeaseKey, SessionId};
use crate::model::refusal::{Limited, Refusal};
use crate::model::reply::{Outcome, Reply};
use crate::model::session::{SessionFate, Turn};
use crate::sessions::request_cache::CachedRequests;
use crate::sessions::{Session, SessionRecord};
use crate::store::Store;

/// Opens a session. Its id must not be one that an older client may still use, and must fit into the owner field of a znode.
fn open_session(store: &mut Store, cx: &mut Context<'_>, record: SessionRecord) -> Outcome {
    let (session, timeout_ms) = (record.session, record.timeout_ms);
    if !session.is_legal() || store.sessions.fate(session) != SessionFate::Unknown {
        return Err(Refusal::SessionIdTaken(session));
    }
    if store.sessions.len() >= store.limits.sessions as usize {
        return Err(Refusal::LimitReached {
            what: Limited::Sessions,
            limit: store.limits.sessions,
        });
    }
    let opened = Session::of(record, store.sessions.empty_cache());
    store.sessions.insert(session, opened);
    cx.events.push(Event::SessionOpened(session));
    Ok(Reply::SessionOpened { session, timeout_ms })
}

/// Opens a session for the caller, which owns it.
pub(crate) fn open_session_of_caller(
    store: &mut Store,
    cx: &mut Context<'_>,
    LeaseKey { session, password }: LeaseKey,
    timeout_ms: u32,
    name: Arc<str>,
    address: CallerAddress,
) -> Outcome {
    let record = SessionRecord {
        session,
        password,
        timeout_ms,
        name,
        address,
        opened_at_ms: cx.now_ms,
        owner: Principal::of(cx.caller),
        turn: Turn {
            since: cx.zxid,
            number: 0,
        },
        heard_at: cx.zxid,
        requests: CachedRequests::default(),
    };
    let opened = open_session(store, cx, record)?;
    record_certificate(store, session, cx.caller);
    Ok(opened)
}

/// Records the certificate that the owner of a session showed beside its token, if grants depend on rights.
pub(crate) fn record_certificate(store: &mut Store, session: SessionId, caller: &Identities) {
    if store.access.waits_end_with_rights() {
        store.sessions.record_certificate(session, caller);
    }
}
