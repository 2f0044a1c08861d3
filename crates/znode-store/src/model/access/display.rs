//! Texts of changes of the access policies, for scripts and logs. Neither secrets nor their hashes are shown.

use core::fmt::{self, Display, Formatter};

use crate::model::access::command::{AccessChange, AccessCommand, NewToken};
use crate::model::access::role::{PathGrant, RoleName};
use crate::model::access::token::TokenId;

/// Grants with a comma between them.
struct Grants<'a>(&'a [PathGrant]);

impl Display for Grants<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "nothing" } else { "" })?;
        for (at, grant) in self.0.iter().enumerate() {
            write!(f, "{}{grant}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// Token that was created.
struct Made<'a>(&'a TokenId, &'a RoleName, &'a str, Option<u64>);

impl Display for Made<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(id, role, description, expires_at_ms) = self;
        write!(f, "token {id} for role {role}")?;
        if !description.is_empty() {
            write!(f, " {description:?}")?;
        }
        match expires_at_ms {
            Some(end) => write!(f, " until {end}"),
            None => Ok(()),
        }
    }
}

impl Display for AccessCommand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secure {
                token,
                hash: _,
                description,
                anonymous,
            } => {
                let made = Made(token, &RoleName::admin(), description, None);
                write!(f, "secure the cluster, with {made}")?;
                match anonymous {
                    Some(grants) => write!(f, "; everybody may {}", Grants(grants)),
                    None => Ok(()),
                }
            }
            Self::CreateToken(NewToken {
                id,
                hash: _,
                role,
                description,
                expires_at_ms,
            }) => write!(f, "make {}", Made(id, role, description, *expires_at_ms)),
            Self::RevokeToken(id) => write!(f, "revoke token {id}"),
            Self::SetRole { role, grants } => write!(f, "let role {role} {}", Grants(grants)),
            Self::DeleteRole(role) => write!(f, "delete role {role}"),
            Self::MapCertificate { certificate, role } => {
                write!(f, "give certificate {certificate:?} the role {role}")
            }
            Self::UnmapCertificate(certificate) => {
                write!(f, "take the role of certificate {certificate:?} away")
            }
            Self::EndWaitsWithRights => f.write_str("let waits end with the right to lock"),
        }
    }
}

impl Display for AccessChange {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}, by {}", self.command, self.by)
    }
}
