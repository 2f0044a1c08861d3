//! Namespaces of a cluster: quotas and usage by the first component of a lock's name or of a znode's path. docs/operate/namespaces.md explains
//! them.

use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::client::LockClient;
use crate::encode;
use crate::error::Error;
use crate::http::ApiRequest;
use crate::servers::request_id;

/// Quotas of a namespace; `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct NamespaceQuotas {
    /// Maximum number of sessions, leases included, with a contender or an ephemeral znode.
    pub sessions: Option<u64>,
    /// Maximum number of locks with a holder or a waiter.
    pub locks: Option<u64>,
    /// Maximum number of znodes, those of locks and contenders included.
    pub znodes: Option<u64>,
    /// Maximum number of bytes of data of these znodes.
    pub bytes: Option<u64>,
    /// Maximum rate of changes at each node; at least 1.
    pub requests_per_second: Option<u32>,
}

/// Usage of a namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct NamespaceUsage {
    /// Sessions, leases included, with a contender or an ephemeral znode.
    pub sessions: u64,
    /// Locks with a holder or a waiter.
    pub locks: u64,
    /// Znodes, those of locks and contenders included.
    pub znodes: u64,
    /// Bytes of data of these znodes.
    pub bytes: u64,
}

/// Namespace with its usage and its quotas.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct NamespaceView {
    /// Name.
    pub namespace: String,
    /// Usage.
    pub usage: NamespaceUsage,
    /// Quotas.
    pub quotas: NamespaceQuotas,
    /// Other fields of the answer.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl LockClient {
    /// Returns the namespaces with quotas that the caller may see, by name.
    pub async fn namespaces(&self) -> Result<Vec<NamespaceView>, Error> {
        self.all("/v1/namespaces?").await
    }

    /// Returns one namespace with quotas.
    pub async fn namespace(&self, name: &str) -> Result<NamespaceView, Error> {
        self.servers.ask(&ApiRequest::get(path(name))).await
    }

    /// Replaces all quotas of a namespace. Needs the right to administer at `/`.
    pub async fn set_namespace_quotas(
        &self,
        name: &str,
        quotas: &NamespaceQuotas,
    ) -> Result<NamespaceView, Error> {
        let mut body = json!(quotas);
        body["request_id"] = json!(request_id());
        self.servers
            .ask(&ApiRequest::with(Method::PUT, path(name), &body))
            .await
    }

    /// Removes the quotas of a namespace. Its locks and znodes stay. Needs the right to administer at `/`.
    pub async fn delete_namespace(&self, name: &str) -> Result<(), Error> {
        let call = ApiRequest::delete(format!("{}?request_id={}", path(name), request_id()));
        self.servers.call(&call).await.map(drop)
    }
}

fn path(name: &str) -> String {
    format!("/v1/namespaces/{}", encode::segment(name))
}
