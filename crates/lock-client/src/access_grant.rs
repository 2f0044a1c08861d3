//! Grants as people type them and as the API has them. What they mean is decided by the cluster.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Rights at a path, or at locks, and at all below.
///
/// Its text is `RIGHTS:PLACE`: `read,lock:orders` for the lock `orders` and those whose names begin with `orders/`,
/// `read:/config` for a znode and all below it, `all:/` for everything.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Grant {
    /// Where.
    #[serde(flatten)]
    pub place: GrantPlace,
    /// Which rights: `read`, `lock`, `write`, `break`, `administer`.
    pub rights: Vec<String>,
}

/// Where a grant holds.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantPlace {
    /// At a znode and all below it.
    Path(String),
    /// At the lock of this name, and at those whose names begin with it and a slash.
    Locks(String),
}

/// All rights, in the order in which they are shown.
const RIGHTS: [&str; 5] = ["read", "lock", "write", "break", "administer"];

fn is_right(word: &str) -> bool {
    word == "all" || RIGHTS.contains(&word)
}

/// The text is no grant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadGrant {
    /// A part is missing.
    #[error("{0:?} is not RIGHTS:PLACE, such as read,lock:orders or all:/")]
    Malformed(String),
    /// Several grants, as it seems.
    #[error(
        "{0:?} looks like several grants: give each as an argument of its own, such as read:orders lock:payments"
    )]
    Several(String),
    /// There is no such right.
    #[error("{0:?} is no right: there are read, lock, write, break, administer, and all for all of them")]
    Right(String),
}

impl FromStr for Grant {
    type Err = BadGrant;

    fn from_str(text: &str) -> Result<Self, BadGrant> {
        let malformed = || BadGrant::Malformed(text.to_owned());
        let (rights, place) = text.split_once(':').ok_or_else(malformed)?;
        if place.is_empty() || rights.is_empty() {
            return Err(malformed());
        }
        // No name of a lock or znode that anybody has in mind goes on with the next grant.
        let begins_a_grant = |part: &str| part.split_once(':').is_some_and(|(right, _)| is_right(right));
        if place.split(',').skip(1).any(begins_a_grant) {
            return Err(BadGrant::Several(text.to_owned()));
        }
        let place = match place.starts_with('/') {
            true => GrantPlace::Path(place.to_owned()),
            false => GrantPlace::Locks(place.to_owned()),
        };
        if rights == "all" {
            let rights = RIGHTS.map(str::to_owned).to_vec();
            return Ok(Self { place, rights });
        }
        let rights = rights.split(',').map(|right| match RIGHTS.contains(&right) {
            true => Ok(right.to_owned()),
            false => Err(BadGrant::Right(right.to_owned())),
        });
        Ok(Self {
            place,
            rights: rights.collect::<Result<_, _>>()?,
        })
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (GrantPlace::Path(place) | GrantPlace::Locks(place)) = &self.place;
        let has_all = RIGHTS
            .iter()
            .all(|right| self.rights.iter().any(|has| has == right));
        match has_all {
            true => write!(f, "all:{place}"),
            false => write!(f, "{}:{place}", self.rights.join(",")),
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
            ("all:/", json!({ "path": "/", "rights": RIGHTS })),
        ] {
            let grant: Grant = text.parse().unwrap();
            assert_eq!(serde_json::to_value(&grant).unwrap(), document);
            assert_eq!(serde_json::from_value::<Grant>(document).unwrap(), grant);
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
            let error = text.parse::<Grant>().unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
