//! Operations for operators of the cluster, and for their programs.

use axum::http::StatusCode;
use lock_node::SnapshotMade;
use serde_json::{Value, json};

use super::{CHANGE, GROWS};
use crate::http::cluster::{ClusterAnswer, Health};
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
            "lookAtCluster",
            "Shows the cluster as this node sees it",
        )
        .says("What only the leader knows is `null` elsewhere.")
        .answers::<ClusterAnswer>(StatusCode::OK, "The cluster.", cluster())
        .fails(&[Code::BadRequest, Code::Forbidden]),
        Operation::get(
            "/v1/cluster/members",
            "membersCondition",
            "Shows how all members are, by the leader's word",
        )
        .says("Every node answers; one that does not lead asks the leader.")
        .answers::<ConditionsAnswer>(
            StatusCode::OK,
            "All members.",
            json!({"members": [{"node_id": 1, "matched_index": 4711, "lag": 0, "disk": disk()}]}),
        )
        .fails(&[Code::BadRequest, Code::Forbidden, Code::Unavailable]),
        happenings(),
        Operation::get("/v1/snapshot", "downloadBackup", "Downloads a backup")
            .says(
                "A file that proves by its end and its checksums that it is whole, for `lockgate snapshot`.",
            )
            .asks::<SnapshotQuery>(&[])
            .answers_in(
                "application/octet-stream",
                "The file.",
                json!({"contentMediaType": "application/octet-stream"}),
            )
            .fails(&[Code::TooManyRequests, Code::Unavailable, Code::Forbidden]),
        Operation::post(
            "/v1/cluster/snapshot",
            "makeSnapshot",
            "Has this node write a snapshot and shorten its log",
        )
        .answers::<SnapshotMade>(
            StatusCode::OK,
            "It is there. If nothing was applied since the newest, that one.",
            json!({"index": 4711, "term": 3, "bytes": 81920, "duration_ms": 12}),
        )
        .fails(&[Code::BadRequest, Code::Unavailable, Code::Forbidden]),
    ];
    all.extend(mirror());
    all.extend(members());
    all
}

fn happenings() -> Operation {
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    Operation::get(
        "/v1/events",
        "lookOn",
        "Streams events of all locks and sessions",
    )
    .says(
        "Server-sent events for people who look on: the latest of what happened, a few times a second, and whether there was more. Of \
         locks to those who may see their history; of sessions, and of who may do what, to administrators.",
    )
    .asks::<EventsQuery>(&[("prefix", json!("orders/"))])
    .asks_also(json!({
        "name": "Last-Event-ID", "in": "header", "required": false,
        "description": "As `after`, and stronger. Browsers send it by themselves.",
        "schema": reference("EventId"),
    }))
    .with_words::<words::EventId>()
    .with_words::<words::LastCount>()
    .with_words::<HappenedEvent<'_>>()
    .with_words::<StreamEndedEvent>()
    .answers_events(
        "What happens, as it does. The data is JSON.",
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
            "Lists znodes with all that two trees are compared by",
        )
        .says("Parents before their children. Where the cluster is not secured, lists may hide some of it, and then nothing is shown.")
        .asks::<MirrorQuery>(&[])
        .with_words::<words::PageCount>()
        .answers::<MirrorPageAnswer<'_>>(
            StatusCode::OK,
            "A page.",
            json!({
                "zxid": 17,
                "znodes": [shown],
                "next_after": null,
                "limits": {
                    "data_bytes": 1_048_575,
                    "children": 1_000_000,
                    "path_bytes": 8192,
                    "path_depth": 4096,
                    "acl_bytes": 16_384,
                },
            }),
        )
        .fails(&[Code::BadPath, Code::NoNode, Code::Forbidden, Code::Unavailable]),
        Operation::post(
            "/v1/mirror",
            "mirrorTree",
            "Makes znodes what they are in another tree",
        )
        .says(
            "With versions, times, lists and counters, which nothing else can set. To do the same again does nothing. See \
             `lockgate migrate`.",
        )
        .takes::<MirrorBody<'_>>(true, json!({"steps": [{"put": put}, {"remove": {"path": "/orders/41"}}]}))
        .answers::<MirroredAnswer>(
            StatusCode::OK,
            "All steps were taken.",
            json!({"zxid": 17, "steps": 2}),
        )
        .fails(&[
            Code::BadPath,
            Code::BadAcl,
            Code::NoNode,
            Code::NotEmpty,
            Code::NotMirrored,
            Code::NoChildrenForEphemerals,
            Code::SequenceExhausted,
            Code::LimitReached,
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
        .says("The node must be up, started with `join = true`.")
        .takes::<AddBody>(
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
            "Says where a member is found",
        )))
        .takes::<AddressBody>(true, addresses),
        changed(of_member(Operation::delete(
            "/v1/cluster/members/{id}",
            "removeMember",
            "Removes a member, dead or alive",
        )))
        .asks::<ForceQuery>(&[])
        .fails(&[Code::NoMajority]),
        changed(of_member(Operation::post(
            "/v1/cluster/members/{id}/promote",
            "promoteMember",
            "Makes a learner that has caught up a voter",
        )))
        .takes::<NoBody>(false, json!({}))
        .fails(&[Code::NotCaughtUp, Code::NoMajority]),
        changed(of_member(Operation::post(
            "/v1/cluster/members/{id}/demote",
            "demoteMember",
            "Makes a voter a learner",
        )))
        .asks::<ForceQuery>(&[])
        .takes::<NoBody>(false, json!({}))
        .fails(&[Code::NoMajority]),
        changed(Operation::post(
            "/v1/cluster/leader",
            "moveLeader",
            "Moves leadership",
        ))
        .says("To `node_id`, or without one to the voter that has most of the log.")
        .takes::<LeaderBody>(false, json!({"node_id": 2}))
        .fails(&[Code::NoMember, Code::NotAVoter, Code::NotCaughtUp]),
    ]
}

/// Returns the operations for load balancers, supervisors, Prometheus, and readers of this document.
pub fn health() -> Vec<Operation> {
    vec![
        Operation::get("/healthz", "live", "Shows that the process is alive")
            .answers::<Health>(StatusCode::OK, "It does.", json!({"status": "alive"}))
            .for_everybody(),
        Operation::get("/readyz", "ready", "Shows whether this node can serve")
            .answers::<Health>(
                StatusCode::OK,
                "It has caught up with a leader within the last seconds.",
                json!({"status": "ready"}),
            )
            .fails(&[Code::Unavailable])
            .for_everybody(),
        Operation::get("/metrics", "metrics", "Shows what this node measures")
            .answers_in_any(
                &["text/plain", "application/openmetrics-text"],
                "Prometheus' text format 0.0.4, or OpenMetrics 1.0.0 if `Accept` names that first. Names begin with `lockgate_`.",
            )
            .fails(&[Code::BadRequest, Code::Internal, Code::Forbidden]),
        Operation::get("/v1/openapi.json", "openApi", "This document")
            .answers_in("application/json", "OpenAPI 3.1.", json!({"type": "object"}))
            .fails(&[Code::BadRequest])
            .for_everybody(),
        Operation::get("/", "dashboard", "The dashboard")
            .says("It holds nothing of the cluster: it asks for that by the operations of this document, with the token that its reader gives it.")
            .answers_in("text/html", "A page.", json!({"type": "string"}))
            .fails(&[Code::BadRequest])
            .for_everybody(),
        Operation::get("/dashboard/{file}", "dashboardFile", "A part of the dashboard")
            .names::<words::FileName>("file", "Which part.", json!("style.css"))
            .answers_in_any(&["text/css", "text/javascript", "image/svg+xml"], "A style sheet, a script or a picture.")
            .fails(&[Code::BadRequest])
            .for_everybody(),
        Operation::get("/docs", "docs", "This document for people")
            .answers_in("text/html", "A page without scripts.", json!({"type": "string"}))
            .fails(&[Code::BadRequest])
            .for_everybody(),
        Operation::get("/docs/style.css", "docsStyle", "How the page for people looks")
            .answers_in("text/css", "A style sheet.", json!({"type": "string"}))
            .fails(&[Code::BadRequest])
            .for_everybody(),
    ]
}

fn of_member(operation: Operation) -> Operation {
    operation
        .names::<words::NodeId>("id", "The member's id.", json!(4))
        .fails(&[Code::BadRequest, Code::NoMember])
}

fn changed(operation: Operation) -> Operation {
    operation
        .answers::<MembersAnswer>(
            StatusCode::OK,
            "It is committed. `changed` is `false` if it was so already.",
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
        "retired_node_ids": "",
        "next_node_id": 2,
        "disk": disk(),
        "counts": {"sessions": 12, "locks": 7, "znodes": 40, "watches": 3},
    })
}
