//! Encoder of contenders' records. It writes the JSON that serde_json would write, byte for byte, in a quarter of the instructions: each
//! node writes a record for every acquire and every grant. `contender.rs` reads it.

use alloc::string::String;

use serde::Serialize;

use crate::locks::contender::{Attempt, Record};
use crate::model::lock::LockMode;

/// Returns the data of a contender's znode.
#[cfg(test)]
pub(crate) fn data(record: &Record) -> crate::model::data::Data {
    let mut text = String::new();
    write(record, &mut text);
    text.as_str().into()
}

/// Appends a record.
pub(crate) fn write(record: &Record, to: &mut String) {
    // All fields by name, so a new field does not compile without its encoding here.
    let Record {
        request,
        owner,
        reentrant,
        note,
        address,
        since_ms,
        granted_ms,
        attempts,
        released,
        lock_delay_ms,
        token,
        upgrade,
        revoke,
    } = record;
    let (mode, limit) = match request.mode {
        LockMode::Exclusive => ("exclusive", None),
        LockMode::Shared => ("shared", None),
        LockMode::Upgradeable => ("upgradeable", None),
        LockMode::Semaphore { limit } => ("semaphore", Some(limit)),
    };
    to.push_str("{\"mode\":\"");
    to.push_str(mode);
    number(to, "\",\"permits\":", request.permits);
    if let Some(limit) = limit {
        number(to, ",\"limit\":", limit);
    }
    text(to, ",\"owner\":", owner);
    to.push_str(match reentrant {
        true => ",\"reentrant\":true",
        false => ",\"reentrant\":false",
    });
    text(to, ",\"note\":", note);
    text(to, ",\"address\":", address);
    number(to, ",\"since_ms\":", *since_ms);
    if let Some(granted_ms) = granted_ms {
        number(to, ",\"granted_ms\":", *granted_ms);
    }
    calls(to, ",\"attempts\":[", attempts);
    if !released.is_empty() {
        calls(to, ",\"released\":[", released);
    }
    if *lock_delay_ms > 0 {
        number(to, ",\"lock_delay_ms\":", *lock_delay_ms);
    }
    if let Some(token) = token {
        number(to, ",\"token\":", token.0);
    }
    if let Some(upgrade) = upgrade {
        value(to, ",\"upgrade\":", upgrade);
    }
    if let Some(revoke) = revoke {
        value(to, ",\"revoke\":", revoke);
    }
    to.push('}');
}

fn calls(to: &mut String, before: &str, calls: &[Attempt]) {
    to.push_str(before);
    let mut before = "{\"id\":";
    for Attempt { id, request_id } in calls {
        number(to, before, id.0);
        if let Some(request_id) = request_id {
            text(to, ",\"request_id\":", request_id.as_str());
        }
        to.push('}');
        before = ",{\"id\":";
    }
    to.push(']');
}

fn number(to: &mut String, before: &str, number: impl itoa::Integer) {
    to.push_str(before);
    to.push_str(itoa::Buffer::new().format(number));
}

fn text(to: &mut String, before: &str, text: &str) {
    // All bytes are looked at, which is faster than to stop at the first one: it is done sixteen at a time.
    let plain = |byte: u8| (byte >= b' ') & (byte != b'"') & (byte != b'\\');
    if !text.bytes().fold(true, |all, byte| all & plain(byte)) {
        return value(to, before, text);
    }
    to.push_str(before);
    to.push('"');
    to.push_str(text);
    to.push('"');
}

/// Rare values are left to the library.
fn value(to: &mut String, before: &str, value: &(impl Serialize + ?Sized)) {
    to.push_str(before);
    to.push_str(&serde_json::to_string(value).expect("numbers and texts always have a form in JSON"));
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::locks::contender::Upgrade;
    use crate::model::ids::{RequestId, Zxid};
    use crate::model::lock::AttemptId;
    use crate::model::lock::{LockRequest, Revocation};

    /// Of all characters, and often of those that JSON escapes.
    fn any_text() -> impl Strategy<Value = Arc<str>> {
        let some = prop_oneof![
            any::<char>(),
            prop::sample::select(Vec::from(['"', '\\', '\n', '\u{1f}', '\u{7f}', ' ', 'é']))
        ];
        prop_oneof![
            prop::collection::vec(some, 0..40).prop_map(|text| text.into_iter().collect::<String>()),
            "[ -~]{0,40}",
        ]
        .prop_map(Arc::from)
    }

    fn any_attempt() -> impl Strategy<Value = Attempt> {
        let request_id = any_text().prop_map(|text| RequestId::parse(&text).ok());
        (any::<u64>(), request_id).prop_map(|(id, request_id)| Attempt {
            id: AttemptId(id),
            request_id,
        })
    }

    fn any_claim() -> impl Strategy<Value = LockRequest> {
        let mode = prop_oneof![
            Just(LockMode::Exclusive),
            Just(LockMode::Shared),
            Just(LockMode::Upgradeable),
            any::<u32>().prop_map(|limit| LockMode::Semaphore { limit }),
        ];
        (mode, any::<u32>()).prop_map(|(mode, permits)| LockRequest { mode, permits })
    }

    prop_compose! {
        fn any_upgrade()(attempt in any_attempt(), since_ms: u64, done: bool) -> Upgrade {
            Upgrade { attempt, since_ms, done }
        }
    }

    prop_compose! {
        fn any_revocation()(
            by in any_text(),
            reason in any_text(),
            requested_ms: u64,
            answer in prop::option::of(any_text()),
        ) -> Revocation {
            Revocation { by, reason, requested_ms, answer }
        }
    }

    prop_compose! {
        fn any_record()(
            request in any_claim(),
            (owner, note, address) in (any_text(), any_text(), any_text()),
            reentrant: bool,
            since_ms: u64,
            granted_ms: Option<u64>,
            attempts in prop::collection::vec(any_attempt(), 0..4),
            released in prop::collection::vec(any_attempt(), 0..4),
            lock_delay_ms in prop_oneof![Just(0), any::<u32>()],
            token: Option<u64>,
            upgrade in prop::option::of(any_upgrade()),
            revoke in prop::option::of(any_revocation()),
        ) -> Record {
            let token = token.map(Zxid);
            Record {
                request, owner, reentrant, note, address, since_ms, granted_ms, attempts, released, lock_delay_ms,
                token, upgrade, revoke,
            }
        }
    }

    proptest! {
        /// Nodes of another version write the same bytes, and a snapshot of theirs is one of ours.
        #[test]
        fn it_is_what_the_library_writes(record in any_record()) {
            let mut written = String::new();
            write(&record, &mut written);
            prop_assert_eq!(written, record.to_json());
        }
    }
}
