//! Documents of the znode routes: data as text or base64, stats, changes.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;
use znode_store::{Acl, CreateMode, CreatePath, Data, Op, Page, RequestId, Stat, ZPath};

use super::acl_types::{EntryAnswer, EntryBody, acl};
use super::extract::Timestamp;
use super::openapi::words;
use super::problem::Problem;

/// Version that matches every znode, as in ZooKeeper's calls.
pub const ANY_VERSION: i32 = -1;

/// Returns the default version: any.
pub fn any_version() -> i32 {
    ANY_VERSION
}

/// Kind of a znode in documents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ZnodeMode)]
pub enum ModeWord {
    /// Lives until it is deleted.
    #[default]
    Persistent,
    /// Ends with its session.
    Ephemeral,
    /// Persistent, with a sequence number after its name.
    PersistentSequential,
    /// Ephemeral, with a sequence number after its name.
    EphemeralSequential,
    /// Swept after its last child was deleted.
    Container,
    /// Swept when it has no children and was not written for its `ttl_ms`.
    Ttl,
    /// The same, with a sequence number after its name.
    TtlSequential,
}

impl ModeWord {
    /// Returns the kind, with the time to live from the field beside the word.
    fn mode(self, ttl_ms: Option<u64>) -> Result<CreateMode, Problem> {
        match (self, ttl_ms) {
            (Self::Ttl, Some(ttl_ms)) => Ok(CreateMode::Ttl { ttl_ms }),
            (Self::TtlSequential, Some(ttl_ms)) => Ok(CreateMode::TtlSequential { ttl_ms }),
            (Self::Ttl | Self::TtlSequential, None) => Err(Problem::bad_request(
                "the modes ttl and ttl_sequential need a ttl_ms",
            )),
            (_, Some(_)) => Err(Problem::bad_request(
                "ttl_ms belongs to the modes ttl and ttl_sequential",
            )),
            (Self::Persistent, None) => Ok(CreateMode::Persistent),
            (Self::Ephemeral, None) => Ok(CreateMode::Ephemeral),
            (Self::PersistentSequential, None) => Ok(CreateMode::PersistentSequential),
            (Self::EphemeralSequential, None) => Ok(CreateMode::EphemeralSequential),
            (Self::Container, None) => Ok(CreateMode::Container),
        }
    }
}

/// Field `data` of a request.
#[derive(Debug, Default)]
pub enum TextData<'a> {
    /// The field is absent.
    #[default]
    Absent,
    /// Null data, which differs from empty data.
    Null,
    /// Data as text.
    Text(Cow<'a, str>),
}

impl<'de: 'a, 'a> Deserialize<'de> for TextData<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text: Option<Cow<'a, str>> = Option::deserialize(deserializer)?;
        Ok(text.map_or(Self::Null, Self::Text))
    }
}

/// Returns the data of a request; `None` if it has none. A null `data_base64` counts as absent.
pub fn data(text: TextData<'_>, base64: Option<Cow<'_, str>>) -> Result<Option<Data>, Problem> {
    match (text, base64) {
        (TextData::Text(_), Some(_)) => Err(Problem::bad_request("data and data_base64 exclude each other")),
        (TextData::Text(text), None) => Ok(Some(Data::from(&*text))),
        (TextData::Absent | TextData::Null, Some(base64)) => match BASE64.decode(base64.as_bytes()) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(error) => Err(Problem::bad_request(format!("data_base64: {error}"))),
        },
        (TextData::Null, None) => Ok(Some(Data::null())),
        (TextData::Absent, None) => Ok(None),
    }
}

/// Body of `POST /v1/znodes/{path}`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateBody<'a> {
    #[serde(borrow, default)]
    #[schema(value_type = Option<words::Data>)]
    data: TextData<'a>,
    #[serde(borrow)]
    #[schema(value_type = Option<words::DataBase64>)]
    data_base64: Option<Cow<'a, str>>,
    #[serde(default)]
    mode: ModeWord,
    /// Time to live, for the kinds that have one.
    #[schema(value_type = Option<words::ZnodeTtlMs>)]
    ttl_ms: Option<u64>,
    /// Access control list. Default: all rights for every caller.
    #[serde(borrow)]
    acl: Option<Vec<EntryBody<'a>>>,
    /// Create missing parents.
    #[serde(default)]
    parents: bool,
    /// Session that owns an ephemeral znode.
    #[serde(borrow)]
    #[schema(value_type = Option<words::SessionId>)]
    pub session: Option<Cow<'a, str>>,
    /// Id of the request, for repetitions.
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
}

impl CreateBody<'_> {
    /// Returns the requested creation at `path`.
    pub fn op(self, path: &str) -> Result<Op, Problem> {
        let creation = Creation {
            data: self.data,
            data_base64: self.data_base64,
            mode: self.mode,
            ttl_ms: self.ttl_ms,
            acl: self.acl,
            parents: self.parents,
        };
        creation.op(path)
    }
}

/// Fields of a creation.
pub struct Creation<'a> {
    /// Data as text.
    pub data: TextData<'a>,
    /// Data as base64.
    pub data_base64: Option<Cow<'a, str>>,
    /// Kind of the znode.
    pub mode: ModeWord,
    /// Time to live, if its kind has one.
    pub ttl_ms: Option<u64>,
    /// Access control list. Default: all rights for every caller.
    pub acl: Option<Vec<EntryBody<'a>>>,
    /// Set if missing parents are created.
    pub parents: bool,
}

impl Creation<'_> {
    /// Returns the creation at `path`.
    pub fn op(self, path: &str) -> Result<Op, Problem> {
        let mode = self.mode.mode(self.ttl_ms)?;
        Ok(Op::Create {
            path: CreatePath::parse(path, mode.is_sequential())?,
            data: data(self.data, self.data_base64)?.unwrap_or_default(),
            acl: self.acl.map_or_else(|| Ok(Acl::open()), acl)?,
            mode,
            parents: self.parents,
        })
    }
}

/// Body of `PUT /v1/znodes/{path}`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetBody<'a> {
    #[serde(borrow, default)]
    #[schema(value_type = Option<words::Data>)]
    data: TextData<'a>,
    #[serde(borrow)]
    #[schema(value_type = Option<words::DataBase64>)]
    data_base64: Option<Cow<'a, str>>,
    /// Session of the request: the scope of the request id.
    #[serde(borrow)]
    #[schema(value_type = Option<words::SessionId>)]
    pub session: Option<Cow<'a, str>>,
    /// Id of the request, for repetitions.
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
}

impl SetBody<'_> {
    /// Returns the requested replacement at `path`.
    pub fn op(self, path: &str, version: i32) -> Result<Op, Problem> {
        set_op(path, self.data, self.data_base64, version)
    }
}

/// Builds a replacement of data. Unlike a creation it requires data: no caller means to empty a znode by omitting the
/// field.
pub fn set_op(
    path: &str,
    text: TextData<'_>,
    base64: Option<Cow<'_, str>>,
    version: i32,
) -> Result<Op, Problem> {
    let data =
        data(text, base64)?.ok_or_else(|| Problem::bad_request("one of data and data_base64 is required"))?;
    Ok(Op::Set {
        path: ZPath::parse(path)?,
        data,
        version,
    })
}

/// Metadata (`Stat`) of a znode. ZooKeeper's `ephemeralOwner` is three fields here.
#[derive(Debug, Serialize, ToSchema)]
pub struct StatAnswer {
    #[schema(value_type = words::Zxid)]
    czxid: u64,
    #[schema(value_type = words::Zxid)]
    mzxid: u64,
    #[schema(value_type = words::Zxid)]
    pzxid: u64,
    #[schema(value_type = words::Time)]
    created_at: Timestamp,
    #[schema(value_type = words::Time)]
    modified_at: Timestamp,
    #[schema(value_type = words::ChangeCount)]
    version: i32,
    #[schema(value_type = words::ChangeCount)]
    cversion: i32,
    #[schema(value_type = words::ChangeCount)]
    aversion: i32,
    #[schema(value_type = Option<words::SessionId>, required)]
    ephemeral_owner: Option<String>,
    /// `true` if the znode is swept after its last child was deleted.
    container: bool,
    /// Time to live, for the kinds that have one.
    #[schema(value_type = Option<words::ZnodeTtlMs>, required)]
    ttl_ms: Option<u64>,
    /// Length of the data in bytes.
    data_length: u32,
    /// Number of children.
    num_children: u32,
}

impl From<&Stat> for StatAnswer {
    fn from(stat: &Stat) -> Self {
        let owner = stat.ephemeral_owner;
        Self {
            czxid: stat.czxid.0,
            mzxid: stat.mzxid.0,
            pzxid: stat.pzxid.0,
            created_at: Timestamp(stat.ctime_ms),
            modified_at: Timestamp(stat.mtime_ms),
            version: stat.version,
            cversion: stat.cversion,
            aversion: stat.aversion,
            ephemeral_owner: owner.session().map(|session| session.to_string()),
            container: owner.is_container(),
            ttl_ms: owner.ttl_ms(),
            data_length: stat.data_length,
            num_children: stat.num_children,
        }
    }
}

/// Answer of a creation and of a replacement.
#[derive(Serialize, ToSchema)]
pub struct ChangedAnswer<'a> {
    /// Path of the znode, including its sequence number.
    #[schema(value_type = words::ZnodePath)]
    pub path: &'a str,
    /// Metadata right after the change.
    pub stat: StatAnswer,
}

/// Answer of `GET /v1/znodes/{path}`.
#[derive(Serialize, ToSchema)]
pub struct ZnodeAnswer<'a> {
    #[schema(value_type = words::ZnodePath)]
    path: &'a str,
    /// Data, if it is text or null.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::Data>)]
    data: Option<Option<&'a str>>,
    /// Data, if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::DataBase64)]
    data_base64: Option<String>,
    stat: StatAnswer,
    /// Number of znodes below it, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64)]
    pub descendants: Option<u64>,
    /// Access control list, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<EntryAnswer>)]
    pub acl: Option<Vec<EntryAnswer>>,
    /// Page of children, if requested.
    #[serde(flatten)]
    #[schema(ignore)]
    pub children: Option<ChildrenAnswer<'a>>,
}

impl<'a> ZnodeAnswer<'a> {
    /// Describes a znode with its data and metadata.
    pub fn new(path: &'a ZPath, data: &'a Data, stat: &Stat) -> Self {
        let text = data.non_null().map(std::str::from_utf8).transpose().ok();
        Self {
            path: path.as_str(),
            data: text,
            data_base64: text.is_none().then(|| BASE64.encode(data.as_bytes())),
            stat: stat.into(),
            descendants: None,
            acl: None,
            children: None,
        }
    }
}

/// A page of children.
#[derive(Serialize, ToSchema)]
pub struct ChildrenAnswer<'a> {
    /// Children, by name.
    pub children: Vec<ChildAnswer<'a>>,
    /// Value of `cursor` for the next page; `null` on the last one.
    #[schema(required)]
    pub next_cursor: Option<&'a str>,
}

impl<'a> From<&'a Page> for ChildrenAnswer<'a> {
    fn from(page: &'a Page) -> Self {
        let last = page.children.last().filter(|_| page.more);
        let children = page.children.iter().map(|(name, stat)| ChildAnswer {
            name,
            stat: stat.into(),
        });
        Self {
            children: children.collect(),
            next_cursor: last.map(|(name, _)| &**name),
        }
    }
}

/// One child.
#[derive(Serialize, ToSchema)]
pub struct ChildAnswer<'a> {
    /// Name below the parent.
    pub name: &'a str,
    /// Metadata of the child.
    pub stat: StatAnswer,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::extract::parse;
    use crate::http::problem::Code;

    fn create(path: &str, body: &str) -> Result<Op, Code> {
        let read = || parse::<CreateBody<'_>>(body.as_bytes())?.op(path);
        read().map_err(|problem: Problem| problem.code())
    }

    fn created(path: &str, body: &str) -> (String, Data, CreateMode, bool) {
        match create(path, body) {
            Ok(Op::Create {
                path,
                data,
                acl: _,
                mode,
                parents,
            }) => (path.to_string(), data, mode, parents),
            other => panic!("{body}: {other:?}"),
        }
    }

    #[test]
    fn a_creation_is_read_with_its_defaults() {
        let (path, data, mode, parents) = created("/a", "");
        assert_eq!(
            (&*path, data.len(), mode, parents),
            ("/a", 0, CreateMode::Persistent, false)
        );
        let (_, data, ..) = created("/a", r#"{"data": "h\u00e9"}"#);
        assert_eq!(data.as_bytes(), "hé".as_bytes());
        for (body, null) in [
            (r#"{"data": null}"#, true),
            (r#"{"data": null, "data_base64": null}"#, true),
            (r#"{"data": null, "data_base64": ""}"#, false),
            (r#"{"data": ""}"#, false),
            ("{}", false),
        ] {
            let (_, data, ..) = created("/a", body);
            assert_eq!((data.is_null(), data.len()), (null, 0), "{body}");
        }
        let (_, data, ..) = created("/a", r#"{"data_base64": "AP8="}"#);
        assert_eq!(data.as_bytes(), [0, 255]);
        let (path, _, mode, parents) = created("/q/", r#"{"mode": "ephemeral_sequential", "parents": true}"#);
        assert_eq!(
            (&*path, mode, parents),
            ("/q/", CreateMode::EphemeralSequential, true)
        );
    }

    #[test]
    fn a_time_to_live_goes_with_the_modes_that_have_one() {
        let mode = |body| created("/a", body).2;
        assert_eq!(
            mode(r#"{"mode": "ttl", "ttl_ms": 5}"#),
            CreateMode::Ttl { ttl_ms: 5 }
        );
        assert_eq!(
            mode(r#"{"mode": "ttl_sequential", "ttl_ms": 5}"#),
            CreateMode::TtlSequential { ttl_ms: 5 }
        );
        assert_eq!(mode(r#"{"mode": "container"}"#), CreateMode::Container);
    }

    #[test]
    fn a_list_may_be_given_and_else_everybody_may_do_everything() {
        let acl = |body| match create("/a", body) {
            Ok(Op::Create { acl, .. }) => acl,
            other => panic!("{body}: {other:?}"),
        };
        assert!(acl("{}").is_open());
        assert!(acl(r#"{"acl": null}"#).is_open());
        assert_eq!(
            acl(r#"{"acl": []}"#),
            Acl::new(Vec::new()),
            "which the state refuses"
        );
        assert_eq!(
            acl(r#"{"acl": [{"perms": "r", "scheme": "world", "id": "anyone"}]}"#),
            Acl::read_only()
        );
        let wrong = r#"{"acl": [{"perms": "x", "scheme": "world", "id": "anyone"}]}"#;
        assert_eq!(create("/a", wrong), Err(Code::BadAcl));
    }

    #[test]
    fn a_creation_that_makes_no_sense_is_refused() {
        for body in [
            r#"{"data": 1}"#,
            r#"{"data": "a", "data_base64": "AA=="}"#,
            r#"{"data_base64": "not base64"}"#,
            r#"{"mode": "ttl"}"#,
            r#"{"mode": "ttl_sequential"}"#,
            r#"{"mode": "ttl", "ttl_ms": "5"}"#,
            r#"{"mode": "container", "ttl_ms": 5}"#,
            r#"{"ttl_ms": 5}"#,
            r#"["a"]"#,
        ] {
            assert_eq!(create("/a", body), Err(Code::BadRequest), "{body}");
        }
        for path in ["a", "/a/", "//a", "/a/../b", ""] {
            assert_eq!(create(path, "{}"), Err(Code::BadPath), "{path}");
        }
    }

    #[test]
    fn a_replacement_says_by_what() {
        let set = |body: &str| {
            let read = || parse::<SetBody<'_>>(body.as_bytes())?.op("/a", 3);
            read().map_err(|problem: Problem| problem.code())
        };
        let path = ZPath::parse("/a").unwrap();
        assert_eq!(
            set(r#"{"data": ""}"#),
            Ok(Op::Set {
                path,
                data: Data::empty(),
                version: 3
            })
        );
        assert!(matches!(set(r#"{"data": null}"#), Ok(Op::Set { data, .. }) if data.is_null()));
        assert_eq!(set("{}"), Err(Code::BadRequest));
        assert_eq!(set(r#"{"data_base64": null}"#), Err(Code::BadRequest));
    }
}
