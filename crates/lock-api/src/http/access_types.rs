//! Documents of access control: grants, roles, tokens, certificates.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use znode_store::{
    LockName, PathGrant, Principal, RequestId, Right, Rights, RoleName, RoleView, TokenView, ZPath,
};

use super::extract::Timestamp;
use super::openapi::words;
use super::problem::Problem;

/// Rights at a path and all paths below it, as requests contain them.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantBody<'a> {
    /// Path to which the grant applies. Either this, or `locks`.
    #[serde(borrow)]
    #[schema(value_type = Option<words::ZnodePath>)]
    path: Option<Cow<'a, str>>,
    /// The lock of this name, and all locks whose names begin with it and a slash; every lock if this is empty.
    #[serde(borrow)]
    #[schema(value_type = Option<String>)]
    locks: Option<Cow<'a, str>>,
    /// Rights, at least one.
    #[serde(borrow)]
    #[schema(value_type = Vec<words::RightWord>)]
    rights: Vec<Cow<'a, str>>,
}

impl GrantBody<'_> {
    fn check(&self) -> Result<PathGrant, Problem> {
        let rights = self.rights.iter().map(|word| word.parse::<Right>());
        let rights: Rights = rights
            .collect::<Result<_, _>>()
            .map_err(|error| Problem::bad_request(error.to_string()))?;
        match (&self.path, &self.locks) {
            (Some(path), None) => Ok(PathGrant {
                prefix: ZPath::parse(path)?,
                rights,
            }),
            (None, Some(locks)) if locks.is_empty() => Ok(PathGrant::of_all_locks(rights)),
            (None, Some(locks)) => {
                let lock = LockName::parse(locks).map_err(Problem::bad_lock_name)?;
                Ok(PathGrant::of_locks(&lock, rights))
            }
            _ => Err(Problem::bad_request("a grant has either path or locks")),
        }
    }
}

/// Parses a list of grants.
pub fn grants(bodies: &[GrantBody<'_>]) -> Result<Vec<PathGrant>, Problem> {
    bodies.iter().map(GrantBody::check).collect()
}

/// Parses the name of a role.
pub fn role_name(text: &str) -> Result<RoleName, Problem> {
    RoleName::parse(text).map_err(|error| Problem::bad_request(error.to_string()))
}

/// Body of `POST /v1/access/secure`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecureBody<'a> {
    /// Description of the first administrator's token, for people.
    #[serde(borrow, default)]
    #[schema(value_type = words::Description)]
    pub description: Cow<'a, str>,
    /// Grants of every caller from then on, authenticated or not. Absent: unauthenticated callers are
    /// rejected.
    #[serde(borrow)]
    pub anonymous: Option<Vec<GrantBody<'a>>>,
}

/// Body of `POST /v1/tokens`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenBody<'a> {
    /// Role of the token.
    #[serde(borrow)]
    #[schema(value_type = words::RoleName)]
    pub role: Cow<'a, str>,
    #[serde(borrow, default)]
    #[schema(value_type = words::Description)]
    pub description: Cow<'a, str>,
    /// Lifetime of the token. Absent: it does not expire.
    #[schema(value_type = Option<words::ExpiresInMs>)]
    pub expires_in_ms: Option<u64>,
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
}

/// A created token: the only answer that contains its text.
#[derive(Serialize, ToSchema)]
pub struct MadeTokenAnswer<'a> {
    #[schema(value_type = words::TokenId)]
    pub id: String,
    /// The token itself. It is not shown again.
    #[schema(value_type = words::TokenText)]
    pub token: &'a str,
    #[schema(value_type = words::RoleName)]
    pub role: &'a str,
    /// Time at which the token expires; `null`: it does not expire.
    #[schema(value_type = Option<words::Time>, required)]
    pub expires_at: Option<Timestamp>,
}

/// Public part of a token.
#[derive(Serialize, ToSchema)]
pub struct TokenAnswer<'a> {
    #[schema(value_type = words::TokenId)]
    id: String,
    #[schema(value_type = words::RoleName)]
    role: &'a str,
    #[schema(value_type = words::Description)]
    description: &'a str,
    #[schema(value_type = words::Time)]
    created_at: Timestamp,
    /// Time at which the token expires; `null`: it does not expire.
    #[schema(value_type = Option<words::Time>, required)]
    expires_at: Option<Timestamp>,
}

impl<'a> From<&'a TokenView> for TokenAnswer<'a> {
    fn from(token: &'a TokenView) -> Self {
        Self {
            id: token.id.to_string(),
            role: token.role.as_str(),
            description: &token.description,
            created_at: Timestamp(token.created_at_ms),
            expires_at: token.expires_at_ms.map(Timestamp),
        }
    }
}

#[derive(Serialize, ToSchema)]
pub struct TokensAnswer<'a> {
    /// Tokens, by id.
    pub tokens: Vec<TokenAnswer<'a>>,
    /// Value of `cursor` for the next page; `null` on the last one.
    #[schema(value_type = Option<words::TokenId>, required)]
    pub next_cursor: Option<String>,
}

/// Body of `PUT /v1/roles/{role}`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RoleBody<'a> {
    /// All grants of the role from now on.
    #[serde(borrow)]
    pub grants: Vec<GrantBody<'a>>,
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
}

/// Rights at a path and all paths below it, as answers contain them.
#[derive(Serialize, ToSchema)]
#[schema(as = PathGrantAnswer)]
pub struct GrantShown {
    #[schema(value_type = words::ZnodePath)]
    path: String,
    #[schema(value_type = Vec<words::RightWord>)]
    rights: Vec<&'static str>,
}

impl From<&PathGrant> for GrantShown {
    fn from(grant: &PathGrant) -> Self {
        Self {
            path: grant.prefix.to_string(),
            rights: grant.rights.iter().map(Right::name).collect(),
        }
    }
}

#[derive(Serialize, ToSchema)]
pub struct RoleAnswer {
    #[schema(value_type = words::RoleName)]
    role: String,
    grants: Vec<GrantShown>,
}

impl From<&RoleView> for RoleAnswer {
    fn from(view: &RoleView) -> Self {
        Self {
            role: view.role.to_string(),
            grants: view.grants.iter().map(GrantShown::from).collect(),
        }
    }
}

#[derive(Serialize, ToSchema)]
pub struct RolesAnswer {
    /// Roles, by name, including `admin`, which cannot be changed.
    pub roles: Vec<RoleAnswer>,
    /// Value of `cursor` for the next page; `null` on the last one.
    #[schema(value_type = Option<words::RoleName>, required)]
    pub next_cursor: Option<String>,
}

/// Body of `PUT /v1/certificates`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CertificateBody<'a> {
    #[serde(borrow)]
    #[schema(value_type = words::Subject)]
    pub subject: Cow<'a, str>,
    #[serde(borrow)]
    #[schema(value_type = words::RoleName)]
    pub role: Cow<'a, str>,
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
}

#[derive(Serialize, ToSchema)]
pub struct CertificateAnswer<'a> {
    #[schema(value_type = words::Subject)]
    pub subject: &'a str,
    #[schema(value_type = words::RoleName)]
    pub role: &'a str,
}

#[derive(Serialize, ToSchema)]
pub struct CertificatesAnswer<'a> {
    /// Certificates, by subject.
    pub certificates: Vec<CertificateAnswer<'a>>,
    /// Value of `cursor` for the next page; `null` on the last one.
    #[schema(value_type = Option<words::Subject>, required)]
    pub next_cursor: Option<&'a str>,
}

/// State of access control, and the caller's identity.
#[derive(Serialize, ToSchema)]
pub struct AccessAnswer {
    /// `true` if the cluster is secured.
    pub secured: bool,
    pub you: CallerAnswer,
}

/// Identity of a caller.
#[derive(Serialize, ToSchema)]
pub struct CallerAnswer {
    /// Kind of the proven identity.
    #[schema(value_type = words::CallerKind)]
    kind: &'static str,
    /// Id of the caller's token, or subject of its certificate.
    #[schema(required)]
    name: Option<String>,
    /// Role of the token or the certificate; `null`: none. The caller also has the grants of `anonymous`.
    #[schema(value_type = Option<words::RoleName>, required)]
    role: Option<String>,
    /// All grants of the caller, of its role and of `anonymous`; `null`: everything.
    #[schema(required)]
    grants: Option<Vec<GrantShown>>,
}

impl CallerAnswer {
    pub fn new(principal: &Principal, role: Option<RoleName>, grants: Option<&[PathGrant]>) -> Self {
        let (kind, name) = match principal {
            Principal::Nobody => ("nobody", None),
            Principal::Token(id) => ("token", Some(id.to_string())),
            Principal::Certificate(subject) => ("certificate", Some(subject.to_string())),
            Principal::Operator => ("operator", None),
        };
        Self {
            kind,
            name,
            role: role.map(String::from),
            grants: grants.map(|grants| grants.iter().map(GrantShown::from).collect()),
        }
    }
}
