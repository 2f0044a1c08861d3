//! Value types of the API: kinds of text and numbers in requests and answers, with the limits of the code that checks
//! them. A field of a
//! document refers to its type by `#[schema(value_type = …)]`. This module only documents.

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, SchemaType, Type};
use utoipa::{Number, PartialSchema, ToSchema};
use znode_store::{
    MAX_CERTIFICATE_BYTES, MAX_DATA_BYTES, MAX_DESCRIPTION_BYTES, MAX_LOCK_DELAY_MS, MAX_LOCK_NAME_BYTES,
    MAX_NOTE_BYTES, MAX_OWNER_BYTES, MAX_PATH_BYTES, MAX_REQUEST_ID_BYTES, MAX_ROLE_NAME_BYTES, MAX_TTL_MS,
};

use crate::http::config::MAX_HTTP_PATH_BYTES;
use crate::http::event_feed::MAX_LAST;
use crate::http::extract::{DEFAULT_PAGE, MAX_PAGE};
use crate::http::lock_types::{MAX_HOLDER_BYTES, MAX_REASON_BYTES, MAX_SEMAPHORE_LIMIT, MAX_WAIT_MS};
use crate::http::session_types::MAX_SESSION_NAME_BYTES;
use crate::http::watch::{DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS};
use crate::http::znode_types::ANY_VERSION;

/// Largest whole number that every JSON parser represents exactly. Positions of the log stay far below.
const MAX_EXACT: u64 = (1 << 53) - 1;

macro_rules! words {
    ($($name:ident: $schema:expr, $description:expr;)*) => {
        $(
            #[doc = concat!("What the document calls `", stringify!($name), "`. There is no value of it.")]
            #[derive(Debug)]
            pub enum $name {}

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    $schema.description(Some($description)).build().into()
                }
            }

            impl ToSchema for $name {}
        )*
    };
}

words! {
    SessionId: text(0, None).examples(["5d996fd7c6557613"]),
        "The id of a session, opaque. What no server gave is answered `no_session`.";
    Holder: text(0, Some(MAX_HOLDER_BYTES)).examples(["_c_3f0c96ec-lock-0000000007"]),
        "A contender of a lock, opaque. The answer to an acquire contains it, and a release names it.";
    Owner: text(0, Some(MAX_OWNER_BYTES)).default(Some("".into())),
        format!("The scope of re-entrancy within the session: a thread, a task. At most {MAX_OWNER_BYTES} bytes of UTF-8.");
    Note: text(0, Some(MAX_NOTE_BYTES)).default(Some("".into())),
        format!("Shown in the lock's view. At most {MAX_NOTE_BYTES} bytes of UTF-8.");
    Reason: text(0, Some(MAX_REASON_BYTES)).examples(["disk is being replaced"]),
        format!("Text for people. At most {MAX_REASON_BYTES} bytes of UTF-8.");
    SessionName: text(0, Some(MAX_SESSION_NAME_BYTES)).default(Some("".into())).examples(["worker-7"]),
        format!("Shown in lists of sessions. At most {MAX_SESSION_NAME_BYTES} bytes of UTF-8.");
    RequestId: text(1, Some(MAX_REQUEST_ID_BYTES)),
        format!("The caller's own name for the request, unique within its session: sent again, it has the effect of one, and \
                 is answered the same. At most {MAX_REQUEST_ID_BYTES} bytes of UTF-8.");
    LockName: text(1, Some(MAX_LOCK_NAME_BYTES)).pattern(Some(by_the_rules("{}"))).examples(["orders/42"]),
        format!("The name of a lock: at most {MAX_LOCK_NAME_BYTES} bytes of UTF-8. A slash makes a hierarchy. It follows \
                 ZooKeeper's rules for paths: no empty part, no `.` or `..`, no control characters.");
    ZnodePath: text(1, Some(MAX_PATH_BYTES)).pattern(Some(by_the_rules("/({}/?)?"))).examples(["/orders/42"]),
        format!("The path of a znode, by ZooKeeper's rules: at most {MAX_PATH_BYTES} bytes of UTF-8, and {MAX_HTTP_PATH_BYTES} \
                 of one that is created here, or what the node's configuration allows.");
    PathToRead: text(0, None).examples(["/orders/42"]),
        "The path of a znode. An invalid one is a problem of this read alone (`bad_path`).";
    PathInAddress: text(0, Some(MAX_PATH_BYTES - 1)).pattern(Some(by_the_rules("({}/?)?"))).examples(["orders/42"]),
        "The path of a znode without its first slash.";
    Data: text(0, Some(MAX_DATA_BYTES)),
        format!("The data as text: at most {MAX_DATA_BYTES} bytes of UTF-8, or what the cluster's configuration allows.");
    DataBase64: text(0, Some(MAX_DATA_BYTES.div_ceil(3) * 4)).content_encoding("base64"),
        "The data in base64, with padding (RFC 4648, section 4).";
    Perms: text(0, None).pattern(Some("^[cdrwa]*$")).examples(["cdrwa"]),
        "Rights: to **c**reate and **d**elete children, **r**ead, **w**rite, and to replace the list (**a**dminister).";
    Time: text(0, None).format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .examples(["2026-01-31T09:30:00.000Z"]),
        "A time for people: RFC 3339, UTC.";
    Address: text(0, None).examples(["10.0.0.7:41516"]),
        "The address of the caller's connection.";
    FencingToken: number(0, MAX_EXACT).examples([17]),
        "The position of the log at which the hold was granted: of two conflicting grants of one lock the later one has the \
         larger token.";
    Zxid: number(0, MAX_EXACT), "A position of the log.";
    Position: number(0, u64::MAX).examples([17]), "A position of the log, of a fencing token, or any other number.";
    CountToRead: number(0, u64::MAX),
        "How many children the page has at most. What is too many is this read's own problem (`bad_request`).";
    WaitMs: or_null(number(0, MAX_WAIT_MS)).default(Some(0.into())),
        "Maximum wait: absent or 0 tries once and leaves nothing behind, a number is a limit, `null` waits until the lock is granted.";
    Limit: number(1, u64::from(MAX_SEMAPHORE_LIMIT)).examples([10]),
        "How many permits a semaphore has.";
    Permits: number(1, u64::from(MAX_SEMAPHORE_LIMIT)),
        "How many permits of a semaphore: 1 unless something else is said.";
    LockDelayMs: number(0, u64::from(MAX_LOCK_DELAY_MS)).default(Some(0.into())),
        "Time without grants after the session of a holder has expired.";
    Retry: number(0, u64::from(u16::MAX)),
        "How often the same request was sent before: a copy that comes late takes nothing away then.";
    SessionTtlMs: number(0, u64::MAX).examples([10_000]),
        "How long a session lives without a heartbeat. It is moved into the server's bounds, and the answer tells.";
    ZnodeTtlMs: number(1, MAX_TTL_MS),
        "After how long without a write a childless znode is swept.";
    Version: signed(i32::MIN.into(), i32::MAX.into()).default(Some(ANY_VERSION.into())),
        "The version that is expected; -1: any.";
    ChangeCount: signed(i32::MIN.into(), i32::MAX.into()), "How often it was changed. It wraps around, as in ZooKeeper.";
    PageCount: number(1, MAX_PAGE as u64).default(Some(DEFAULT_PAGE.into())),
        "How many items the page has at most.";
    WatchTimeoutMs: number(0, MAX_TIMEOUT_MS).default(Some(DEFAULT_TIMEOUT_MS.into())),
        "How long to wait for an event.";
    NodeId: number(1, u64::MAX), "The id of a node.";
    HostPort: text(1, None).examples(["10.0.0.7:7500"]), "`HOST:PORT`.";
    Standing: word(&["holds", "waits"]), "Whether it has the lock.";
    EndOfHold: word(&["released", "upgraded", "session_closed", "session_expired", "broken", "deleted", "unknown"]),
        "What ended it. `upgraded` goes on as another hold with a new token.";
    EndOfWait: word(&["withdrawn", "broken", "deleted", "never_grantable", "forbidden", "session_closed", "session_expired"]),
        "Why it waits no more.";
    EndOfSession: word(&["expired", "closed"]), "How the session ended.";
    EndOfStream: word(&["renew", "too_slow", "state_replaced", "access_lost", "node_stops"]),
        "Why the stream ends: come back (`renew`), the client did not read, the node caught up by a snapshot, what the client was let in \
         with counts no more, or the node stops.";
    EventId: text(1, None).examples(["4711.1"]), "The id of an event: a position of the log, the same on every node.";
    FileName: text(1, None).examples(["style.css"]), "The name of a file.";
    LastCount: number(0, MAX_LAST as u64).default(Some(0.into())), "How much of what has happened before.";
    MostContenders: number(1, MAX_PAGE as u64), "How many at most.";
    HappeningWord: word(&[
            "queued", "granted", "downgraded", "lost", "left_queue", "revoke_requested", "revoke_answered", "closed", "opened",
            "session_opened", "session_ended", "access_changed",
        ]),
        "What happened. `queued`: somebody waits for a lock; `closed` and `opened`: nobody is let in for a while, and that is over; the \
         others as in the events of a session.";
    ClusterHappeningWord: word(&["leader_changed", "members_changed", "alarm_began", "alarm_over"]),
        "What happened: another node leads, the members are others, a person should look at something, or that is over.";
    WatchText: text(1, None).pattern(Some("^(data|children|exists)(@[0-9]+)?:/")).examples(["data:/orders/42"]),
        "`KIND:PATH`, or `KIND@ZXID:PATH` for a caller that saw the znode as it was at that position.";
    ZnodeEvent: word(&["created", "deleted", "data_changed", "children_changed"]), "What has happened.";
    HealthStatus: word(&["alive", "ready"]), "What was asked for.";
    TokenId: text(0, None).examples(["3f0c96ec5d1b4be2a0fd5a7c0d2b9a11"]),
        "The public name of a token: 32 hexadecimal digits. It is no secret.";
    TokenText: text(1, None).pattern(Some("^lg_[0-9a-f]{32}_[0-9a-f]{64}$")),
        "A token: shown as `Authorization: Bearer TOKEN`, and kept like a password.";
    Description: text(0, Some(MAX_DESCRIPTION_BYTES)).default(Some("".into())).examples(["deploys of the shop"]),
        format!("A line for people. At most {MAX_DESCRIPTION_BYTES} bytes of UTF-8.");
    RoleName: text(1, Some(MAX_ROLE_NAME_BYTES)).pattern(Some("^[A-Za-z0-9._-]+$")).examples(["billing"]),
        "The name of a role. `admin` has all rights and cannot be changed; `anonymous` is everybody's.";
    RightWord: word(&["read", "lock", "write", "break", "administer"]), "A right.";
    Subject: text(1, Some(MAX_CERTIFICATE_BYTES)).examples(["CN=billing,O=Example"]),
        "What a client's certificate is known by: its subject (RFC 2253), or else its first alternative name.";
    ExpiresInMs: number(1, u64::MAX).examples([2_592_000_000_u64]), "After how long it counts no more.";
    CallerKind: word(&["nobody", "token", "certificate", "operator"]), "What a caller has proven to be.";
}

/// Returns the pattern of ZooKeeper's rules for paths: each part is not empty, is neither `.` nor `..`, and has only
/// allowed characters. `{}` in `form` stands for a list of parts. A pattern cannot express the maximum depth.
fn by_the_rules(form: &str) -> String {
    let part = r"[^/\u0000-\u001f\u007f-\u009f\ue000-\uf8ff\ufff0-\uffff]+";
    let parts = format!("{part}(/{part})*");
    format!(r"^(?!(.*/)?\.{{1,2}}(/|$)){}$", form.replace("{}", &parts))
}

fn text(min: usize, max: Option<usize>) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(SchemaType::new(Type::String))
        .min_length((min > 0).then_some(min))
        .max_length(max)
}

fn word(all: &[&'static str]) -> ObjectBuilder {
    text(0, None).enum_values(Some(all.iter().copied()))
}

fn number(min: u64, max: u64) -> ObjectBuilder {
    bounded(Number::UInt(min as usize), Number::UInt(max as usize))
}

fn signed(min: i64, max: i64) -> ObjectBuilder {
    bounded(Number::Int(min as isize), Number::Int(max as isize))
}

fn bounded(min: Number, max: Number) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(SchemaType::new(Type::Integer))
        .minimum(Some(min))
        .maximum(Some(max))
}

fn or_null(schema: ObjectBuilder) -> ObjectBuilder {
    schema.schema_type(SchemaType::from_iter([Type::Integer, Type::Null]))
}
