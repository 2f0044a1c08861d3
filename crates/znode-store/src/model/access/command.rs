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
    /// Secures the state: from here on the access policies apply. The command contains the first administrator's token, because
    /// otherwise every later request would be refused. Only the operator may send it, because in an open state every other caller could, too.
    Secure {
        /// Id of the token.
        token: TokenId,
        /// Hash of its secret.
        hash: TokenHash,
        /// Description, for people to read.
        description: Arc<str>,
        /// Grants of the role `anonymous`, or `None` for no such role. If it has all rights, no caller is refused yet. This is for a cluster whose
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
    /// Takes the role from callers that show this certificate.
    UnmapCertificate(Arc<str>),
    /// Sets the rule that a waiting contender is granted its lock only while the owner of its session has the right `lock` there. Only the
    /// cluster itself proposes it, once all members know the rule.
    EndWaitsWithRights,
}

/// Token to create. The proposing node has made its random id and secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewToken {
    /// Id; the command is refused if it is in use.
    pub id: TokenId,
    /// Hash of its secret.
    pub hash: TokenHash,
    /// The role.
    pub role: RoleName,
    /// Description, for people to read.
    pub description: Arc<str>,
    /// Time of expiry, in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
}

/// Change of the access policies and its author, for audits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessChange {
    /// The author.
    pub by: Principal,
    /// Command that was executed.
    pub command: AccessCommand,
}
