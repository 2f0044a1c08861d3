//! Parsing of URL paths: names of locks, paths of znodes, verbs.
//!
//! All functions take the path as it was sent, still percent-encoded. They split it at its slashes first
//! and decode afterwards, so an encoded slash (`%2F`) is part of a name and never separates a verb from it.

use std::borrow::Cow;

use axum::http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use znode_store::LockName;

use super::problem::Problem;

/// Prefix of the addresses of all locks.
pub const LOCKS: &str = "/v1/locks/";

/// Prefix of the addresses of all leases. The rest is secret.
pub const LEASES: &str = "/v1/leases/";

/// Error of percent-encoding: invalid digits after a `%`, or bytes that are not UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadEncoding {
    /// Invalid or missing digits: `%`, `%4`, `%xy`.
    #[error("'%' is not followed by two hexadecimal digits")]
    Digits,
    /// The bytes are not UTF-8.
    #[error("the percent-encoded bytes are not UTF-8")]
    NotUtf8,
}

/// Decodes percent-encoding. A `+` stays a plus: it means a space in forms and queries only.
pub fn decode(raw: &str) -> Result<Cow<'_, str>, BadEncoding> {
    // The library takes a `%` without digits as it is.
    let mut after_percents = raw.as_bytes().split(|byte| *byte == b'%').skip(1);
    let has_digits = |after: &[u8]| after.len() >= 2 && after[..2].iter().all(u8::is_ascii_hexdigit);
    if !after_percents.all(has_digits) {
        return Err(BadEncoding::Digits);
    }
    percent_decode_str(raw)
        .decode_utf8()
        .map_err(|_| BadEncoding::NotUtf8)
}

/// Characters that are percent-encoded in a path: all but the unreserved ones (RFC 3986) and slashes.
const IN_PATHS: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// Percent-encodes a path but for its slashes.
pub fn encode_path(path: &str) -> String {
    utf8_percent_encode(path, IN_PATHS).to_string()
}

/// Segment before the name of a contender.
const HOLDERS: &str = "holders";

/// Operation on a lock: the last segment of its URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Acquires the lock or enters its queue.
    Acquire,
    /// Releases a hold.
    Release,
    /// Removes a contender by force.
    Break,
    /// Checks that a fencing token belongs to a current holder.
    Check,
    /// Returns past holds.
    History,
    /// Reduces the mode of a hold.
    Downgrade,
    /// Makes an upgradeable hold exclusive.
    Upgrade,
    /// Sends a release request to holders.
    ReleaseRequest,
    /// Sends a holder's reply to a release request.
    ReleaseReply,
    /// Waits for the grant of one contender, which is the last segment.
    Holder,
}

impl Verb {
    /// All verbs.
    pub const ALL: [Self; 10] = [
        Self::Acquire,
        Self::Release,
        Self::Break,
        Self::Check,
        Self::History,
        Self::Downgrade,
        Self::Upgrade,
        Self::ReleaseRequest,
        Self::ReleaseReply,
        Self::Holder,
    ];

    /// Finds the verb of one segment. (A decoded segment may contain a slash.)
    fn parse(segment: &str) -> Option<Self> {
        let is_word = |verb: &Self| verb.word() == segment && !segment.contains('/');
        Self::ALL.into_iter().find(is_word)
    }

    /// Returns the segment of the URL, or two of them.
    pub fn word(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Release => "release",
            Self::Break => "break",
            Self::Check => "check",
            Self::History => "history",
            Self::Downgrade => "downgrade",
            Self::Upgrade => "upgrade",
            Self::ReleaseRequest => "release-request",
            Self::ReleaseReply => "release-request/reply",
            Self::Holder => "holders/{holder}",
        }
    }

    /// Returns the method of the verb.
    pub fn method(self) -> &'static str {
        match self {
            Self::Check | Self::History | Self::Holder => "GET,HEAD",
            Self::Acquire
            | Self::Release
            | Self::Break
            | Self::Downgrade
            | Self::Upgrade
            | Self::ReleaseRequest
            | Self::ReleaseReply => "POST",
        }
    }
}

/// Splits the path after `/v1/locks/` into the name of a lock and the verb, if there is one.
///
/// One rule for all methods: the last segment is a verb if it is one of the words and is not the only segment.
/// `orders/42/acquire` acquires `orders/42`; `acquire` alone is a lock's name, and so is `orders/acquire`
/// if its slash is encoded: `orders%2Facquire`. `orders/42/holders/X` is the contender `X` of `orders/42`.
pub fn lock_and_verb(raw: &str) -> Result<(LockName, Option<Verb>), Problem> {
    let (name, verb) = split_verb(raw);
    let name = decode(name).map_err(Problem::bad_lock_name)?;
    Ok((LockName::parse(&name).map_err(Problem::bad_lock_name)?, verb))
}

/// Splits the verb off the path after `/v1/locks/`. A segment that cannot be decoded is no verb; as part of the name it is rejected later.
pub fn split_verb(raw: &str) -> (&str, Option<Verb>) {
    let Some((rest, last)) = raw.rsplit_once('/') else {
        return (raw, None);
    };
    let last = decode(last).unwrap_or_default();
    if last == "reply"
        && let (name, Some(Verb::ReleaseRequest)) = split_verb(rest)
    {
        return (name, Some(Verb::ReleaseReply));
    }
    match (Verb::parse(&last), rest.rsplit_once('/')) {
        (Some(verb), _) => (rest, Some(verb)),
        (None, Some((name, HOLDERS))) => (name, Some(Verb::Holder)),
        (None, _) => (raw, None),
    }
}

/// Decodes the path of a znode after `/v1/znodes` or `/v1/watch`: nothing or `/` is the root.
///
/// The result is not validated, because a path to create and a path that exists follow different rules.
pub fn znode_path(raw: &str) -> Result<Cow<'_, str>, Problem> {
    if raw.is_empty() {
        return Ok(Cow::Borrowed("/"));
    }
    decode(raw).map_err(Problem::bad_path)
}

/// Returns an address for logs and traces: without the secret of a lease.
pub fn without_secret(path: &str) -> Cow<'_, str> {
    match path.strip_prefix(LEASES) {
        None => Cow::Borrowed(path),
        Some(rest) => {
            let after = rest.find('/').map_or("", |at| &rest[at..]);
            Cow::Owned(format!("{LEASES}...{after}"))
        }
    }
}

/// Decodes an address's last segment, which names the object of the request.
pub fn last_segment(uri: &Uri) -> Result<Cow<'_, str>, Problem> {
    let raw = uri.path().rsplit('/').next().unwrap_or_default();
    decode(raw).map_err(|error| Problem::bad_request(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::problem::Code;

    #[test]
    fn percent_encoding_is_undone_once() {
        for (raw, plain) in [
            ("", ""),
            ("orders/42", "orders/42"),
            ("a%20b", "a b"),
            ("a+b", "a+b"),
            ("%2F%2f", "//"),
            ("%2541", "%41"),
            ("caf%C3%A9", "café"),
            ("café", "café"),
        ] {
            assert_eq!(decode(raw).as_deref(), Ok(plain), "{raw}");
        }
        for raw in [
            "%", "a%", "%4", "%4g", "%-1", "%+1", "%%41", "%4%41", "%41%", "%ff%", "%é",
        ] {
            assert_eq!(decode(raw), Err(BadEncoding::Digits), "{raw}");
        }
        for raw in ["%ff", "%C3", "%C3x", "%ED%A0%80"] {
            assert_eq!(decode(raw), Err(BadEncoding::NotUtf8), "{raw}");
        }
    }

    #[test]
    fn encoded_path_is_decoded_to_itself() {
        assert_eq!(encode_path("/a b/é%"), "/a%20b/%C3%A9%25");
        for path in ["/", "/orders/42", "/a+b?c#d", "/café"] {
            assert_eq!(decode(&encode_path(path)).as_deref(), Ok(path));
        }
    }

    #[test]
    fn last_segment_after_a_name_is_the_verb() {
        for (raw, name, verb) in [
            ("a/acquire", "a", Some(Verb::Acquire)),
            ("orders/42/acquire", "orders/42", Some(Verb::Acquire)),
            ("orders/42/release", "orders/42", Some(Verb::Release)),
            ("a/break", "a", Some(Verb::Break)),
            ("a/check", "a", Some(Verb::Check)),
            ("a/b/history", "a/b", Some(Verb::History)),
            ("a/release-request", "a", Some(Verb::ReleaseRequest)),
            ("a/b/release-request/reply", "a/b", Some(Verb::ReleaseReply)),
            ("release-request/reply", "release-request/reply", None),
            ("a/reply", "a/reply", None),
            ("a%2Frelease-request/reply", "a/release-request/reply", None),
            ("a/revoke", "a/revoke", None),
            ("a/downgrade", "a", Some(Verb::Downgrade)),
            ("a/upgrade", "a", Some(Verb::Upgrade)),
            ("a", "a", None),
            ("orders/42", "orders/42", None),
            ("check", "check", None),
            ("acquire/acquire", "acquire", Some(Verb::Acquire)),
            ("a/Acquire", "a/Acquire", None),
            // An encoded letter is the letter (RFC 3986 §6.2.2.2), an encoded slash is no separator.
            ("a/%61cquire", "a", Some(Verb::Acquire)),
            ("a%2Facquire", "a/acquire", None),
            ("a%2Facquire/acquire", "a/acquire", Some(Verb::Acquire)),
            ("x%2Fcheck/check", "x/check", Some(Verb::Check)),
            ("x%2Fy/z", "x/y/z", None),
        ] {
            let (lock, found) = lock_and_verb(raw).unwrap_or_else(|problem| panic!("{raw}: {problem:?}"));
            assert_eq!((lock.as_str(), found), (name, verb), "{raw}");
        }
    }

    #[test]
    fn invalid_lock_names_are_refused_as_such() {
        let long = "x".repeat(513);
        let deep = "a/".repeat(32);
        for raw in [
            "",
            "/",
            "/acquire",
            "a/",
            "a//b",
            "//acquire",
            "a//acquire",
            "../a",
            "a/%2e%2E/b",
            "%00",
            "a%",
            "%ff",
            "a/%zz",
            &long,
            &deep,
        ] {
            let code = lock_and_verb(raw).map_err(|problem| problem.code());
            assert_eq!(code, Err(Code::BadLockName), "{raw}");
        }
    }

    #[test]
    fn the_root_of_the_tree_has_two_addresses() {
        assert_eq!(znode_path("").unwrap(), "/");
        assert_eq!(znode_path("/").unwrap(), "/");
        assert_eq!(znode_path("/a/b%20c").unwrap(), "/a/b c");
        assert_eq!(znode_path("/a%2Fb").unwrap(), "/a/b");
        assert_eq!(
            znode_path("/a%").map_err(|problem| problem.code()),
            Err(Code::BadPath)
        );
    }
}
