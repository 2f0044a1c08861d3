//! Release requests: an operator asks holders to release a lock. The holders decide; an operator who cannot wait breaks the lock.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::apply::context::Context;
use crate::apply::locks::{contenders, modes};
use crate::locks::queue::QueuePosition;
use crate::model::acl::Perms;
use crate::model::event::Event;
use crate::model::ids::SessionId;
use crate::model::lock::{HolderId, MAX_ADDRESS_BYTES, MAX_REASON_BYTES, Revocation};
use crate::model::path::LockName;
use crate::model::refusal::Refusal;
use crate::model::reply::{Outcome, Reply};
use crate::store::Store;

/// Requests the release of a lock from one holder, or from all current ones. Later holders are not asked.
pub(crate) fn revoke(
    store: &mut Store,
    cx: &mut Context<'_>,
    lock: LockName,
    holder: Option<HolderId>,
    by: Arc<str>,
    reason: Arc<str>,
) -> Outcome {
    let Some(znode) = store.tree.find(lock.znode()) else {
        return Err(Refusal::NoLock(lock));
    };
    let acl = store.tree.acl(znode);
    acl.require(Perms::WRITE, cx.caller, lock.znode())?;
    check_text("reason", &reason, MAX_REASON_BYTES)?;
    check_text("by", &by, MAX_ADDRESS_BYTES)?;
    let asked: Vec<String> = match holder {
        Some(holder) => {
            let found = store.contender(&lock, &holder);
            if !found.is_some_and(|found| found.queue_position == QueuePosition::Holds) {
                return Err(Refusal::NotHolder { lock, holder });
            }
            alloc::vec![holder]
        }
        None => {
            let queue = store.locks.queue(&lock);
            let holders = queue.into_iter().flat_map(|queue| queue.holders());
            holders.map(|holder| holder.name().to_string()).collect()
        }
    };
    for holder in &asked {
        let mut found = store.contender(&lock, holder).expect("it was just found");
        if let Some(mut record) = found.draft() {
            record.revoke = Some(Revocation {
                by: by.clone(),
                reason: reason.clone(),
                requested_ms: cx.now_ms,
                answer: None,
            });
            contenders::rewrite(store, cx, &mut found, record);
            store
                .locks
                .set_release_requested(found.session, &lock, holder, true);
        }
        cx.events.push(Event::RevokeRequested {
            session: found.session,
            lock: lock.clone(),
            holder: holder.clone(),
            by: by.clone(),
            reason: reason.clone(),
        });
    }
    Ok(Reply::RevokeRequested(asked.len() as u32))
}

/// Records the answer of a holder to a release request.
pub(crate) fn answer_revoke(
    store: &mut Store,
    cx: &mut Context<'_>,
    session: SessionId,
    lock: LockName,
    holder: HolderId,
    answer: Arc<str>,
) -> Outcome {
    check_text("answer", &answer, MAX_REASON_BYTES)?;
    let mut found = modes::own_holder(store, session, lock, holder)?;
    let mut record = found.draft().expect("an own holder has a record");
    let Some(revoke) = &mut record.revoke else {
        return Err(Refusal::BadWish(
            "nobody asked this holder to give the lock up".into(),
        ));
    };
    revoke.answer = Some(answer.clone());
    contenders::rewrite(store, cx, &mut found, record);
    let (lock, holder) = (found.lock.clone(), found.name().to_string());
    store.locks.set_release_requested(session, &lock, &holder, false);
    cx.events.push(Event::RevokeAnswered {
        session,
        lock,
        holder,
        answer,
    });
    Ok(Reply::RevokeAnswered)
}

fn check_text(what: &str, text: &str, limit: usize) -> Result<(), Refusal> {
    match text.len() {
        length if length > limit => Err(Refusal::BadWish(
            format!("{length} bytes of {what} are more than the {limit} allowed").into(),
        )),
        _ => Ok(()),
    }
}
