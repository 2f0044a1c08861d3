//! Operations for operators of the cluster, and for their programs.

use axum::http::StatusCode;
use lock_node::SnapshotMade;
use serde_json::{Value, json};

use super::{CHANGE, GROWS};
use crate::http::cluster::{ClusterAnswer, Health, VersionAnswer};
use crate::http::event_feed::EventsQuery;
use crate::http::event_feed_types::HappenedEvent;
use crate::http::event_types::StreamEndedEvent;
use crate::http::members::{
    AddBody, AddressBody, ConditionsAnswer, ForceQuery, LeaderBody, MembersAnswer, NoBody,
};
use crate::http::mirror::MirrorQuery;
use crate::http::mirror_types::{MirrorBody, MirrorPageAnswer, MirroredAnswer};
use crate::http::openapi::operation::Operation;
use crate::http::openapi::words;
use crate::http::problem::Code;
use crate::http::snapshot::SnapshotQuery;

/// Returns the operations on the cluster and its members.
pub fn operations() -> Vec<Operation> {
    let mut all = vec![
        Operation::get(
            "/v1/cluster",
            "getCluster",
            "Shows the cluster from this node's view",
        )
        .describe("Values that only the leader knows are `null` on other nodes.")
        .answers::<ClusterAnswer>(StatusCode::OK, "The cluster.", cluster())
        .fails(&[Code::BadRequest, Code::Forbidden]),
        Operation::get(
            "/v1/cluster/members",
            "membersCondition",
            "Shows the condition of all members",
        )
        .describe("Any node answers; a follower asks the leader.")
        .answers::<ConditionsAnswer>(
            StatusCode::OK,
            "All members.",
            json!({"members": [{"node_id": 1, "matched_index": 4711, "lag": 0, "disk": disk()}]}),
        )
        .fails(&[Code::BadRequest, Code::Forbidden, Code::Unavailable]),
        event_feed(),
        Operation::get("/v1/snapshot", "downloadBackup", "Downloads a backup")
            .describe(
                "A file for `lockgate snapshot`. Its end and its checksums prove that it is complete.",
            )
            .query_parameters::<SnapshotQuery>(&[])
            .answers_in(
                "application/octet-stream",
                "The backup.",
                json!({"contentMediaType": "application/octet-stream"}),
            )
            .fails(&[Code::TooManyRequests, Code::Unavailable, Code::Forbidden]),
        Operation::post(
            "/v1/cluster/snapshot",
            "makeSnapshot",
            "Writes a snapshot on this node, and shortens its log",
        )
        .answers::<SnapshotMade>(
            StatusCode::OK,
            "The snapshot is written. If nothing was applied since the newest one, the answer describes that one.",
            json!({"index": 4711, "term": 3, "bytes": 81920, "duration_ms": 12}),
        )
        .fails(&[Code::BadRequest, Code::Unavailable, Code::Forbidden]),
    ];
    all.extend(mirror());
    all.extend(members());
    all
}

fn event_feed() -> Operation {
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    Operation::get(
        "/v1/events",
        "followEvents",
        "Streams events of all locks and sessions",
    )
    .describe(
        "Server-sent events for observers: the latest events, a few times a second, and a mark if events were skipped. Events of a lock require the right to see its history; events of sessions and of access control require the right to administer.",
    )
    .query_parameters::<EventsQuery>(&[("prefix", json!("orders/"))])
    .asks_also(json!({
        "name": "Last-Event-ID", "in": "header", "required": false,
        "description": "Takes precedence over `after`. Browsers send it by themselves.",
        "schema": reference("EventId"),
    }))
    .with_words::<words::EventId>()
    .with_words::<words::LastCount>()
    .with_words::<HappenedEvent<'_>>()
    .with_words::<StreamEndedEvent>()
    .answers_events(
        "Events, as they happen. The data is JSON.",
        &[("happened", "HappenedEvent"), ("stream_ended", "StreamEndedEvent")],
    )
    .fails(&[Code::TooManyRequests, Code::Unavailable])
}

fn disk() -> Value {
    json!({
        "free_bytes": 91_234_304_u64,
        "low_water_bytes": 134_217_728_u64,
        "low": true,
        "log_full": false,
        "sync_us": 900,
    })
}

/// Returns the operations on the mirrored tree of another server.
fn mirror() -> Vec<Operation> {
    let shown = json!({
        "path": "/orders/42",
        "kind": "persistent",
        "ttl_ms": null,
        "data_length": 4,
        "data_is_null": false,
        "data_sha256": "3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7",
        "acl": [{"perms": "cdrwa", "scheme": "world", "id": "anyone"}],
        "version": 1,
        "aversion": 0,
        "created_at": "2026-01-31T09:30:00.000Z",
        "modified_at": "2026-01-31T09:30:07.000Z",
        "creations": 7,
    });
    let put = json!({
        "path": "/orders/42",
        "data": "data",
        "version": 1,
        "created_at": "2026-01-31T09:30:00.000Z",
        "modified_at": "2026-01-31T09:30:07.000Z",
        "creations": 7,
    });
    vec![
        Operation::get(
            "/v1/mirror",
            "compareTree",
            "Lists znodes for a comparison with another tree",
        )
        .describe("Parents come before their children. In a cluster that is not secured an access control list may hide a znode; the request then fails.")
        .query_parameters::<MirrorQuery>(&[])
        .with_words::<words::PageLimit>()
        .answers::<MirrorPageAnswer<'_>>(
            StatusCode::OK,
            "The page.",
            json!({
                "zxid": 17,
                "znodes": [shown],
                "next_cursor": null,
                "limits": {
                    "data_bytes": 1_048_575,
                    "children": 1_000_000,
                    "path_bytes": 8192,
                    "path_depth": 4096,
                    "acl_bytes": 16_384,
                },
            }),
        )
        .fails(&[Code::BadPath, Code::NoZnode, Code::Forbidden, Code::Unavailable]),
        Operation::post(
            "/v1/mirror",
            "mirrorTree",
            "Copies znodes from another tree",
        )
        .describe(
            "Sets versions, times, access control lists and counters as well, which no other operation can. A repetition has no effect. See `lockgate migrate`.",
        )
        .request_body::<MirrorBody<'_>>(true, json!({"steps": [{"put": put}, {"remove": {"path": "/orders/41"}}]}))
        .answers::<MirroredAnswer>(
            StatusCode::OK,
            "All steps were applied.",
            json!({"zxid": 17, "steps": 2}),
        )
        .fails(&[
            Code::BadPath,
            Code::BadAcl,
            Code::NoZnode,
            Code::NotEmpty,
            Code::NotMirrored,
            Code::NoChildrenForEphemerals,
            Code::SequenceExhausted,
            Code::NamespaceQuotaExceeded,
            Code::LimitReached,
            Code::TooManyRequests,
            Code::TooLarge,
            Code::Forbidden,
            Code::Internal,
        ])
        .fails(&CHANGE)
        .fails(&GROWS),
    ]
}

fn members() -> Vec<Operation> {
    let addresses = json!({"peer": "10.0.0.8:7500", "http": "10.0.0.8:7400"});
    vec![
        changed(Operation::post(
            "/v1/cluster/members",
            "addMember",
            "Adds a node as a learner",
        ))
        .describe("The node must run, started with `join = true`.")
        .request_body::<AddBody>(
            true,
            json!({"node_id": 4, "peer": "10.0.0.8:7500", "http": "10.0.0.8:7400"}),
        )
        .fails(&[
            Code::MemberExists,
            Code::NodeIdRetired,
            Code::NodeUnreachable,
            Code::LimitReached,
        ]),
        changed(of_member(Operation::put(
            "/v1/cluster/members/{id}",
            "moveMember",
            "Sets the addresses of a member",
        )))
        .request_body::<AddressBody>(true, addresses),
        changed(of_member(Operation::delete(
            "/v1/cluster/members/{id}",
            "removeMember",
            "Removes a member, running or not",
        )))
        .query_parameters::<ForceQuery>(&[])
        .fails(&[Code::NoMajority]),
        changed(of_member(Operation::post(
            "/v1/cluster/members/{id}/promote",
            "promoteMember",
            "Promotes a learner that has caught up to a voter",
        )))
        .request_body::<NoBody>(false, json!({}))
        .fails(&[Code::NotCaughtUp, Code::NoMajority]),
        changed(of_member(Operation::post(
            "/v1/cluster/members/{id}/demote",
            "demoteMember",
            "Demotes a voter to a learner",
        )))
        .query_parameters::<ForceQuery>(&[])
        .request_body::<NoBody>(false, json!({}))
        .fails(&[Code::NoMajority]),
        changed(Operation::post(
            "/v1/cluster/leader",
            "moveLeader",
            "Transfers leadership",
        ))
        .describe("To `node_id`, or without it to the voter with the longest log.")
        .request_body::<LeaderBody>(false, json!({"node_id": 2}))
        .fails(&[Code::NoMember, Code::NotAVoter, Code::NotCaughtUp]),
    ]
}

/// Returns the operations for load balancers, supervisors, Prometheus, and readers of this document.
pub fn health() -> Vec<Operation> {
    vec![
        Operation::get("/healthz", "live", "Shows that the process is alive")
            .answers::<Health>(StatusCode::OK, "The process is alive.", json!({"status": "alive"}))
            .for_everybody(),
        Operation::get("/readyz", "ready", "Checks that this node can serve requests")
            .answers::<Health>(
                StatusCode::OK,
                "The node has caught up with a leader within the last seconds.",
                json!({"status": "ready"}),
            )
            .fails(&[Code::Unavailable])
            .for_everybody(),
        Operation::get("/v1/version", "version", "Shows the version of the program and of the API")
            .answers::<VersionAnswer>(
                StatusCode::OK,
                "The version, and the features that a client may look for.",
                json!({"program": "0.1.0", "api": "v1", "features": ["idempotency_key"]}),
            )
            .fails(&[Code::BadRequest])
            .for_everybody(),
        Operation::get("/metrics", "metrics", "Shows the metrics of this node")
            .answers_in_any(
                &["text/plain", "application/openmetrics-text"],
                "Prometheus' text format 0.0.4, or OpenMetrics 1.0.0 if `Accept` names that first. Names begin with `lockgate_`.",
            )
            .fails(&[Code::BadRequest, Code::Internal, Code::Forbidden]),
        Operation::get("/v1/openapi.json", "openApi", "This document")
            .answers_in("application/json", "OpenAPI 3.1.", json!({"type": "object"}))
            .fails(&[Code::BadRequest])
            .for_everybody(),
        Operation::get("/", "dashboard", "Dashboard")
            .describe("The page contains no data. It fetches the data by the operations of this document, with the token that its user enters.")
            .answers_in("text/html", "The page.", json!({"type": "string"}))
            .fails(&[Code::BadRequest])
            .for_everybody(),
        Operation::get("/dashboard/{file}", "dashboardFile", "A file of the dashboard")
            .names::<words::FileName>("file", "Name of the file.", json!("style.css"))
            .answers_in_any(&["text/css", "text/javascript", "image/svg+xml"], "A style sheet, a script or a picture.")
            .fails(&[Code::BadRequest])
            .for_everybody(),
        Operation::get("/docs", "docs", "This document for people")
            .answers_in("text/html", "A page without scripts.", json!({"type": "string"}))
            .fails(&[Code::BadRequest])
            .for_everybody(),
        Operation::get("/docs/style.css", "docsStyle", "Style sheet of the page for people")
            .answers_in("text/css", "A style sheet.", json!({"type": "string"}))
            .fails(&[Code::BadRequest])
            .for_everybody(),
    ]
}

fn of_member(operation: Operation) -> Operation {
    operation
        .names::<words::NodeId>("id", "Id of the member.", json!(4))
        .fails(&[Code::BadRequest, Code::NoMember])
}

fn changed(operation: Operation) -> Operation {
    operation
        .answers::<MembersAnswer>(
            StatusCode::OK,
            "The change is committed. `changed` is `false` if it was in effect already.",
            json!({"changed": true, "warnings": [], "leader": 1, "members": [member()]}),
        )
        .fails(&[
            Code::BadRequest,
            Code::MembershipChangeInProgress,
            Code::Forbidden,
        ])
        .fails(&CHANGE)
}

fn member() -> Value {
    json!({
        "node_id": 1,
        "peer": "10.0.0.7:7500",
        "http": "10.0.0.7:7400",
        "role": "leader",
        "matched_index": 4711,
        "lag": 0,
        "versions": {"program": "0.1.0", "wire": {"oldest": 1, "newest": 1}, "commands": 1},
    })
}

fn cluster() -> Value {
    json!({
        "version": "0.1.0",
        "cluster": "main",
        "cluster_id": "8e4f0f6d4cf0e3a5",
        "node_id": 1,
        "role": "leader",
        "leader": 1,
        "term": 3,
        "committed_index": 4711,
        "applied_index": 4711,
        "applied_zxid": 4702,
        "snapshot_index": 4000,
        "snapshot_bytes": 81920,
        "snapshot_age_ms": 60_000,
        "snapshot_failure": null,
        "log_first_index": 3000,
        "log_bytes": 409_600,
        "ready": true,
        "not_ready_reason": null,
        "read_only": false,
        "alarms": [],
        "members": [member()],
        "retired_node_ids": [{"first": 3, "last": 5}],
        "next_node_id": 2,
        "disk": disk(),
        "counts": {"sessions": 12, "locks": 7, "znodes": 40, "watches": 3},
    })
}
