//! Query of the lists of roles and of namespaces, which are paged by name.

use serde::Deserialize;
use utoipa::IntoParams;

use super::openapi::words;

/// Query of lists by name.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct NamesQuery {
    /// Last name of the page before.
    pub cursor: Option<String>,
    #[param(value_type = Option<words::PageLimit>)]
    pub limit: Option<usize>,
    /// Wait until this node has applied everything that was committed before.
    #[serde(default)]
    pub linearizable: bool,
}
