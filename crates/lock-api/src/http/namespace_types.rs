//! Documents of namespaces: quotas and usage.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use znode_store::{NamespaceName, NamespaceUsage, NamespaceView, Quotas, RequestId};

use super::openapi::words;
use super::problem::Problem;

/// Parses the name of a namespace.
pub fn namespace_name(text: &str) -> Result<NamespaceName, Problem> {
    NamespaceName::parse(text).map_err(|error| Problem::bad_request(error.to_string()))
}

/// Body of `PUT /v1/namespaces/{name}`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QuotasBody {
    /// Maximum number of sessions, leases included, with a contender or an ephemeral znode. Absent or `null`: no limit, as for the others.
    #[schema(value_type = Option<words::Quota>)]
    sessions: Option<u64>,
    /// Maximum number of locks with a holder or a waiter.
    #[schema(value_type = Option<words::Quota>)]
    locks: Option<u64>,
    /// Maximum number of znodes, those of locks and contenders included.
    #[schema(value_type = Option<words::Quota>)]
    znodes: Option<u64>,
    /// Maximum number of bytes of data of these znodes.
    #[schema(value_type = Option<words::Quota>)]
    bytes: Option<u64>,
    /// Maximum rate of changes at each node, with bursts of one second.
    #[schema(value_type = Option<words::RequestRate>)]
    requests_per_second: Option<u32>,
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
}

impl QuotasBody {
    /// Returns the quotas, or refuses a rate of 0, with which no node could serve anything.
    pub fn quotas(&self) -> Result<Quotas, Problem> {
        if self.requests_per_second == Some(0) {
            return Err(Problem::bad_request("requests_per_second is at least 1"));
        }
        Ok(Quotas {
            sessions: self.sessions,
            locks: self.locks,
            znodes: self.znodes,
            bytes: self.bytes,
            requests_per_second: self.requests_per_second,
        })
    }
}

/// Quotas of a namespace; `null`: no limit.
#[derive(Serialize, ToSchema)]
pub struct QuotasAnswer {
    #[schema(value_type = Option<words::Quota>, required)]
    sessions: Option<u64>,
    #[schema(value_type = Option<words::Quota>, required)]
    locks: Option<u64>,
    #[schema(value_type = Option<words::Quota>, required)]
    znodes: Option<u64>,
    #[schema(value_type = Option<words::Quota>, required)]
    bytes: Option<u64>,
    /// Maximum rate of changes at each node.
    #[schema(value_type = Option<words::RequestRate>, required)]
    requests_per_second: Option<u32>,
}

/// Usage of a namespace.
#[derive(Serialize, ToSchema)]
pub struct UsageAnswer {
    /// Sessions, leases included, with a contender or an ephemeral znode.
    #[schema(value_type = words::Quota)]
    sessions: u64,
    /// Locks with a holder or a waiter.
    #[schema(value_type = words::Quota)]
    locks: u64,
    /// Znodes, those of locks and contenders included.
    #[schema(value_type = words::Quota)]
    znodes: u64,
    /// Bytes of data of these znodes.
    #[schema(value_type = words::Quota)]
    bytes: u64,
}

/// Namespace with its usage and its quotas.
#[derive(Serialize, ToSchema)]
pub struct NamespaceAnswer<'a> {
    #[schema(value_type = words::NamespaceName)]
    namespace: &'a str,
    usage: UsageAnswer,
    quotas: QuotasAnswer,
}

impl<'a> From<&'a NamespaceView> for NamespaceAnswer<'a> {
    fn from(view: &'a NamespaceView) -> Self {
        let NamespaceUsage {
            sessions,
            locks,
            znodes,
            bytes,
        } = view.usage;
        let quotas = view.quotas;
        Self {
            namespace: view.namespace.as_str(),
            usage: UsageAnswer {
                sessions,
                locks,
                znodes,
                bytes,
            },
            quotas: QuotasAnswer {
                sessions: quotas.sessions,
                locks: quotas.locks,
                znodes: quotas.znodes,
                bytes: quotas.bytes,
                requests_per_second: quotas.requests_per_second,
            },
        }
    }
}

#[derive(Serialize, ToSchema)]
pub struct NamespacesAnswer<'a> {
    /// Namespaces with quotas, by name.
    pub namespaces: Vec<NamespaceAnswer<'a>>,
    /// Value of `cursor` for the next page; `null` on the last one.
    #[schema(value_type = Option<words::NamespaceName>, required)]
    pub next_cursor: Option<&'a str>,
}
