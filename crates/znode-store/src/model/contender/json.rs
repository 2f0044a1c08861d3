//! JSON of contenders' records, which clients read as the data of a contender's znode. The encoder writes the same bytes as serde_json would. The
//! decoder is for the restore of snapshots, which contain the data as bytes.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::model::address::CallerAddress;
use crate::model::contender::{Attempt, Record, Upgrade};
use crate::model::data::Data;
use crate::model::ids::Zxid;
use crate::model::lock::{HoldBounds, LockMode, LockRequest, Revocation};

/// Receiver of the text.
trait Sink {
    fn text(&mut self, text: &str);
    fn number(&mut self, number: u64);
}

impl Sink for String {
    fn text(&mut self, text: &str) {
        self.push_str(text);
    }

    fn number(&mut self, number: u64) {
        self.push_str(itoa::Buffer::new().format(number));
    }
}

/// Sink that counts the bytes, because the stat of a znode has the length of the text even if no client reads it.
struct Length(usize);

impl Sink for Length {
    fn text(&mut self, text: &str) {
        self.0 += text.len();
    }

    fn number(&mut self, number: u64) {
        self.0 += 1 + number.checked_ilog10().unwrap_or(0) as usize;
    }
}

/// Returns the record as data.
pub(crate) fn data(record: &Record) -> Data {
    let mut text = String::with_capacity(256);
    write(record, &mut text);
    text.as_str().into()
}

/// Returns the number of bytes of that data.
pub(crate) fn length(record: &Record) -> usize {
    let mut length = Length(0);
    write(record, &mut length);
    length.0
}

/// Reads a record. Returns `None` for data that Lockgate does not write. That includes records without a call, and records with an upgrade in a mode
/// that has none.
pub(crate) fn read(data: &[u8]) -> Option<Record> {
    let json: Json = serde_json::from_slice(data).ok()?;
    if json.attempts.is_empty() {
        return None;
    }
    let (mode, permits) = match (json.mode, json.limit) {
        (JsonMode::Exclusive, None) => (LockMode::Exclusive, 1),
        (JsonMode::Upgradeable, None) => (LockMode::Upgradeable, 1),
        (JsonMode::Shared, None) => (LockMode::Shared, 1),
        (JsonMode::Semaphore, Some(limit)) if (1..=limit).contains(&json.permits) => {
            (LockMode::Semaphore { limit }, json.permits)
        }
        _ => return None,
    };
    match (&json.upgrade, mode) {
        (None, _) => {}
        (Some(Upgrade { done: true, .. }), LockMode::Exclusive) => {}
        (Some(Upgrade { done: false, .. }), LockMode::Upgradeable) => {}
        (Some(_), _) => return None,
    }
    let released = json.released.len();
    let mut calls = json.released;
    calls.extend(json.attempts);
    Some(Record {
        request: LockRequest { mode, permits },
        owner: json.owner,
        reentrant: json.reentrant,
        note: json.note,
        address: json.address,
        since_ms: json.since_ms,
        granted_ms: json.granted_ms,
        calls,
        released,
        lock_delay_ms: json.lock_delay_ms,
        token: json.token,
        upgrade: json.upgrade,
        revoke: json.revoke,
        bounds: HoldBounds {
            min_ms: json.min_hold_ms,
            max_ms: json.max_hold_ms,
        },
    })
}

/// Record as it is decoded. The order of the fields is that of the text.
#[derive(Deserialize)]
#[cfg_attr(test, derive(Serialize))]
struct Json {
    mode: JsonMode,
    permits: u32,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    limit: Option<u32>,
    owner: Arc<str>,
    reentrant: bool,
    note: Arc<str>,
    address: CallerAddress,
    since_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    granted_ms: Option<u64>,
    attempts: Vec<Attempt>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    released: Vec<Attempt>,
    #[serde(skip_serializing_if = "is_zero", default)]
    lock_delay_ms: u32,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    token: Option<Zxid>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    upgrade: Option<Upgrade>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    revoke: Option<Revocation>,
    #[serde(skip_serializing_if = "is_zero", default)]
    min_hold_ms: u32,
    #[serde(skip_serializing_if = "is_zero", default)]
    max_hold_ms: u32,
}

#[cfg(test)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(test, derive(Serialize))]
#[serde(rename_all = "snake_case")]
enum JsonMode {
    Exclusive,
    Shared,
    Semaphore,
    Upgradeable,
}

fn write(record: &Record, to: &mut impl Sink) {
    // All fields by name, so a new field does not compile without its encoding here.
    let Record {
        request,
        owner,
        reentrant,
        note,
        address,
        since_ms,
        granted_ms,
        calls: _,
        released: _,
        lock_delay_ms,
        token,
        upgrade,
        revoke,
        bounds,
    } = record;
    let (mode, limit) = match request.mode {
        LockMode::Exclusive => ("exclusive", None),
        LockMode::Shared => ("shared", None),
        LockMode::Upgradeable => ("upgradeable", None),
        LockMode::Semaphore { limit } => ("semaphore", Some(limit)),
    };
    to.text("{\"mode\":\"");
    to.text(mode);
    number(to, "\",\"permits\":", request.permits);
    if let Some(limit) = limit {
        number(to, ",\"limit\":", limit);
    }
    text(to, ",\"owner\":", owner);
    to.text(match reentrant {
        true => ",\"reentrant\":true",
        false => ",\"reentrant\":false",
    });
    text(to, ",\"note\":", note);
    text(to, ",\"address\":", address.as_str());
    number(to, ",\"since_ms\":", *since_ms);
    if let Some(granted_ms) = granted_ms {
        number(to, ",\"granted_ms\":", *granted_ms);
    }
    calls(to, ",\"attempts\":[", record.attempts());
    if !record.released_calls().is_empty() {
        calls(to, ",\"released\":[", record.released_calls());
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
    if bounds.min_ms > 0 {
        number(to, ",\"min_hold_ms\":", bounds.min_ms);
    }
    if bounds.max_ms > 0 {
        number(to, ",\"max_hold_ms\":", bounds.max_ms);
    }
    to.text("}");
}

fn calls(to: &mut impl Sink, before: &str, calls: &[Attempt]) {
    to.text(before);
    let mut before = "{\"id\":";
    for Attempt { id, request_id } in calls {
        number(to, before, id.0);
        if let Some(request_id) = request_id {
            text(to, ",\"request_id\":", request_id.as_str());
        }
        to.text("}");
        before = ",{\"id\":";
    }
    to.text("]");
}

fn number(to: &mut impl Sink, before: &str, number: impl Into<u64>) {
    to.text(before);
    to.number(number.into());
}

fn text(to: &mut impl Sink, before: &str, text: &str) {
    // The loop visits all bytes, because without an early exit the compiler checks sixteen at a time.
    let plain = |byte: u8| (byte >= b' ') & (byte != b'"') & (byte != b'\\');
    if !text.bytes().fold(true, |all, byte| all & plain(byte)) {
        return value(to, before, text);
    }
    to.text(before);
    to.text("\"");
    to.text(text);
    to.text("\"");
}

/// Writes a rare value by serde_json.
fn value(to: &mut impl Sink, before: &str, value: &(impl Serialize + ?Sized)) {
    to.text(before);
    to.text(&serde_json::to_string(value).expect("numbers and texts always have a form in JSON"));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::ids::RequestId;
    use crate::model::lock::AttemptId;

    impl Record {
        /// Returns the record as the library writes it, which is the specification.
        fn to_json(&self) -> String {
            let (mode, limit) = match self.request.mode {
                LockMode::Exclusive => (JsonMode::Exclusive, None),
                LockMode::Shared => (JsonMode::Shared, None),
                LockMode::Upgradeable => (JsonMode::Upgradeable, None),
                LockMode::Semaphore { limit } => (JsonMode::Semaphore, Some(limit)),
            };
            let json = Json {
                mode,
                permits: self.request.permits,
                limit,
                owner: self.owner.clone(),
                reentrant: self.reentrant,
                note: self.note.clone(),
                address: self.address.clone(),
                since_ms: self.since_ms,
                granted_ms: self.granted_ms,
                attempts: self.attempts().to_vec(),
                released: self.released_calls().to_vec(),
                lock_delay_ms: self.lock_delay_ms,
                token: self.token,
                upgrade: self.upgrade.clone(),
                revoke: self.revoke.clone(),
                min_hold_ms: self.bounds.min_ms,
                max_hold_ms: self.bounds.max_ms,
            };
            serde_json::to_string(&json).expect("numbers and texts always have a form in JSON")
        }
    }

    /// Generates texts of all characters, and often of those that JSON escapes.
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
            (owner, note, address) in (any_text(), any_text(), any_text().prop_map(CallerAddress::from)),
            reentrant: bool,
            since_ms: u64,
            granted_ms: Option<u64>,
            calls in prop::collection::vec(any_attempt(), 0..8),
            released in 0..4_usize,
            lock_delay_ms in prop_oneof![Just(0), any::<u32>()],
            token: Option<u64>,
            upgrade in prop::option::of(any_upgrade()),
            revoke in prop::option::of(any_revocation()),
            (min_ms, max_ms) in prop_oneof![Just((0, 0)), any::<(u32, u32)>()],
        ) -> Record {
            let token = token.map(Zxid);
            let released = released.min(calls.len());
            let bounds = HoldBounds { min_ms, max_ms };
            Record {
                request, owner, reentrant, note, address, since_ms, granted_ms, calls, released, lock_delay_ms,
                token, upgrade, revoke, bounds,
            }
        }
    }

    proptest! {
        /// All versions must write the same bytes, because they exchange snapshots.
        #[test]
        fn encoder_writes_and_counts_what_the_library_writes(record in any_record()) {
            let mut written = String::new();
            write(&record, &mut written);
            prop_assert_eq!(length(&record), written.len());
            prop_assert_eq!(written, record.to_json());
        }
    }
}
