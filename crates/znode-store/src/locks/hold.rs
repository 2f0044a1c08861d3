//! Descriptions of holds, for events and histories.

use alloc::sync::Arc;

use crate::locks::contender::Record;
use crate::locks::queue::Contender;
use crate::model::event::Hold;
use crate::model::path::LockName;

/// Describes a contender that holds its lock, or did until now. The texts are shared with the record and not copied, because every lock
/// that is acquired and released is described twice.
pub(crate) fn describe(
    lock: &LockName,
    contender: &Contender,
    record: Option<&Record>,
    since_ms: Option<u64>,
    session_name: Arc<str>,
) -> Arc<Hold> {
    let (owner, note, address) = match record {
        Some(record) => (record.owner.clone(), record.note.clone(), record.address.clone()),
        None => Default::default(),
    };
    Arc::new(Hold {
        lock: lock.clone(),
        holder: contender.name.clone(),
        session: contender.session,
        session_name,
        mode: contender.request.mode,
        permits: contender.request.permits,
        fencing_token: contender.token,
        owner,
        note,
        address,
        since_ms,
    })
}
