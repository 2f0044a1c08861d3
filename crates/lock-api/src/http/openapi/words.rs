//! Value types of the API: kinds of text and numbers in requests and answers, with the limits of the code that checks
//! them. A field of a document refers to its type by `#[schema(value_type = …)]`. This module only documents.

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, SchemaType, Type};
use utoipa::{Number, PartialSchema, ToSchema};
use znode_store::{
    MAX_CERTIFICATE_BYTES, MAX_DATA_BYTES, MAX_DESCRIPTION_BYTES, MAX_HOLD_BOUND_MS, MAX_LOCK_DELAY_MS,
    MAX_LOCK_NAME_BYTES, MAX_NAMESPACE_BYTES, MAX_NOTE_BYTES, MAX_OWNER_BYTES, MAX_PATH_BYTES,
    MAX_REQUEST_ID_BYTES, MAX_ROLE_NAME_BYTES, MAX_TTL_MS,
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
            #[doc = concat!("Schema `", stringify!($name), "` of the document. The type has no values.")]
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
    TerraformState: ObjectBuilder::new(),
        "State of Terraform or OpenTofu. Only they know its fields.";
    SessionId: text(0, None).examples(["5d996fd7c6557613"]),
        "Id of a session, opaque. An unknown or malformed id is answered `no_session`.";
    Holder: text(0, Some(MAX_HOLDER_BYTES)).examples(["_c_3f0c96ec-lock-0000000007"]),
        "Contender of a lock, opaque. The answer to an acquire contains it, and a release requires it.";
    Owner: text(0, Some(MAX_OWNER_BYTES)).default(Some("".into())),
        format!("Scope of re-entrancy within the session, such as a thread or a task. At most {MAX_OWNER_BYTES} bytes of UTF-8.");
    Note: text(0, Some(MAX_NOTE_BYTES)).default(Some("".into())),
        format!("Shown in the lock's view. At most {MAX_NOTE_BYTES} bytes of UTF-8.");
    Reason: text(0, Some(MAX_REASON_BYTES)).examples(["disk is being replaced"]),
        format!("Text for people. At most {MAX_REASON_BYTES} bytes of UTF-8.");
    SessionName: text(0, Some(MAX_SESSION_NAME_BYTES)).default(Some("".into())).examples(["worker-7"]),
        format!("Shown in lists of sessions. At most {MAX_SESSION_NAME_BYTES} bytes of UTF-8.");
    RequestId: text(1, Some(MAX_REQUEST_ID_BYTES)),
        format!("Client-chosen id of the request, unique within its session. A repetition with the same id has no further effect and gets the same answer. At most {MAX_REQUEST_ID_BYTES} bytes of UTF-8.");
    LockName: text(1, Some(MAX_LOCK_NAME_BYTES)).pattern(Some(by_the_rules("{}"))).examples(["orders/42"]),
        format!("Name of a lock: at most {MAX_LOCK_NAME_BYTES} bytes of UTF-8. Slashes make a hierarchy. ZooKeeper's rules for paths apply: no empty part, no `.` or `..`, no control characters.");
    ZnodePath: text(1, Some(MAX_PATH_BYTES)).pattern(Some(by_the_rules("/({}/?)?"))).examples(["/orders/42"]),
        format!("Path of a znode, by ZooKeeper's rules: at most {MAX_PATH_BYTES} bytes of UTF-8. A path that is created over HTTP has at most {MAX_HTTP_PATH_BYTES}, or the maximum in the node's configuration.");
    PathToRead: text(0, None).examples(["/orders/42"]),
        "Path of a znode. An invalid path fails this read alone (`bad_path`).";
    PathInAddress: text(0, Some(MAX_PATH_BYTES - 1)).pattern(Some(by_the_rules("({}/?)?"))).examples(["orders/42"]),
        "Path of a znode without its first slash.";
    Data: text(0, Some(MAX_DATA_BYTES)),
        format!("Data as text: at most {MAX_DATA_BYTES} bytes of UTF-8, or the maximum in the cluster's configuration.");
    DataBase64: text(0, Some(MAX_DATA_BYTES.div_ceil(3) * 4)).content_encoding("base64"),
        "Data in base64, with padding (RFC 4648, section 4).";
    Perms: text(0, None).pattern(Some("^[cdrwa]*$")).examples(["cdrwa"]),
        "Rights: to **c**reate and **d**elete children, **r**ead, **w**rite, and to replace the list (**a**dminister).";
    Time: text(0, None).format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .examples(["2026-01-31T09:30:00.000Z"]),
        "Time for people: RFC 3339, UTC.";
    Address: text(0, None).examples(["10.0.0.7:41516"]),
        "Address of the caller's connection.";
    TraceId: text(32, Some(32)).pattern(Some("^[0-9a-f]{32}$")).examples(["4bf92f3577b34da6a3ce929d0e0e4736"]),
        "Id of an OpenTelemetry trace.";
    FencingToken: number(0, MAX_EXACT).examples([17]),
        "Position of the log at which the lock was granted. Of two conflicting grants of a lock the later one has the larger token.";
    Zxid: number(0, MAX_EXACT), "Position of the log.";
    Position: number(0, u64::MAX).examples([17]), "Position of the log, fencing token, or any other number.";
    LimitToRead: number(0, u64::MAX),
        "Maximum number of children on the page. A larger number fails this read alone (`bad_request`).";
    WaitMs: or_null(number(0, MAX_WAIT_MS)).default(Some(0.into())),
        "Maximum wait: absent or 0 tries once and leaves nothing behind, a number is a limit, `null` waits until the lock is granted.";
    Limit: number(1, u64::from(MAX_SEMAPHORE_LIMIT)).examples([10]),
        "Number of permits of a semaphore.";
    Permits: number(1, u64::from(MAX_SEMAPHORE_LIMIT)),
        "Number of permits to acquire. Default: 1.";
    LockDelayMs: number(0, u64::from(MAX_LOCK_DELAY_MS)).default(Some(0.into())),
        "Time without grants after the session of a holder has expired.";
    Retry: number(0, u64::from(u16::MAX)),
        "Number of earlier transmissions of the same request. A late copy with a smaller number has no effect on a newer one.";
    SessionTtlMs: number(0, u64::MAX).examples([10_000]),
        "Time to live of the session without a heartbeat. The server clamps it to its bounds, and the answer has the result.";
    LeaseTtlMs: number(0, u64::MAX).examples([60_000]),
        "Time to live of the lease without a renewal. The server clamps it to its bounds, and `expires_in_ms` has the result.";
    LeaseText: text(0, None).examples(["ls_5d996fd7c6557613_0f1e2d3c4b5a69788796a5b4c3d2e1f0"]),
        "A lease, opaque and secret: a caller that knows it may renew and release it. An unknown or malformed one is answered `lease_expired`.";
    GrantWaitMs: number(0, MAX_TIMEOUT_MS).default(Some(0.into())),
        "Maximum wait for the grant; 0 does not wait.";
    HoldBoundMs: number(0, u64::from(MAX_HOLD_BOUND_MS)).default(Some(0.into())),
        "Time since the grant; 0: no bound.";
    ZnodeTtlMs: number(1, MAX_TTL_MS),
        "Time without a write after which a childless znode is swept.";
    Version: signed(i32::MIN.into(), i32::MAX.into()).default(Some(ANY_VERSION.into())),
        "Expected version; -1: any.";
    ChangeCount: signed(i32::MIN.into(), i32::MAX.into()), "Number of changes. It wraps around, as in ZooKeeper.";
    PageLimit: number(1, MAX_PAGE as u64).default(Some(DEFAULT_PAGE.into())),
        "Maximum number of items on the page.";
    WatchTimeoutMs: number(0, MAX_TIMEOUT_MS).default(Some(DEFAULT_TIMEOUT_MS.into())),
        "Maximum wait for an event.";
    NodeId: number(1, u64::MAX), "Id of a node.";
    HostPort: text(1, None).examples(["10.0.0.7:7500"]), "`HOST:PORT`.";
    Standing: word(&["holds", "waits"]), "`holds` if the contender holds the lock.";
    EndOfHold: word(&["released", "upgraded", "session_closed", "session_expired", "broken", "deleted", "max_hold", "unknown"]),
        "Cause of the end. After `upgraded` the holder has another hold with a new token.";
    EndOfWait: word(&["withdrawn", "broken", "deleted", "never_grantable", "forbidden", "session_closed", "session_expired"]),
        "Reason for the end of the wait.";
    EndOfSession: word(&["expired", "closed"]), "Cause of the session's end.";
    EndOfStream: word(&["renew", "too_slow", "state_replaced", "access_lost", "node_stops"]),
        "Reason for the end of the stream: the client has to reconnect (`renew`), the client did not read (`too_slow`), the node installed a snapshot (`state_replaced`), the caller lost its permission (`access_lost`), or the node stops (`node_stops`).";
    EventId: text(1, None).examples(["4711.1"]), "Id of an event: a position of the log, alone or with a place in it, the same on every node.";
    FileName: text(1, None).examples(["style.css"]), "Name of a file.";
    LastCount: number(0, MAX_LAST as u64).default(Some(0.into())), "Number of earlier events.";
    MostContenders: number(1, MAX_PAGE as u64), "Maximum number.";
    HappeningWord: word(&[
            "queued", "granted", "downgraded", "lost", "left_queue", "release_requested", "release_replied", "closed", "opened",
            "session_opened", "session_ended", "access_changed",
        ]),
        "Kind of the event. `queued`: a contender waits for a lock; `closed` and `opened`: begin and end of a time without grants; the others as in the events of a session.";
    ClusterHappeningWord: word(&["leader_changed", "members_changed", "alarm_began", "alarm_over"]),
        "Kind of the event: a new leader, changed members, an alarm that requires an operator, or the end of an alarm.";
    ZnodeEvent: word(&["created", "deleted", "data_changed", "children_changed"]), "Kind of the event.";
    HealthStatus: word(&["alive", "ready"]), "Health of the process (`alive`) or of the node (`ready`).";
    TokenId: text(0, None).examples(["3f0c96ec5d1b4be2a0fd5a7c0d2b9a11"]),
        "Public id of a token: 32 hexadecimal digits. It is not secret.";
    TokenText: text(1, None).pattern(Some("^lg_[0-9a-f]{32}_[0-9a-f]{64}$")),
        "Token. Send it as `Authorization: Bearer TOKEN`, and store it like a password.";
    Description: text(0, Some(MAX_DESCRIPTION_BYTES)).default(Some("".into())).examples(["deploys of the shop"]),
        format!("A line for people. At most {MAX_DESCRIPTION_BYTES} bytes of UTF-8.");
    RoleName: text(1, Some(MAX_ROLE_NAME_BYTES)).pattern(Some("^[A-Za-z0-9._-]+$")).examples(["billing"]),
        "Name of a role. `admin` has all rights and cannot be changed; every caller has `anonymous`.";
    NamespaceName: text(1, Some(MAX_NAMESPACE_BYTES)).pattern(Some("^[^/]+$")).examples(["billing"]),
        format!("Name of a namespace: one component of a path, of at most {MAX_NAMESPACE_BYTES} bytes of UTF-8, except for `locks` and `zookeeper`.");
    Quota: number(0, MAX_EXACT).examples([1000]), "Number of items, or their maximum.";
    RequestRate: number(1, u64::from(u32::MAX)).examples([200]), "Requests per second.";
    RightWord: word(&["read", "lock", "write", "break", "administer"]), "A right.";
    Subject: text(1, Some(MAX_CERTIFICATE_BYTES)).examples(["CN=billing,O=Example"]),
        "Identity of a client's certificate: its subject (RFC 2253), or else its first alternative name.";
    ExpiresInMs: number(1, u64::MAX).examples([2_592_000_000_u64]), "Time until the token expires.";
    CallerKind: word(&["nobody", "token", "certificate", "operator"]), "Kind of the caller's proven identity.";
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
