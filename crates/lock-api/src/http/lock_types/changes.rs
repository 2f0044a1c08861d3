//! Requests and answers of changes of a hold or a lock: release, break, downgrade, upgrade,
//! release request, configure.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;
use znode_store::{Downgraded, RequestId};

use super::{no_wait, wait_for};
use crate::http::openapi::words;
use crate::locks::WaitFor;

/// Body of `release`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseBody<'a> {
    /// Session of the holder.
    #[serde(borrow)]
    #[schema(value_type = words::SessionId)]
    pub session: Cow<'a, str>,
    /// Contender.
    #[serde(borrow)]
    #[schema(value_type = words::Holder)]
    pub holder: Cow<'a, str>,
    /// Id of the request, for repetitions.
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
}

/// Body of `break`.
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
    /// Id of the request, for repetitions.
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
}

/// Body of `downgrade`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DowngradeBody<'a> {
    /// Session of the holder.
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
    /// Id of the request, for repetitions.
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
    /// The shared holder that may become exclusive again.
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

/// Body of `upgrade`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpgradeBody<'a> {
    /// Session of the holder.
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
    /// Id of the request, for repetitions.
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
    /// Number of earlier attempts.
    #[schema(value_type = Option<words::Retry>)]
    pub retry: Option<u16>,
}

/// Body of a release request.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequestBody<'a> {
    /// Reason.
    #[serde(borrow)]
    #[schema(value_type = words::Reason)]
    pub reason: Cow<'a, str>,
    /// Holder that receives the release request. Absent: all holders.
    #[serde(borrow)]
    #[schema(value_type = Option<words::Holder>)]
    pub holder: Option<Cow<'a, str>>,
    /// Id of the request, for repetitions.
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
}

/// Body of a holder's reply to a release request.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseReplyBody<'a> {
    /// Session of the holder.
    #[serde(borrow)]
    #[schema(value_type = words::SessionId)]
    pub session: Cow<'a, str>,
    /// Contender.
    #[serde(borrow)]
    #[schema(value_type = words::Holder)]
    pub holder: Cow<'a, str>,
    /// Text of the reply.
    #[serde(borrow)]
    #[schema(value_type = words::Reason)]
    pub answer: Cow<'a, str>,
    /// Id of the request, for repetitions.
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
}

/// Answer of a release request.
#[derive(Serialize, ToSchema)]
pub struct RequestedAnswer {
    /// Number of holders that received the release request.
    pub asked: u32,
}

/// Body of `PATCH /v1/locks/{name}`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigureBody<'a> {
    /// Limit of the semaphore. Absent: unchanged; `null`: the limit that its first user sets.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<words::Limit>)]
    pub limit: Option<Option<u32>>,
    /// Grant nothing any more. Absent: unchanged.
    pub draining: Option<bool>,
    /// Reason, for the audit log.
    #[serde(borrow)]
    #[schema(value_type = Option<words::Reason>)]
    pub reason: Option<Cow<'a, str>>,
    /// Id of the request, for repetitions.
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
}

/// Distinguishes `null` from an absent field.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Answer of `release`.
#[derive(Serialize, ToSchema)]
pub struct ReleaseAnswer {
    /// Number of holds that remain.
    pub holds: u32,
}
