//! Documents of the mirrored tree of another server: a znode with all its metadata, to be written and as it is.

use std::borrow::Cow;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;
use znode_store::{
    Acl, Limits, MAX_ACL_BYTES, MAX_MIRRORED, MirrorStep, Mirrored, MirroredKind, MirroredZnode, PathBounds,
    ZPath, Zxid,
};

use super::acl_types::{EntryAnswer, EntryBody, acl, shown};
use super::extract::Timestamp;
use super::openapi::words;
use super::problem::Problem;
use super::znode_types::{TextData, data};

/// Body of `POST /v1/mirror`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MirrorBody<'a> {
    /// Steps, in this order: all of them or none.
    #[serde(borrow)]
    #[schema(max_items = 1000, min_items = 1)]
    steps: Vec<StepBody<'a>>,
}

/// The description has the number in digits.
const _: () = assert!(MAX_MIRRORED == 1000);

/// One step: `{"remove": {"path": "/a"}}`.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = MirrorStep)]
pub enum StepBody<'a> {
    /// Makes the znode equal to this; its parent exists.
    #[serde(borrow)]
    Put(Box<PutBody<'a>>),
    /// Deletes the znode, which has no children.
    #[serde(borrow)]
    Remove(RemoveBody<'a>),
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = MirroredZnode)]
pub struct PutBody<'a> {
    #[serde(borrow)]
    #[schema(value_type = words::ZnodePath)]
    path: Cow<'a, str>,
    #[serde(borrow, default)]
    #[schema(value_type = Option<words::Data>)]
    data: TextData<'a>,
    #[serde(borrow)]
    #[schema(value_type = Option<words::DataBase64>)]
    data_base64: Option<Cow<'a, str>>,
    /// Access control list. Default: all rights for every caller.
    #[serde(borrow)]
    acl: Option<Vec<EntryBody<'a>>>,
    #[serde(default)]
    kind: KindWord,
    /// Time to live, for the kinds that have one.
    #[schema(value_type = Option<words::ZnodeTtlMs>)]
    ttl_ms: Option<u64>,
    /// Number of times the data was replaced.
    #[serde(default)]
    version: i32,
    /// Number of times the list was replaced.
    #[serde(default)]
    aversion: i32,
    #[serde(borrow)]
    #[schema(value_type = words::Time)]
    created_at: Cow<'a, str>,
    #[serde(borrow)]
    #[schema(value_type = words::Time)]
    modified_at: Cow<'a, str>,
    /// Number of children ever created below it: the number of the next sequential one.
    #[serde(default)]
    creations: u64,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RemovedZnode)]
pub struct RemoveBody<'a> {
    #[serde(borrow)]
    #[schema(value_type = words::ZnodePath)]
    path: Cow<'a, str>,
}

/// Event that removes a znode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = MirroredKind)]
pub enum KindWord {
    /// A deletion.
    #[default]
    Persistent,
    /// The sweep after its last child was removed.
    Container,
    /// The sweep after a time without a change of its data.
    Ttl,
    /// The end of its session. Mirrored znodes cannot have this kind.
    Ephemeral,
}

impl MirrorBody<'_> {
    /// Converts the steps for the proposal.
    pub fn steps(self, paths: &PathBounds) -> Result<Vec<MirrorStep>, Problem> {
        if self.steps.len() > MAX_MIRRORED {
            let what = format!("there are at most {MAX_MIRRORED} steps");
            return Err(Problem::bad_request(what));
        }
        self.steps.into_iter().map(|step| step.step(paths)).collect()
    }
}

impl StepBody<'_> {
    fn step(self, paths: &PathBounds) -> Result<MirrorStep, Problem> {
        match self {
            Self::Put(body) => {
                let znode = body.mirrored()?;
                paths.check(&znode.path)?;
                Ok(MirrorStep::Put(znode))
            }
            Self::Remove(RemoveBody { path }) => Ok(MirrorStep::Remove {
                path: ZPath::parse(&path)?,
            }),
        }
    }
}

impl PutBody<'_> {
    fn mirrored(self) -> Result<Mirrored, Problem> {
        let kind = match (self.kind, self.ttl_ms) {
            (KindWord::Persistent, None) => MirroredKind::Persistent,
            (KindWord::Container, None) => MirroredKind::Container,
            (KindWord::Ttl, Some(ttl_ms)) => MirroredKind::Ttl(ttl_ms),
            (KindWord::Ephemeral, _) => {
                return Err(Problem::bad_request("ephemeral znodes cannot be mirrored"));
            }
            (_, _) => {
                return Err(Problem::bad_request(
                    "ttl_ms is required by the kind ttl and invalid for others",
                ));
            }
        };
        Ok(Mirrored {
            path: ZPath::parse(&self.path)?,
            data: data(self.data, self.data_base64)?.unwrap_or_default(),
            acl: self.acl.map_or_else(|| Ok(Acl::open()), acl)?,
            kind,
            version: self.version,
            aversion: self.aversion,
            ctime_ms: time_ms("created_at", &self.created_at)?,
            mtime_ms: time_ms("modified_at", &self.modified_at)?,
            creations: self.creations,
        })
    }
}

fn time_ms(field: &str, text: &str) -> Result<u64, Problem> {
    let time =
        humantime::parse_rfc3339(text).map_err(|error| Problem::bad_request(format!("{field}: {error}")))?;
    let since = time.duration_since(UNIX_EPOCH);
    since
        .map(|since| since.as_millis() as u64)
        .map_err(|_| Problem::bad_request(format!("{field} is before 1970")))
}

/// Answer of `POST /v1/mirror`.
#[derive(Serialize, ToSchema)]
pub struct MirroredAnswer {
    #[schema(value_type = words::Zxid)]
    pub zxid: u64,
    /// Number of applied steps, which is the number of all steps.
    pub steps: u32,
}

/// Answer of `GET /v1/mirror`.
#[derive(Serialize, ToSchema)]
pub struct MirrorPageAnswer<'a> {
    /// Position of the log at which the page was read.
    #[schema(value_type = words::Zxid)]
    zxid: u64,
    /// Znodes: parents before their children, siblings by name.
    znodes: Vec<ShownAnswer<'a>>,
    /// Value of `cursor` for the next page; `null` on the last one.
    #[schema(required, value_type = Option<words::ZnodePath>)]
    next_cursor: Option<&'a str>,
    /// Limits of a znode in this cluster. Larger znodes are rejected.
    limits: LimitsAnswer,
}

/// Limits of the size of a znode, and of its number of children.
#[derive(Serialize, ToSchema)]
#[schema(as = ZnodeLimits)]
pub struct LimitsAnswer {
    /// Maximum bytes of data.
    data_bytes: u32,
    /// Maximum number of children.
    children: u32,
    /// Maximum bytes of a path.
    path_bytes: usize,
    /// Maximum number of parts of a path.
    path_depth: usize,
    /// Maximum bytes of an access control list, summed over its schemes and ids.
    acl_bytes: usize,
}

impl LimitsAnswer {
    fn new(limits: Limits, paths: PathBounds) -> Self {
        Self {
            data_bytes: limits.data_bytes,
            children: limits.children,
            path_bytes: paths.bytes,
            path_depth: paths.depth,
            acl_bytes: MAX_ACL_BYTES,
        }
    }
}

/// A znode with all properties that are compared.
#[derive(Serialize, ToSchema)]
#[schema(as = ShownZnode)]
pub struct ShownAnswer<'a> {
    #[schema(value_type = words::ZnodePath)]
    path: &'a str,
    kind: KindWord,
    /// Time to live, for the kinds that have one.
    #[schema(value_type = Option<words::ZnodeTtlMs>, required)]
    ttl_ms: Option<u64>,
    /// Length of the data in bytes.
    data_length: u32,
    /// SHA-256 of the data, in hexadecimal digits. Null data has the hash of no bytes.
    data_sha256: String,
    /// `true` if the data is null.
    data_is_null: bool,
    acl: Vec<EntryAnswer>,
    version: i32,
    aversion: i32,
    #[schema(value_type = words::Time)]
    created_at: Timestamp,
    #[schema(value_type = words::Time)]
    modified_at: Timestamp,
    /// Number of children ever created below it.
    creations: u64,
}

impl<'a> MirrorPageAnswer<'a> {
    pub fn new(zxid: Zxid, limits: Limits, paths: PathBounds, page: &'a [MirroredZnode], more: bool) -> Self {
        Self {
            zxid: zxid.0,
            limits: LimitsAnswer::new(limits, paths),
            znodes: page.iter().map(ShownAnswer::from).collect(),
            next_cursor: page.last().filter(|_| more).map(|last| last.path.as_str()),
        }
    }
}

impl<'a> From<&'a MirroredZnode> for ShownAnswer<'a> {
    fn from(node: &'a MirroredZnode) -> Self {
        let (stat, owner) = (&node.stat, node.stat.ephemeral_owner);
        let kind = match (owner.session(), owner.ttl_ms()) {
            (Some(_), _) => KindWord::Ephemeral,
            (None, Some(_)) => KindWord::Ttl,
            (None, None) if owner.is_container() => KindWord::Container,
            (None, None) => KindWord::Persistent,
        };
        Self {
            path: node.path.as_str(),
            kind,
            ttl_ms: owner.ttl_ms(),
            data_length: stat.data_length,
            data_sha256: format!("{:x}", Sha256::digest(node.data.as_bytes())),
            data_is_null: node.data.is_null(),
            acl: shown(&node.acl),
            version: stat.version,
            aversion: stat.aversion,
            created_at: Timestamp(stat.ctime_ms),
            modified_at: Timestamp(stat.mtime_ms),
            creations: node.creations,
        }
    }
}
