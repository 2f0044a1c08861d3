//! What is said and answered when something is done to a hold or to a lock: release, break, downgrade, upgrade, revoke,
//! configure.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use znode_store::{Downgraded, RequestId};

use super::{no_wait, wait_for};
use crate::locks::WaitFor;

/// The body of `release`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseBody<'a> {
    /// On whose behalf.
    #[serde(borrow)]
    pub session: Cow<'a, str>,
    /// Which contender.
    #[serde(borrow)]
    pub holder: Cow<'a, str>,
    /// For repeating it.
    pub request_id: Option<RequestId>,
}

/// The body of `break`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BreakBody<'a> {
    /// Which contender.
    #[serde(borrow)]
    pub holder: Cow<'a, str>,
    /// Told to whoever asks what became of it.
    #[serde(borrow)]
    pub reason: Cow<'a, str>,
    /// For repeating it.
    pub request_id: Option<RequestId>,
}

/// The body of `downgrade`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DowngradeBody<'a> {
    /// On whose behalf.
    #[serde(borrow)]
    pub session: Cow<'a, str>,
    /// Which contender.
    #[serde(borrow)]
    pub holder: Cow<'a, str>,
    /// What it still needs.
    #[serde(default)]
    pub mode: DowngradedWord,
    /// For repeating it.
    pub request_id: Option<RequestId>,
}

/// What a holder can be downgraded to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DowngradedWord {
    /// One of those who share the lock.
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
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpgradeBody<'a> {
    /// On whose behalf.
    #[serde(borrow)]
    pub session: Cow<'a, str>,
    /// Which contender.
    #[serde(borrow)]
    pub holder: Cow<'a, str>,
    /// How long to wait for the others to go.
    #[serde(default = "no_wait", deserialize_with = "wait_for")]
    pub wait_ms: WaitFor,
    /// For repeating it.
    pub request_id: Option<RequestId>,
    /// How often it was sent before.
    pub retry: Option<u16>,
}

/// The body of `revoke`: a request to give up (`reason`), or a holder's answer to it (`session`, `holder`, `answer`).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevokeBody<'a> {
    /// Why.
    #[serde(borrow)]
    pub reason: Option<Cow<'a, str>>,
    /// Whom to ask, or who answers.
    #[serde(borrow)]
    pub holder: Option<Cow<'a, str>>,
    /// On whose behalf the answer is.
    #[serde(borrow)]
    pub session: Option<Cow<'a, str>>,
    /// What the holder says.
    #[serde(borrow)]
    pub answer: Option<Cow<'a, str>>,
    /// For repeating it.
    pub request_id: Option<RequestId>,
}

/// The answer of a request to give up.
#[derive(Serialize)]
pub struct RevokeAnswer {
    /// How many holders were asked.
    pub asked: u32,
}

/// The body of `PUT /v1/locks/{name}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigureBody {
    /// Absent: stays as it is; `null`: again what its first user says.
    #[serde(default, deserialize_with = "present")]
    pub limit: Option<Option<u32>>,
    /// Absent: stays as it is.
    pub draining: Option<bool>,
    /// For repeating it.
    pub request_id: Option<RequestId>,
}

/// Tells `null` from what is absent.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// The answer of `release`.
#[derive(Serialize)]
pub struct ReleaseAnswer {
    /// How many re-entries are left.
    pub holds: u32,
}
