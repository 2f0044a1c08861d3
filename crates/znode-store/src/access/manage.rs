//! Execution of changes of the access policies, which were authorized before.

use alloc::format;

use crate::access::table::{Access, MAX_CERTIFICATES, MAX_ROLES, MAX_TOKENS};
use crate::model::access::command::{AccessCommand, NewToken};
use crate::model::access::principal::{MAX_CERTIFICATE_BYTES, Principal};
use crate::model::access::role::{MAX_GRANTS_PER_ROLE, MAX_ROLE_BYTES, PathGrant, RoleName};
use crate::model::access::token::{MAX_DESCRIPTION_BYTES, Token};
use crate::model::refusal::{AccessRefusal, Limited, Refusal};
use crate::model::reply::{Outcome, Reply};

impl Access {
    /// Executes a command of the access policies.
    pub(crate) fn execute(&mut self, command: &AccessCommand, by: &Principal, now_ms: u64) -> Outcome {
        match command {
            // Only an operator secures the cluster, because in an open state other identities prove nothing.
            AccessCommand::Secure { .. } if self.secured => Err(AccessRefusal::AlreadySecured.into()),
            AccessCommand::Secure { .. } if *by != Principal::Operator => {
                Err(AccessRefusal::OperatorOnly.into())
            }
            AccessCommand::Secure {
                token,
                hash,
                description,
                anonymous,
            } => {
                check_description(description)?;
                if let Some(grants) = anonymous {
                    check_grants(grants)?;
                    self.roles.insert(RoleName::anonymous(), grants.clone());
                }
                self.secured = true;
                let token = Token {
                    id: *token,
                    hash: *hash,
                    role: RoleName::admin(),
                    description: description.clone(),
                    created_at_ms: now_ms,
                    expires_at_ms: None,
                };
                self.tokens.insert(token.id, token);
                Ok(Reply::Secured)
            }
            // In an open state every caller has all rights, and tokens made then would be valid later.
            _ if !self.secured => Err(AccessRefusal::NotSecured.into()),
            AccessCommand::CreateToken(new) => self.create_token(new, now_ms),
            AccessCommand::RevokeToken(id) => {
                let token = self.tokens.remove(id).ok_or(AccessRefusal::NoToken(*id))?;
                if token.role.is_admin() && !self.has_administrator() {
                    self.tokens.insert(*id, token);
                    return Err(AccessRefusal::LastAdministrator.into());
                }
                Ok(Reply::TokenRevoked)
            }
            AccessCommand::SetRole { role, .. } if role.is_admin() => Err(AccessRefusal::BuiltIn.into()),
            AccessCommand::SetRole { role, grants } => {
                check_grants(grants)?;
                if !self.roles.contains_key(role) {
                    room(self.roles.len(), MAX_ROLES, Limited::Roles)?;
                }
                self.roles.insert(role.clone(), grants.clone());
                Ok(Reply::PolicyChanged)
            }
            AccessCommand::DeleteRole(role) if role.is_admin() => Err(AccessRefusal::BuiltIn.into()),
            AccessCommand::DeleteRole(role) => {
                let mut had = self.tokens.values().map(|token| &token.role);
                if had.any(|had| had == role) || self.certificates.values().any(|had| had == role) {
                    return Err(AccessRefusal::RoleInUse(role.clone()).into());
                }
                match self.roles.remove(role) {
                    Some(_) => Ok(Reply::PolicyChanged),
                    None => Err(AccessRefusal::NoRole(role.clone()).into()),
                }
            }
            AccessCommand::MapCertificate { certificate, role } => {
                check_certificate(certificate)?;
                self.require_role(role)?;
                if !self.certificates.contains_key(certificate) {
                    room(self.certificates.len(), MAX_CERTIFICATES, Limited::Certificates)?;
                }
                let before = self.certificates.insert(certificate.clone(), role.clone());
                match before {
                    Some(before) if before.is_admin() && !self.has_administrator() => {
                        self.certificates.insert(certificate.clone(), before);
                        Err(AccessRefusal::LastAdministrator.into())
                    }
                    _ => Ok(Reply::PolicyChanged),
                }
            }
            AccessCommand::UnmapCertificate(certificate) => {
                let unknown = || AccessRefusal::NoCertificate(certificate.clone());
                let role = self.certificates.remove(certificate).ok_or_else(unknown)?;
                if role.is_admin() && !self.has_administrator() {
                    self.certificates.insert(certificate.clone(), role);
                    return Err(AccessRefusal::LastAdministrator.into());
                }
                Ok(Reply::PolicyChanged)
            }
            AccessCommand::EndWaitsWithRights => {
                self.waits_end_with_rights = true;
                Ok(Reply::PolicyChanged)
            }
        }
    }

    fn create_token(&mut self, new: &NewToken, now_ms: u64) -> Outcome {
        let NewToken {
            id,
            hash,
            role,
            description,
            expires_at_ms,
        } = new;
        check_description(description)?;
        self.require_role(role)?;
        if expires_at_ms.is_some_and(|end| end <= now_ms) {
            return Err(AccessRefusal::BadText("the token would have expired already".into()).into());
        }
        if self.tokens.contains_key(id) {
            return Err(AccessRefusal::TokenExists(*id).into());
        }
        room(self.tokens.len(), MAX_TOKENS, Limited::Tokens)?;
        let token = Token {
            id: *id,
            hash: *hash,
            role: role.clone(),
            description: description.clone(),
            created_at_ms: now_ms,
            expires_at_ms: *expires_at_ms,
        };
        self.tokens.insert(*id, token);
        Ok(Reply::TokenCreated(*id))
    }

    /// Returns whether a token or a certificate has the role `admin`. A token counts even if it expires later.
    fn has_administrator(&self) -> bool {
        let tokens = self.tokens.values().map(|token| &token.role);
        tokens
            .chain(self.certificates.values())
            .any(|role| role.is_admin())
    }

    /// Removes expired tokens. Until it runs, an expired token is refused like an unknown one.
    pub(crate) fn sweep(&mut self, now_ms: u64) {
        self.tokens.retain(|_, token| !token.is_expired(now_ms));
    }

    fn require_role(&self, role: &RoleName) -> Result<(), Refusal> {
        match role.is_admin() || self.roles.contains_key(role) {
            true => Ok(()),
            false => Err(AccessRefusal::NoRole(role.clone()).into()),
        }
    }
}

fn room(count: usize, limit: usize, what: Limited) -> Result<(), Refusal> {
    match count < limit {
        true => Ok(()),
        false => Err(Refusal::LimitReached {
            what,
            limit: limit as u32,
        }),
    }
}

pub(crate) fn check_description(text: &str) -> Result<(), Refusal> {
    check_length("a description", text, MAX_DESCRIPTION_BYTES)
}

pub(crate) fn check_certificate(text: &str) -> Result<(), Refusal> {
    if text.is_empty() {
        return Err(AccessRefusal::BadText("the subject of a certificate is empty".into()).into());
    }
    check_length("the subject of a certificate", text, MAX_CERTIFICATE_BYTES)
}

fn check_length(what: &str, text: &str, limit: usize) -> Result<(), Refusal> {
    match text.len() {
        bytes if bytes > limit => Err(bad(format!(
            "{bytes} bytes of {what} are more than the {limit} allowed"
        ))),
        _ => Ok(()),
    }
}

pub(crate) fn check_grants(grants: &[PathGrant]) -> Result<(), Refusal> {
    let bytes: usize = grants.iter().map(|grant| grant.prefix.as_str().len()).sum();
    if grants.len() > MAX_GRANTS_PER_ROLE {
        let count = grants.len();
        return Err(bad(format!(
            "{count} grants are more than the {MAX_GRANTS_PER_ROLE} of a role"
        )));
    }
    if bytes > MAX_ROLE_BYTES {
        return Err(bad(format!(
            "{bytes} bytes of paths are more than the {MAX_ROLE_BYTES} of a role"
        )));
    }
    match grants.iter().find(|grant| grant.rights.is_empty()) {
        Some(grant) => Err(bad(format!("the grant at {} grants nothing", grant.prefix))),
        None => Ok(()),
    }
}

fn bad(what: alloc::string::String) -> Refusal {
    AccessRefusal::BadText(what.into()).into()
}

/// Tests of the maximum sizes of the tables.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::access::right::{Right, Rights};
    use crate::model::access::token::{TokenHash, TokenId};
    use crate::model::path::ZPath;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    fn secured() -> Access {
        let mut access = Access::default();
        let secure = AccessCommand::Secure {
            token: TokenId([0; 16]),
            hash: TokenHash([0; 32]),
            description: "first".into(),
            anonymous: None,
        };
        assert_eq!(
            access.execute(&secure, &Principal::Operator, 0),
            Ok(Reply::Secured)
        );
        access
    }

    fn ask(access: &mut Access, command: AccessCommand) -> Outcome {
        access.execute(&command, &Principal::Operator, 0)
    }

    fn full(what: Limited, limit: usize) -> Outcome {
        Err(Refusal::LimitReached {
            what,
            limit: limit as u32,
        })
    }

    #[test]
    fn there_is_an_end_to_tokens_roles_and_certificates() {
        let mut access = secured();
        let token = |n: usize| {
            AccessCommand::CreateToken(NewToken {
                id: TokenId((n as u128).to_be_bytes()),
                hash: TokenHash([1; 32]),
                role: RoleName::admin(),
                description: "".into(),
                expires_at_ms: Some(10),
            })
        };
        for n in 1..MAX_TOKENS {
            assert!(ask(&mut access, token(n)).is_ok());
        }
        assert_eq!(
            ask(&mut access, token(MAX_TOKENS)),
            full(Limited::Tokens, MAX_TOKENS)
        );
        // Expired tokens make room.
        access.sweep(10);
        assert_eq!(access.tokens.len(), 1);

        let role = |n: usize| AccessCommand::SetRole {
            role: RoleName::parse(&n.to_string()).expect("it is a name"),
            grants: Vec::new(),
        };
        for n in 0..MAX_ROLES {
            assert_eq!(ask(&mut access, role(n)), Ok(Reply::PolicyChanged));
        }
        assert_eq!(ask(&mut access, role(MAX_ROLES)), full(Limited::Roles, MAX_ROLES));
        assert_eq!(
            ask(&mut access, role(0)),
            Ok(Reply::PolicyChanged),
            "it is there already"
        );

        let certificate = |n: usize| AccessCommand::MapCertificate {
            certificate: n.to_string().into(),
            role: RoleName::admin(),
        };
        for n in 0..MAX_CERTIFICATES {
            assert_eq!(ask(&mut access, certificate(n)), Ok(Reply::PolicyChanged));
        }
        assert_eq!(
            ask(&mut access, certificate(MAX_CERTIFICATES)),
            full(Limited::Certificates, MAX_CERTIFICATES)
        );
        assert_eq!(ask(&mut access, certificate(0)), Ok(Reply::PolicyChanged));
    }

    #[test]
    fn texts_and_grants_are_bounded() {
        let grant = |path: &str| PathGrant {
            prefix: ZPath::parse(path).expect("it is a path"),
            rights: Rights::of([Right::Read]),
        };
        assert!(check_grants(&alloc::vec![grant("/a"); MAX_GRANTS_PER_ROLE]).is_ok());
        assert!(check_grants(&alloc::vec![grant("/a"); MAX_GRANTS_PER_ROLE + 1]).is_err());
        let long = alloc::format!("/{}", "x".repeat(1000));
        assert!(check_grants(&alloc::vec![grant(&long); 17]).is_err());
        let empty = PathGrant {
            rights: Rights::default(),
            ..grant("/a")
        };
        assert!(check_grants(&[empty]).is_err());
        assert!(check_description(&"x".repeat(MAX_DESCRIPTION_BYTES)).is_ok());
        assert!(check_description(&"x".repeat(MAX_DESCRIPTION_BYTES + 1)).is_err());
        assert!(check_certificate(&"x".repeat(MAX_CERTIFICATE_BYTES)).is_ok());
        assert!(check_certificate(&"x".repeat(MAX_CERTIFICATE_BYTES + 1)).is_err());
        assert!(check_certificate("").is_err());
    }
}
