//! Operations on namespaces.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{CHANGE, FRESH, GROWS};
use crate::http::extract::ReadQuery;
use crate::http::names_query::NamesQuery;
use crate::http::namespace_types::{NamespaceAnswer, NamespacesAnswer, QuotasBody};
use crate::http::namespaces::DeleteQuery;
use crate::http::openapi::operation::Operation;
use crate::http::openapi::words;
use crate::http::problem::Code;

/// Returns the operations of this group.
pub fn operations() -> Vec<Operation> {
    vec![
        Operation::get("/v1/namespaces", "listNamespaces", "Lists the namespaces with quotas")
            .describe("Only those that the caller may see: it needs the right to read all locks or all znodes of the namespace.")
            .query_parameters::<NamesQuery>(&[])
            .with_words::<words::PageLimit>()
            .answers::<NamespacesAnswer<'_>>(
                StatusCode::OK,
                "A page of namespaces, by name.",
                json!({"namespaces": [namespace()], "next_cursor": null}),
            )
            .fails(&FRESH),
        one(Operation::get("/v1/namespaces/{name}", "getNamespace", "Shows usage and quotas of a namespace"))
            .query_parameters::<ReadQuery>(&[])
            .answers::<NamespaceAnswer<'_>>(StatusCode::OK, "Usage and quotas.", namespace())
            .fails(&[Code::NoNamespace])
            .fails(&FRESH),
        one(Operation::put("/v1/namespaces/{name}", "setQuotas", "Sets the quotas of a namespace"))
            .describe("The new quotas replace all former ones. Usage above them stays; only further growth is rejected. Without any quota the usage is counted all the same. Requires the right to administer `/`.")
            .request_body::<QuotasBody>(true, json!({"locks": 1000, "znodes": 20_000, "requests_per_second": 200}))
            .answers::<NamespaceAnswer<'_>>(StatusCode::OK, "Usage and new quotas.", namespace())
            // Another request may remove the quotas before the answer is built.
            .fails(&[Code::NoNamespace, Code::LimitReached, Code::RequestIdReused, Code::Internal])
            .fails(&CHANGE)
            .fails(&GROWS),
        one(Operation::delete("/v1/namespaces/{name}", "deleteNamespace", "Removes the quotas of a namespace"))
            .describe("Its locks and znodes stay. Requires the right to administer `/`.")
            .query_parameters::<DeleteQuery>(&[])
            .with_words::<words::RequestId>()
            .answers_nothing("The namespace has no quotas, and its usage is not counted any more.")
            .fails(&[Code::NoNamespace, Code::RequestIdReused, Code::Internal])
            .fails(&CHANGE),
    ]
}

fn one(operation: Operation) -> Operation {
    let operation =
        operation.names::<words::NamespaceName>("name", "Name of the namespace.", json!("billing"));
    operation.fails(&[Code::BadRequest, Code::Forbidden])
}

fn namespace() -> Value {
    json!({
        "namespace": "billing",
        "usage": {"sessions": 12, "locks": 40, "znodes": 95, "bytes": 14_210},
        "quotas": {"sessions": null, "locks": 1000, "znodes": 20_000, "bytes": null, "requests_per_second": 200},
    })
}
