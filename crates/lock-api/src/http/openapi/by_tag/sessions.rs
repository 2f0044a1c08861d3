//! Operations on sessions.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{CHANGE, FRESH, GROWS, OF_SESSION, SESSION};
use crate::http::event_types::{
    DowngradedEvent, ExpiringEvent, GrantedEvent, LeftQueueEvent, LostEvent, ReleaseRequestedEvent,
    RenewedEvent, ResetEvent, SessionEndedEvent, StateEvent, StreamEndedEvent, WatchEvent,
};
use crate::http::events::MAX_WATCHES;
use crate::http::extract::ReadQuery;
use crate::http::openapi::operation::Operation;
use crate::http::openapi::words;
use crate::http::problem::Code;
use crate::http::session_types::{
    BareBody, EphemeralsAnswer, HeartbeatAnswer, OpenAnswer, OpenBody, SessionAnswer, SessionsAnswer,
};
use crate::http::sessions::{CloseQuery, EphemeralsQuery, HeartbeatQuery, ListQuery};
use crate::http::watch::KindWord;

/// Returns the operations of this group.
pub fn operations() -> Vec<Operation> {
    vec![
        Operation::get("/v1/sessions", "listSessions", "Lists sessions")
            .query_parameters::<ListQuery>(&[])
            .with_words::<words::PageLimit>()
            .answers::<SessionsAnswer>(
                StatusCode::OK,
                "A page of sessions, by id.",
                json!({"sessions": [session()], "next_cursor": null}),
            )
            // The parameter `after` is not a valid id.
            .fails(&[Code::NoSession])
            .fails(&FRESH),
        Operation::post("/v1/sessions", "openSession", "Opens a session")
            .request_body::<OpenBody<'_>>(false, json!({"ttl_ms": 10_000, "name": "worker-7"}))
            .answers::<OpenAnswer>(
                StatusCode::CREATED,
                "The session is open, and lives for `ttl_ms` from the sending of the request.",
                json!({"session": SESSION, "ttl_ms": 10_000}),
            )
            .fails(&[Code::LimitReached, Code::RequestIdReused, Code::TooManyRequests])
            .fails(&CHANGE)
            .fails(&GROWS),
        one(Operation::get(
            "/v1/sessions/{session}",
            "getSession",
            "Shows a session",
        ))
        .query_parameters::<ReadQuery>(&[])
        .answers::<SessionAnswer>(StatusCode::OK, "The session.", session())
        .fails(&[Code::Forbidden])
        .fails(&FRESH),
        one(Operation::delete(
            "/v1/sessions/{session}",
            "closeSession",
            "Closes a session",
        ))
        .query_parameters::<CloseQuery>(&[])
        .with_words::<words::RequestId>()
        .answers_nothing(
            "The session has ended; its locks, waiting contenders and ephemeral znodes are gone.",
        )
        .fails(&[Code::RequestIdReused, Code::Forbidden])
        .fails(&CHANGE),
        one(Operation::post(
            "/v1/sessions/{session}/heartbeat",
            "heartbeat",
            "Keeps a session alive",
        ))
        .query_parameters::<HeartbeatQuery>(&[])
        .request_body::<BareBody>(false, json!({}))
        .answers::<HeartbeatAnswer>(
            StatusCode::OK,
            "The leader has renewed the session, which lives for `ttl_ms` from the sending of the request.",
            json!({"ttl_ms": 10_000}),
        )
        .fails(&[Code::Unavailable, Code::Forbidden]),
        events(),
        one(Operation::get(
            "/v1/sessions/{session}/ephemerals",
            "listEphemerals",
            "Lists the ephemeral znodes of a session",
        ))
        .describe("The contenders of its locks are among them.")
        .query_parameters::<EphemeralsQuery>(&[])
        .answers::<EphemeralsAnswer<'_>>(
            StatusCode::OK,
            "A page of paths, in the order of creation.",
            json!({"ephemerals": ["/services/web/1"], "next_cursor": null}),
        )
        .fails(&[Code::Forbidden])
        .fails(&FRESH),
    ]
}

fn events() -> Operation {
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    one(Operation::get("/v1/sessions/{session}/events", "followSession", "Streams the events of a session"))
        .describe(
            "Server-sent events. The open stream counts as the heartbeat for twice the time to live; then the client has to reconnect. Each event has an `id`, unless it is about the stream itself. A client that reconnects with this id receives all later events once, or `reset`.",
        )
        .asks_also(json!({
            "name": "heartbeat", "in": "query", "required": false,
            "description": "Renew the session while the stream is open.",
            "schema": {"type": "boolean", "default": true},
        }))
        .asks_also(json!({
            "name": "zxid", "in": "query", "required": false,
            "description": "Position that the client has seen, or id of the last event that it received. The stream continues there, and a watch fires at once if its znode was changed since.",
            "schema": reference("EventId"),
        }))
        .asks_also(json!({
            "name": "Last-Event-ID", "in": "header", "required": false,
            "description": "Takes precedence over `zxid`. Browsers send it by themselves.",
            "schema": reference("EventId"),
        }))
        .asks_also(watches("data", "Watch of the data of a znode"))
        .asks_also(watches("children", "Watch of the children of a znode"))
        .asks_also(watches("exists", "Watch of a znode that may not exist yet"))
        .with_words::<words::EventId>()
        .with_words::<words::ZnodePath>()
        .with_words::<KindWord>()
        .with_words::<StateEvent>()
        .with_words::<ResetEvent>()
        .with_words::<GrantedEvent<'_>>()
        .with_words::<DowngradedEvent<'_>>()
        .with_words::<LostEvent<'_>>()
        .with_words::<LeftQueueEvent<'_>>()
        .with_words::<ReleaseRequestedEvent<'_>>()
        .with_words::<WatchEvent<'_>>()
        .with_words::<ExpiringEvent>()
        .with_words::<RenewedEvent>()
        .with_words::<SessionEndedEvent>()
        .with_words::<StreamEndedEvent>()
        .answers_events(
            "The events, as they happen. Their data is JSON.",
            &[
                ("state", "StateEvent"),
                ("reset", "ResetEvent"),
                ("granted", "GrantedEvent"),
                ("downgraded", "DowngradedEvent"),
                ("lost", "LostEvent"),
                ("left_queue", "LeftQueueEvent"),
                ("release_requested", "ReleaseRequestedEvent"),
                ("watch", "WatchEvent"),
                ("expiring", "ExpiringEvent"),
                ("renewed", "RenewedEvent"),
                ("session_ended", "SessionEndedEvent"),
                ("stream_ended", "StreamEndedEvent"),
            ],
        )
        .fails(&[
            Code::BadPath,
            Code::NoZnode,
            Code::Forbidden,
            Code::TooManyRequests,
            Code::Unavailable,
        ])
}

/// Describes the parameter of a kind of watch.
fn watches(kind: &str, what: &str) -> Value {
    json!({
        "name": kind, "in": "query", "required": false,
        "description": format!("{what}, by its path. The parameter can be repeated; a stream has at most {MAX_WATCHES} watches of all kinds."),
        "schema": {"type": "array", "items": {"$ref": "#/components/schemas/ZnodePath"}, "maxItems": MAX_WATCHES},
    })
}

fn one(operation: Operation) -> Operation {
    operation
        .names::<words::SessionId>("session", "Which session.", json!(SESSION))
        .fails(&OF_SESSION)
}

fn session() -> Value {
    json!({
        "session": SESSION,
        "name": "worker-7",
        "ttl_ms": 10_000,
        "age_ms": 4711,
        "opened_at": "2026-01-31T09:30:00.000Z",
        "last_heartbeat_at": "2026-01-31T09:30:03.000Z",
        "address": "10.0.0.7:41516",
        "ephemerals": 1,
        "held": [{"lock": "orders/42", "holder": super::HOLDER}],
        "awaited": [],
    })
}
