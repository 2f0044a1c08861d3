//! Operations on znodes: single ones, several at once, their lists, and watches.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{CHANGE, FRESH, GROWS, OF_SESSION, SESSION};
use crate::http::acl_types::{AclAnswer, SetAclBody};
use crate::http::acls;
use crate::http::extract::ReadQuery;
use crate::http::openapi::operation::Operation;
use crate::http::openapi::words;
use crate::http::problem::Code;
use crate::http::reads::{ReadsAnswer, ReadsBody};
use crate::http::txn::{TxnAnswer, TxnBody};
use crate::http::watch::{EventAnswer, KindWord, WatchQuery};
use crate::http::znode_types::{ChangedAnswer, CreateBody, SetBody, ZnodeAnswer};
use crate::http::znodes::{DeleteQuery, GetQuery, SetQuery};

/// Failures of every change of a znode.
const OF_CHANGE: [Code; 4] = [
    Code::NoZnode,
    Code::Forbidden,
    Code::RequestIdReused,
    Code::BadPath,
];

/// Further failures of a creation.
const OF_CREATION: [Code; 8] = [
    Code::BadAcl,
    Code::NodeExists,
    Code::NoChildrenForEphemerals,
    Code::SequenceExhausted,
    Code::QuotaExceeded,
    Code::NamespaceQuotaExceeded,
    Code::LimitReached,
    Code::TooManyRequests,
];

/// Returns all operations of this group but the watches.
pub fn operations() -> Vec<Operation> {
    let mut all = single();
    all.extend(several());
    all
}

fn single() -> Vec<Operation> {
    vec![
        one(Operation::get("/v1/znodes/{path}", "getZnode", "Shows data and metadata of a znode"))
            .describe("`prefix`, `after` and `count` belong to `children=true`.")
            .query_parameters::<GetQuery>(&[("children", json!(true))])
            .with_words::<words::PageLimit>()
            .answers::<ZnodeAnswer<'_>>(
                StatusCode::OK,
                "The znode, with its data as text, as null if it is null, or otherwise in base64.",
                json!({"path": "/orders/42", "data": "paid", "stat": stat()}),
            )
            .fails(&[Code::BadPath, Code::NoZnode, Code::Forbidden])
            .fails(&FRESH),
        one(Operation::post("/v1/znodes/{path}", "createZnode", "Creates a znode"))
            .describe(
                "`data` and `data_base64` exclude each other. Without either the data is empty, and with `\"data\": null` it is null. \
                 Ephemeral znodes require a `session`; `ttl_ms` belongs to the modes `ttl` and \
                 `ttl_sequential`. Only `acquire` creates the contenders of locks.",
            )
            .request_body::<CreateBody<'_>>(false, json!({"data": "new", "parents": true}))
            .answers::<ChangedAnswer<'_>>(
                StatusCode::CREATED,
                "The znode is created. The path of a sequential znode includes its number.",
                json!({"path": "/orders/42", "stat": stat()}),
            )
            .fails(&OF_CHANGE)
            .fails(&OF_CREATION)
            .fails(&OF_SESSION)
            .fails(&[Code::Internal])
            .fails(&CHANGE)
            .fails(&GROWS),
        one(Operation::put("/v1/znodes/{path}", "setZnode", "Replaces the data of a znode, and with `create=true` creates it if need be"))
            .describe("The body has either `data` (which may be null) or `data_base64`. With `create=true` a missing znode is created, persistent and with all rights for every caller, and its missing parents as containers. A `request_id` then has at most 62 bytes.")
            .query_parameters::<SetQuery>(&[])
            .with_words::<words::Version>()
            .request_body::<SetBody<'_>>(true, json!({"data": "paid"}))
            .answers::<ChangedAnswer<'_>>(
                StatusCode::OK,
                "The replacement was made.",
                json!({"path": "/orders/42", "stat": stat()}),
            )
            .answers::<ChangedAnswer<'_>>(
                StatusCode::CREATED,
                "The znode is created.",
                json!({"path": "/orders/42", "stat": stat()}),
            )
            .fails(&OF_CHANGE)
            .fails(&OF_SESSION)
            .fails(&[
                Code::BadVersion,
                Code::NoChildrenForEphemerals,
                Code::QuotaExceeded,
                Code::NamespaceQuotaExceeded,
                Code::LimitReached,
                Code::TooManyRequests,
                Code::Internal,
            ])
            .fails(&CHANGE)
            .fails(&GROWS),
        one(Operation::delete("/v1/znodes/{path}", "deleteZnode", "Deletes a znode"))
            .query_parameters::<DeleteQuery>(&[])
            .with_words::<words::RequestId>()
            .answers_nothing("The znode is deleted, and with `recursive` all znodes below it.")
            .fails(&OF_CHANGE)
            .fails(&OF_SESSION)
            .fails(&[Code::BadVersion, Code::NotEmpty, Code::TooManyRequests])
            .fails(&CHANGE),
        one(Operation::get("/v1/acl/{path}", "getAcl", "Shows the access control list of a znode"))
            .describe("Requires the right to read or to administer the znode. Without the latter the hashes of passwords are hidden.")
            .query_parameters::<ReadQuery>(&[])
            .answers::<AclAnswer<'_>>(StatusCode::OK, "The list.", acl())
            .fails(&[Code::BadPath, Code::NoZnode, Code::Forbidden])
            .fails(&FRESH),
        one(Operation::put("/v1/acl/{path}", "setAcl", "Replaces the access control list of a znode"))
            .describe("`version` is that of the list: the `aversion` of the metadata.")
            .query_parameters::<acls::SetQuery>(&[])
            .with_words::<words::Version>()
            .request_body::<SetAclBody<'_>>(
                true,
                json!({"acl": [{"perms": "cdrwa", "scheme": "world", "id": "anyone"}]}),
            )
            .answers::<ChangedAnswer<'_>>(
                StatusCode::OK,
                "The replacement was made.",
                json!({"path": "/orders/42", "stat": stat()}),
            )
            .fails(&OF_CHANGE)
            .fails(&OF_SESSION)
            .fails(&[Code::BadAcl, Code::BadVersion, Code::TooManyRequests, Code::Internal])
            .fails(&CHANGE)
            .fails(&GROWS),
    ]
}

fn several() -> Vec<Operation> {
    vec![
        Operation::post("/v1/txn", "transaction", "Changes several znodes, all or none")
            .describe(
                "All operations are applied at one position of the log. `held` is a condition: the transaction's session holds this lock by the grant with this token. So the operations are applied while the lock is held, or not at all. The `index` in a problem is that of the failed operation.",
            )
            .request_body::<TxnBody<'_>>(
                true,
                json!({
                    "session": SESSION,
                    "ops": [
                        {"held": {"lock": "orders/42", "fencing_token": 17}},
                        {"set": {"path": "/orders/42", "data": "paid"}},
                    ],
                }),
            )
            .answers::<TxnAnswer>(
                StatusCode::OK,
                "All operations were applied. The answer has the result of each.",
                json!({"results": [{"held": {}}, {"set": {"stat": stat()}}]}),
            )
            .fails(&OF_CHANGE)
            .fails(&OF_CREATION)
            .fails(&OF_SESSION)
            .fails(&[
                Code::BadLockName,
                Code::NotHolder,
                Code::BadVersion,
                Code::NotEmpty,
                Code::Internal,
            ])
            .fails(&CHANGE)
            .fails(&GROWS),
        Operation::post("/v1/read", "readZnodes", "Reads several znodes at one position")
            .describe("A read that fails does not affect the others, and has a `problem` as its result.")
            .query_parameters::<ReadQuery>(&[])
            .request_body::<ReadsBody<'_>>(
                true,
                json!({"reads": [{"get": {"path": "/orders/42"}}, {"exists": {"path": "/orders/43"}}]}),
            )
            .answers::<ReadsAnswer<'_>>(
                StatusCode::OK,
                "The results, all read at the position `zxid`.",
                json!({"zxid": 17, "results": [{"exists": {"path": "/orders/42", "stat": stat()}}]}),
            )
            .fails(&FRESH),
    ]
}

/// Returns the operations on watches.
pub fn watches() -> Vec<Operation> {
    vec![
        one(Operation::get("/v1/watch/{path}", "watchZnode", "Waits for the next event at a znode"))
            .describe(
                "With `zxid` (`mzxid` of the metadata, or `pzxid` for `children`; not for `recursive`) a change after that position is reported at once if it has happened already.",
            )
            .query_parameters::<WatchQuery>(&[("kind", json!("data"))])
            .with_words::<KindWord>()
            .with_words::<words::WatchTimeoutMs>()
            .with_words::<words::Position>()
            .answers::<EventAnswer<'_>>(
                StatusCode::OK,
                "The event.",
                json!({"event": "data_changed", "path": "/orders/42", "zxid": 17}),
            )
            .answers_nothing("No event happened within the time.")
            .fails(&[Code::BadPath, Code::NoZnode, Code::Forbidden, Code::TooManyRequests])
            .fails(&FRESH),
    ]
}

fn one(operation: Operation) -> Operation {
    operation.names::<words::PathInAddress>(
        "path",
        "Path of the znode without its first slash. Slashes need no percent-encoding.",
        json!("orders/42"),
    )
}

fn stat() -> Value {
    json!({
        "czxid": 12,
        "mzxid": 17,
        "pzxid": 12,
        "created_at": "2026-01-31T09:30:00.000Z",
        "modified_at": "2026-01-31T09:30:07.000Z",
        "version": 1,
        "cversion": 0,
        "aversion": 0,
        "ephemeral_owner": null,
        "container": false,
        "ttl_ms": null,
        "data_length": 4,
        "num_children": 0,
    })
}

fn acl() -> Value {
    json!({
        "path": "/orders/42",
        "acl": [{"perms": "cdrwa", "scheme": "world", "id": "anyone"}],
        "stat": stat(),
    })
}
