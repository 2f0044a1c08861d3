//! Requests and answers of changes of a hold or a lock: release, break, downgrade, upgrade, revoke,
//! configure.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;
use znode_store::{Downgraded, RequestId};

use super::{no_wait, wait_for};
use crate::http::openapi::words;
use crate::locks::WaitFor;

/// The body of `release`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseBody<'a> {
    /// On whose behalf.
    #[serde(borrow)]
    #[schema(value_type = words::SessionId)]
    pub session: Cow<'a, str>,
    /// Contender.
    #[serde(borrow)]
    #[schema(value_type = words::Holder)]
    pub holder: Cow<'a, str>,
    /// For repeating it.
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
}

/// The body of `break`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BreakBody<'a> {
    /// Contender.
    #[serde(borrow)]
    #[schema(value_type = words::Holder)]
    pub holder: Cow<'a, str>,
    /// Shown to callers that ask for the outcome.
    #[serde(borrow)]
    #[schema(value_type = words::Reason)]
    pub reason: Cow<'a, str>,
    /// For repeating it.
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
}

/// The body of `downgrade`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DowngradeBody<'a> {
    /// On whose behalf.
    #[serde(borrow)]
    #[schema(value_type = words::SessionId)]
    pub session: Cow<'a, str>,
    /// Contender.
    #[serde(borrow)]
    #[schema(value_type = words::Holder)]
    pub holder: Cow<'a, str>,
    /// Mode that it still needs.
    #[serde(default)]
    pub mode: DowngradedWord,
    /// For repeating it.
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
}

/// Mode after a downgrade.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DowngradedMode)]
pub enum DowngradedWord {
    /// One of several shared holders.
    #[default]
    Shared,
    /// The one that may become exclusive again.
    Upgradeable,
}

impl From<DowngradedWord> for Downgraded {
    fn from(word: DowngradedWord) -> Self {
        match word {
            DowngradedWord::Shared => Self::Shared,
            DowngradedWord::Upgradeable => Self::Upgradeable,
        }
    }
}

/// The body of `upgrade`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpgradeBody<'a> {
    /// On whose behalf.
    #[serde(borrow)]
    #[schema(value_type = words::SessionId)]
    pub session: Cow<'a, str>,
    /// Contender.
    #[serde(borrow)]
    #[schema(value_type = words::Holder)]
    pub holder: Cow<'a, str>,
    /// Maximum wait for the other holders to leave.
    #[serde(default = "no_wait", deserialize_with = "wait_for")]
    #[schema(value_type = words::WaitMs)]
    pub wait_ms: WaitFor,
    /// For repeating it.
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
    /// Number of earlier attempts.
    #[schema(value_type = Option<words::Retry>)]
    pub retry: Option<u16>,
}

/// The body of `revoke`: a request to give up (`reason`), or a holder's answer to it (`session`, `holder`, `answer`).
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeBody<'a> {
    /// Reason.
    #[serde(borrow)]
    #[schema(value_type = Option<words::Reason>)]
    pub reason: Option<Cow<'a, str>>,
    /// Holder that is asked, or that answers.
    #[serde(borrow)]
    #[schema(value_type = Option<words::Holder>)]
    pub holder: Option<Cow<'a, str>>,
    /// On whose behalf the answer is.
    #[serde(borrow)]
    #[schema(value_type = Option<words::SessionId>)]
    pub session: Option<Cow<'a, str>>,
    /// Answer of the holder.
    #[serde(borrow)]
    #[schema(value_type = Option<words::Reason>)]
    pub answer: Option<Cow<'a, str>>,
    /// For repeating it.
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
}

/// The answer of a request to give up.
#[derive(Serialize, ToSchema)]
pub struct RevokeAnswer {
    /// Number of holders that were asked.
    pub asked: u32,
}

/// The body of `PUT /v1/locks/{name}`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigureBody<'a> {
    /// Absent: stays as it is; `null`: again what its first user says.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<words::Limit>)]
    pub limit: Option<Option<u32>>,
    /// Absent: stays as it is.
    pub draining: Option<bool>,
    /// Reason, for the audit log.
    #[serde(borrow)]
    #[schema(value_type = Option<words::Reason>)]
    pub reason: Option<Cow<'a, str>>,
    /// For repeating it.
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
}

/// Tells `null` from what is absent.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// The answer of `release`.
#[derive(Serialize, ToSchema)]
pub struct ReleaseAnswer {
    /// Number of holds that remain.
    pub holds: u32,
}
