//! Documents of access control lists, with the rights that each letter means. The state machine decides about access.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use znode_store::{Acl, AclEntry, Perms, RequestId, ZPath};

use super::openapi::words;
use super::problem::{Code, Problem};
use super::znode_types::StatAnswer;

/// Entry of an access control list, as requests contain it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AclEntryBody)]
pub struct EntryBody<'a> {
    /// Letters of `cdrwa`, in any order.
    #[serde(borrow)]
    #[schema(value_type = words::Perms)]
    perms: Cow<'a, str>,
    /// `world`, `ip`, `digest` or `x509`.
    #[serde(borrow)]
    scheme: Cow<'a, str>,
    /// Id within the scheme.
    #[serde(borrow)]
    id: Cow<'a, str>,
}

/// Parses an access control list.
pub fn acl(entries: Vec<EntryBody<'_>>) -> Result<Acl, Problem> {
    let entries = entries.into_iter().map(|entry| {
        Ok(AclEntry {
            perms: perms(&entry.perms)?,
            scheme: entry.scheme.into(),
            id: entry.id.into(),
        })
    });
    Ok(Acl::new(entries.collect::<Result<_, Problem>>()?))
}

fn perms(letters: &str) -> Result<Perms, Problem> {
    letters.chars().try_fold(Perms(0), |perms, letter| {
        let perm = match letter {
            'c' => Perms::CREATE,
            'd' => Perms::DELETE,
            'r' => Perms::READ,
            'w' => Perms::WRITE,
            'a' => Perms::ADMIN,
            _ => {
                let what = format!("perms consists of the letters c, d, r, w and a, not {letter:?}");
                return Err(Problem::new(Code::BadAcl, what));
            }
        };
        Ok(perms | perm)
    })
}

/// Body of `PUT /v1/acl/{path}`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetAclBody<'a> {
    /// The whole new list.
    #[serde(borrow)]
    pub acl: Vec<EntryBody<'a>>,
    /// Session of the request: the scope of the request id.
    #[serde(borrow)]
    #[schema(value_type = Option<words::SessionId>)]
    pub session: Option<Cow<'a, str>>,
    /// Id of the request, for repetitions.
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
}

/// Entry of an access control list, as answers contain it.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AclEntry)]
pub struct EntryAnswer {
    #[schema(value_type = words::Perms)]
    perms: String,
    /// `world`, `ip`, `digest` or `x509`.
    scheme: String,
    /// Id within the scheme.
    id: String,
}

/// Converts an access control list for an answer.
pub fn shown(acl: &Acl) -> Vec<EntryAnswer> {
    let entries = acl.entries().into_iter().map(|entry| EntryAnswer {
        perms: entry.perms.to_string(),
        scheme: entry.scheme.to_string(),
        id: entry.id.to_string(),
    });
    entries.collect()
}

/// Answer of `GET /v1/acl/{path}`.
#[derive(Serialize, ToSchema)]
pub struct AclAnswer<'a> {
    /// Path of the znode.
    #[schema(value_type = words::ZnodePath)]
    pub path: &'a ZPath,
    /// Entries, as far as the caller may see them.
    pub acl: Vec<EntryAnswer>,
    /// Metadata of the znode. Its `aversion` is the version of the list.
    pub stat: StatAnswer,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::extract::parse;

    fn read(body: &str) -> Result<Acl, Code> {
        let read = || acl(parse::<SetAclBody<'_>>(body.as_bytes())?.acl);
        read().map_err(|problem: Problem| problem.code())
    }

    #[test]
    fn rights_are_letters() {
        for (letters, perms) in [
            ("", Perms(0)),
            ("r", Perms::READ),
            ("rr", Perms::READ),
            ("cdrwa", Perms::ALL),
            ("awrdc", Perms::ALL),
            ("cw", Perms::CREATE | Perms::WRITE),
        ] {
            let body = format!(r#"{{"acl": [{{"perms": "{letters}", "scheme": "ip", "id": "::1"}}]}}"#);
            let entry = AclEntry {
                perms,
                scheme: "ip".into(),
                id: "::1".into(),
            };
            assert_eq!(read(&body), Ok(Acl::new(vec![entry])), "{letters}");
        }
        for letters in ["x", "R", "read", "r w", "31"] {
            let body = format!(r#"{{"acl": [{{"perms": "{letters}", "scheme": "ip", "id": "::1"}}]}}"#);
            assert_eq!(read(&body), Err(Code::BadAcl), "{letters}");
        }
    }

    #[test]
    fn shown_lists_can_be_written_back() {
        let entries = [("world", "anyone", Perms::READ), ("digest", "anna:x", Perms::ALL)];
        let list = Acl::new(
            entries
                .map(|(scheme, id, perms)| AclEntry {
                    perms,
                    scheme: scheme.into(),
                    id: id.into(),
                })
                .into(),
        );
        for list in [list, Acl::open(), Acl::read_only()] {
            let body = serde_json::json!({"acl": shown(&list)}).to_string();
            assert_eq!(read(&body), Ok(list), "{body}");
        }
    }

    #[test]
    fn feed_entry_has_all_its_fields_and_no_others() {
        for body in [
            r#"{}"#,
            r#"{"acl": null}"#,
            r#"{"acl": [{"perms": "r", "scheme": "world"}]}"#,
            r#"{"acl": [{"perms": 1, "scheme": "world", "id": "anyone"}]}"#,
            r#"{"acl": [{"perms": "r", "scheme": "world", "id": "anyone", "who": "me"}]}"#,
            r#"{"acl": ["world:anyone:r"]}"#,
        ] {
            assert_eq!(read(body), Err(Code::BadRequest), "{body}");
        }
    }
}
