//! What changes who may do what.

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::model::access::principal::Principal;
use crate::model::access::role::{PathGrant, RoleName};
use crate::model::access::token::{TokenHash, TokenId};

/// A change of who may do what. All but `Secure` need the right to administer at `/`, and a secured state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessCommand {
    /// From now on it counts who may do what. The first administrator's token comes with it, for else nobody could do
    /// anything any more. Only the operator may ask for it: in an open state everybody else could, too.
    Secure {
        /// The token's name.
        token: TokenId,
        /// The hash of its secret.
        hash: TokenHash,
        /// For people.
        description: Arc<str>,
        /// What the role `anonymous` allows; `None`: there is no such role. With all rights nobody is stopped yet: for a
        /// cluster whose clients get their tokens one after the other.
        anonymous: Option<Vec<PathGrant>>,
    },
    /// Makes a token.
    CreateToken(NewToken),
    /// Unmakes a token.
    RevokeToken(TokenId),
    /// Makes a role, or replaces what it allows.
    SetRole {
        /// Which.
        role: RoleName,
        /// What it allows.
        grants: Vec<PathGrant>,
    },
    /// Unmakes a role that nobody has.
    DeleteRole(RoleName),
    /// Whoever shows a certificate with this subject (or alternative name, as the front end says them) has this role.
    MapCertificate {
        /// The subject.
        certificate: Arc<str>,
        /// The role.
        role: RoleName,
    },
    /// It has no role any more.
    UnmapCertificate(Arc<str>),
    /// Sets the rule that a waiting contender is granted its lock only while the owner of its session has the right `lock` there. Only the
    /// cluster itself proposes it, once all members know the rule.
    EndWaitsWithRights,
}

/// A token that is to be made. The proposing node has drawn its id and its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewToken {
    /// Its name; refused if it is taken.
    pub id: TokenId,
    /// The hash of its secret.
    pub hash: TokenHash,
    /// What it stands for.
    pub role: RoleName,
    /// For people.
    pub description: Arc<str>,
    /// From when on it counts no more, in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
}

/// What has changed in who may do what, and who has changed it: for those who keep an account of that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessChange {
    /// Who.
    pub by: Principal,
    /// What was asked, and was done.
    pub command: AccessCommand,
}
