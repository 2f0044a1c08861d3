//! Principals: owners of sessions and requests. A caller may have proven several identities; one of them is its principal.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::model::access::token::TokenId;
use crate::model::identity::{Identities, Identity};

/// Maximum length of the subject of a certificate in bytes.
pub const MAX_CERTIFICATE_BYTES: usize = 1024;

/// Principal that opened a session or sent a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Principal {
    /// A caller without a token and without a certificate.
    #[default]
    Nobody,
    /// A caller with this token.
    Token(TokenId),
    /// A caller with the key of this certificate.
    Certificate(Arc<str>),
    /// The operator, on the node itself, or the cluster itself.
    Operator,
}

impl Principal {
    /// Returns the principal of a caller: its first token, or else its first certificate.
    pub fn of(caller: &Identities) -> Self {
        let mut found = Self::Nobody;
        for identity in caller.iter() {
            match identity {
                Identity::Super | Identity::Internal => return Self::Operator,
                Identity::Token(id) if !matches!(found, Self::Token(_)) => found = Self::Token(*id),
                Identity::X509(text) if found == Self::Nobody => found = Self::Certificate(text.clone()),
                Identity::Token(_) | Identity::X509(_) | Identity::Ip(_) | Identity::Digest(_) => {}
            }
        }
        found
    }

    /// Returns whether a caller is this principal. (An address, or a password of ZooKeeper's `digest`, is no principal.)
    pub fn is(&self, caller: &Identities) -> bool {
        match self {
            Self::Nobody => Self::of(caller) == Self::Nobody,
            Self::Token(id) => caller.iter().any(|identity| *identity == Identity::Token(*id)),
            Self::Certificate(text) => caller
                .iter()
                .any(|identity| matches!(identity, Identity::X509(shown) if shown == text)),
            Self::Operator => Self::of(caller) == Self::Operator,
        }
    }

    /// Returns the identities of a session's owner, with a certificate that it showed beside its token.
    pub(crate) fn identities(&self, certificate: Option<&Arc<str>>) -> Identities {
        let own = match self {
            Self::Nobody => None,
            Self::Token(id) => Some(Identity::Token(*id)),
            Self::Certificate(subject) => Some(Identity::X509(subject.clone())),
            Self::Operator => Some(Identity::Internal),
        };
        let certificate = certificate.map(|subject| Identity::X509(subject.clone()));
        Identities::new(own.into_iter().chain(certificate))
    }

    /// Appends a text that identifies the principal.
    pub(crate) fn append_to(&self, text: &mut String) {
        match self {
            Self::Nobody => text.push_str("nobody"),
            Self::Token(id) => {
                text.push_str("token:");
                id.append_to(text);
            }
            Self::Certificate(subject) => {
                text.push_str("certificate:");
                text.push_str(subject);
            }
            Self::Operator => text.push_str("operator"),
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("nobody"),
            Self::Token(id) => write!(f, "token {id}"),
            Self::Certificate(text) => write!(f, "certificate {text:?}"),
            Self::Operator => f.write_str("the operator"),
        }
    }
}
