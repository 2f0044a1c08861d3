//! Identities that a caller has proven: address, password, certificate, token.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::model::access::token::TokenId;

/// Identity that a caller has proven.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Identity {
    /// Address of the caller. A mapped IPv6 address is given as the IPv4 address.
    Ip(IpAddr),
    /// User whose password the caller knows, as `user:base64(sha1(user:password))`.
    Digest(Arc<str>),
    /// Subject of a certificate whose key the caller has.
    X509(Arc<str>),
    /// The operator, to whom access control lists do not apply.
    Super,
    /// Token whose secret the caller knows. The front end has compared the hashes; the apply step decides whether the token is still valid.
    Token(TokenId),
    /// The cluster itself, for its own commands. No front end gives a caller this identity.
    Internal,
}

/// All identities that a caller has proven, in that order. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Identities(Option<Arc<[Identity]>>);

impl Identities {
    /// Returns no identities. Such a caller has the rights of `world`.
    pub fn none() -> Self {
        Self(None)
    }

    /// Returns the identity of the cluster itself.
    pub fn internal() -> Self {
        Self::new([Identity::Internal])
    }

    /// Returns these identities, without repetitions.
    pub fn new(proven: impl IntoIterator<Item = Identity>) -> Self {
        let mut identities: Vec<Identity> = Vec::new();
        for identity in proven {
            if !identities.contains(&identity) {
                identities.push(identity);
            }
        }
        Self((!identities.is_empty()).then(|| identities.into()))
    }

    /// Returns the identities, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Identity> {
        self.0.iter().flat_map(|identities| identities.iter())
    }

    pub(crate) fn is_super(&self) -> bool {
        self.iter().any(|identity| *identity == Identity::Super)
    }

    /// Returns the identities that `auth` stands for. An address proves nothing about its caller.
    pub(crate) fn proven(&self) -> impl Iterator<Item = (&'static str, Arc<str>)> {
        self.iter().filter_map(|identity| match identity {
            Identity::Digest(id) => Some(("digest", id.clone())),
            Identity::X509(id) => Some(("x509", id.clone())),
            // Access control lists know neither tokens nor roles: those belong to the policies.
            Identity::Ip(_) | Identity::Super | Identity::Token(_) | Identity::Internal => None,
        })
    }

    /// Returns the identities as text, for people to read, or `None` if there are none.
    pub(crate) fn shown(&self) -> Option<Arc<str>> {
        let mut shown = String::new();
        for identity in self.iter() {
            if !shown.is_empty() {
                shown.push_str(", ");
            }
            match identity {
                Identity::Ip(address) => shown.push_str(&format!("ip:{address}")),
                // The hash of the password is not shown.
                Identity::Digest(id) => {
                    shown.push_str("digest:");
                    shown.push_str(id.split(':').next().unwrap_or_default());
                }
                Identity::X509(subject) => {
                    shown.push_str("x509:");
                    shown.push_str(subject);
                }
                Identity::Super => shown.push_str("super"),
                Identity::Token(id) => shown.push_str(&format!("token:{id}")),
                Identity::Internal => shown.push_str("the cluster"),
            }
        }
        (!shown.is_empty()).then(|| shown.into())
    }
}
