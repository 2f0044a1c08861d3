//! Records of the access policies in a snapshot, and the checks of a restore.

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::access::manage::{check_certificate, check_description, check_grants};
use crate::access::table::{Access, MAX_CERTIFICATES, MAX_ROLES, MAX_TOKENS};
use crate::model::access::role::{PathGrant, RoleName};
use crate::model::access::token::Token;
use crate::model::damage::Damage;
use crate::stable_hash;

/// Record of the access policies in a snapshot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum AccessRecord {
    /// Marks the state as secured. It is the first record; an open state has no records.
    Secured,
    Role {
        role: RoleName,
        grants: Vec<PathGrant>,
    },
    Token(Token),
    Certificate {
        certificate: Arc<str>,
        role: RoleName,
    },
    /// The rule of [`crate::AccessCommand::EndWaitsWithRights`]. From format 7 on.
    WaitsEndWithRights,
}

impl Access {
    /// Adds a record of a snapshot. Refuses a record that no command could have made.
    pub(crate) fn restore(&mut self, record: AccessRecord) -> Result<(), Damage> {
        let has_no_role = |role: &RoleName| !role.is_admin() && !self.roles.contains_key(role);
        let is_bad = match &record {
            AccessRecord::Secured => self.secured,
            _ if !self.secured => true,
            AccessRecord::Role { role, grants } => {
                role.is_admin()
                    || self.roles.contains_key(role)
                    || self.roles.len() >= MAX_ROLES
                    || check_grants(grants).is_err()
            }
            AccessRecord::Token(token) => {
                self.tokens.contains_key(&token.id)
                    || self.tokens.len() >= MAX_TOKENS
                    || has_no_role(&token.role)
                    || check_description(&token.description).is_err()
            }
            AccessRecord::Certificate { certificate, role } => {
                self.certificates.contains_key(certificate)
                    || self.certificates.len() >= MAX_CERTIFICATES
                    || has_no_role(role)
                    || check_certificate(certificate).is_err()
            }
            AccessRecord::WaitsEndWithRights => self.waits_end_with_rights,
        };
        if is_bad {
            return Err("its access policies contradict each other");
        }
        match record {
            AccessRecord::Secured => self.secured = true,
            AccessRecord::Role { role, grants } => {
                self.roles.insert(role, grants);
            }
            AccessRecord::Token(token) => {
                self.tokens.insert(token.id, token);
            }
            AccessRecord::Certificate { certificate, role } => {
                self.certificates.insert(certificate, role);
            }
            AccessRecord::WaitsEndWithRights => self.waits_end_with_rights = true,
        }
        Ok(())
    }

    /// Returns all records, as they go into a snapshot and the digest: roles before tokens and certificates that have them.
    pub(crate) fn records(&self) -> impl Iterator<Item = AccessRecord> + '_ {
        let secured = self.secured.then_some(AccessRecord::Secured);
        let roles = self.roles.iter().map(|(role, grants)| AccessRecord::Role {
            role: role.clone(),
            grants: grants.clone(),
        });
        let tokens = self.tokens.values().cloned().map(AccessRecord::Token);
        let certificates = self
            .certificates
            .iter()
            .map(|(certificate, role)| AccessRecord::Certificate {
                certificate: certificate.clone(),
                role: role.clone(),
            });
        let rule = self
            .waits_end_with_rights
            .then_some(AccessRecord::WaitsEndWithRights);
        secured
            .into_iter()
            .chain(roles)
            .chain(tokens)
            .chain(certificates)
            .chain(rule)
    }

    /// Returns the tables' share of the digest.
    pub(crate) fn digest(&self) -> u64 {
        self.records().fold(0, |sum, record| {
            stable_hash::of_words([sum, stable_hash::of(&record)])
        })
    }
}
