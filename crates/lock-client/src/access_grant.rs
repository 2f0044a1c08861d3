//! Access grants, as text and as documents of the API. The cluster decides what they allow.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// Right of a role.
    Right {
        /// See znodes, locks and the history of locks.
        Read = "read";
        /// Acquire locks.
        Lock = "lock";
        /// Create, change and delete znodes.
        Write = "write";
        /// Break locks of others, and request their release.
        Break = "break";
        /// Change access control lists, quotas and the settings of locks; at `/` also tokens, roles and sessions of others.
        Administer = "administer";
    }
}

/// Rights at a path, or at locks, and at everything below.
///
/// Its text is `RIGHTS:PLACE`: `read,lock:orders` for the lock `orders` and all locks whose names begin with `orders/`,
/// `read:/config` for a znode and its descendants, `all:/` for everything.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct AccessGrant {
    /// Znodes or locks that the grant is about.
    #[serde(flatten)]
    pub scope: AccessScope,
    /// Rights there.
    pub rights: Vec<Right>,
}

/// Scope of an access grant.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AccessScope {
    /// A znode and its descendants.
    Path(String),
    /// The lock of this name, and locks whose names begin with it and a slash.
    Locks(String),
}

/// All rights, in display order.
const RIGHTS: [Right; 5] = [
    Right::Read,
    Right::Lock,
    Right::Write,
    Right::Break,
    Right::Administer,
];

/// Returns the right of a word; `None` if there is no such right.
fn right(word: &str) -> Option<Right> {
    RIGHTS.into_iter().find(|right| right.word() == word)
}

/// Error of a text that is no access grant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessGrantError {
    /// A part is missing.
    #[error("{0:?} is not RIGHTS:PLACE, such as read,lock:orders or all:/")]
    Malformed(String),
    /// The text seems to have several grants.
    #[error(
        "{0:?} looks like several grants: give each as an argument of its own, such as read:orders lock:payments"
    )]
    Several(String),
    /// There is no such right.
    #[error("{0:?} is no right: there are read, lock, write, break, administer, and all for all of them")]
    Right(String),
}

impl FromStr for AccessGrant {
    type Err = AccessGrantError;

    fn from_str(text: &str) -> Result<Self, AccessGrantError> {
        let malformed = || AccessGrantError::Malformed(text.to_owned());
        let (rights, scope) = text.split_once(':').ok_or_else(malformed)?;
        if scope.is_empty() || rights.is_empty() {
            return Err(malformed());
        }
        // Names of locks and znodes do not contain a comma followed by a grant.
        let begins_a_grant = |part: &str| {
            part.split_once(':')
                .is_some_and(|(word, _)| word == "all" || right(word).is_some())
        };
        if scope.split(',').skip(1).any(begins_a_grant) {
            return Err(AccessGrantError::Several(text.to_owned()));
        }
        let scope = match scope.starts_with('/') {
            true => AccessScope::Path(scope.to_owned()),
            false => AccessScope::Locks(scope.to_owned()),
        };
        let rights = match rights {
            "all" => RIGHTS.to_vec(),
            rights => {
                let rights = rights.split(',');
                let rights =
                    rights.map(|word| right(word).ok_or_else(|| AccessGrantError::Right(word.to_owned())));
                rights.collect::<Result<_, _>>()?
            }
        };
        Ok(Self { scope, rights })
    }
}

impl fmt::Display for AccessGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (AccessScope::Path(scope) | AccessScope::Locks(scope)) = &self.scope;
        match RIGHTS.iter().all(|right| self.rights.contains(right)) {
            true => write!(f, "all:{scope}"),
            false => {
                let rights: Vec<_> = self.rights.iter().map(Right::word).collect();
                write!(f, "{}:{scope}", rights.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn grants_have_a_text_and_a_document() {
        for (text, document) in [
            (
                "read,lock:orders",
                json!({ "locks": "orders", "rights": ["read", "lock"] }),
            ),
            (
                "read:/config/a:b",
                json!({ "path": "/config/a:b", "rights": ["read"] }),
            ),
            (
                "all:/",
                json!({ "path": "/", "rights": ["read", "lock", "write", "break", "administer"] }),
            ),
        ] {
            let grant: AccessGrant = text.parse().unwrap();
            assert_eq!(serde_json::to_value(&grant).unwrap(), document);
            assert_eq!(serde_json::from_value::<AccessGrant>(document).unwrap(), grant);
            assert_eq!(grant.to_string(), text);
        }
        for (text, what) in [
            ("read", "is not RIGHTS:PLACE"),
            ("read:", "is not RIGHTS:PLACE"),
            (":/", "is not RIGHTS:PLACE"),
            ("read:orders,lock:orders", "looks like several grants"),
            ("all:/a,all:/b", "looks like several grants"),
            ("reed:/", "\"reed\" is no right"),
            ("read,:/", "\"\" is no right"),
        ] {
            let error = text.parse::<AccessGrant>().unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
