//! Identities that a caller has proven: address, password, certificate, token.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::model::access::token::TokenId;

/// Something that a caller has proven to be.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Identity {
    /// It calls from this address. (An IPv4 address is given as one, also if it came in as a mapped IPv6 address.)
    Ip(IpAddr),
    /// It knows the password of `user:base64(sha1(user:password))`.
    Digest(Arc<str>),
    /// It has the key of the certificate with this subject.
    X509(Arc<str>),
    /// It is the operator, whom no list stops.
    Super,
    /// It knows the secret of this token. The front end has compared the hashes. Apply decides whether the token is valid still.
    Token(TokenId),
    /// It is the cluster itself, which does what has to be done without being asked. Never to be had from a front end.
    Internal,
}

/// All that a caller has proven to be, in the order in which it did. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Identities(Option<Arc<[Identity]>>);

impl Identities {
    /// Of a caller that has proven nothing: it has the rights of the whole world.
    pub fn none() -> Self {
        Self(None)
    }

    /// Of the cluster itself.
    pub fn internal() -> Self {
        Self::new([Identity::Internal])
    }

    /// Of a caller that has proven all of these; a repeated one counts once.
    pub fn new(proven: impl IntoIterator<Item = Identity>) -> Self {
        let mut identities: Vec<Identity> = Vec::new();
        for identity in proven {
            if !identities.contains(&identity) {
                identities.push(identity);
            }
        }
        Self((!identities.is_empty()).then(|| identities.into()))
    }

    /// Each of them.
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

    /// Returns all that the caller has proven, for people to read; `None` if that is nothing.
    pub(crate) fn shown(&self) -> Option<Arc<str>> {
        let mut shown = String::new();
        for identity in self.iter() {
            if !shown.is_empty() {
                shown.push_str(", ");
            }
            match identity {
                Identity::Ip(address) => shown.push_str(&format!("ip:{address}")),
                // Without the hash of the password.
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
