//! Commands that change the access policies.

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::model::access::principal::Principal;
use crate::model::access::role::{PathGrant, RoleName};
use crate::model::access::token::{TokenHash, TokenId};

/// Change of the access policies. All but `Secure` need the right to administer at `/`, and a secured state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessCommand {
    /// Secures the state: from here on the access policies apply. The command brings the first administrator's token, because otherwise
    /// nobody could do anything any more. Only the operator may send it: in an open state every other caller could, too.
    Secure {
        /// The token's name.
        token: TokenId,
        /// The hash of its secret.
        hash: TokenHash,
        /// For people.
        description: Arc<str>,
        /// Grants of the role `anonymous`; `None`: there is no such role. With all rights no caller is refused yet: for a cluster whose
        /// clients get their tokens one after the other.
        anonymous: Option<Vec<PathGrant>>,
    },
    /// Makes a token.
    CreateToken(NewToken),
    /// Revokes a token.
    RevokeToken(TokenId),
    /// Makes a role, or replaces what it allows.
    SetRole {
        /// The role.
        role: RoleName,
        /// The grants.
        grants: Vec<PathGrant>,
    },
    /// Deletes a role that is not in use.
    DeleteRole(RoleName),
    /// Gives a role to callers that show a certificate with this subject (or alternative name, as the front end formats them).
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
    /// The role.
    pub role: RoleName,
    /// For people.
    pub description: Arc<str>,
    /// From when on it counts no more, in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
}

/// Change of the access policies and its author, for audits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessChange {
    /// The author.
    pub by: Principal,
    /// The command, which was executed.
    pub command: AccessCommand,
}
