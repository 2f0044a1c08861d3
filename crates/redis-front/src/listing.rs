//! Commands over all keys: `KEYS`, `SCAN`, `DBSIZE`, `FLUSHDB`.

use bytes::Bytes;
use znode_store::{LockName, Right};

use crate::config::MAX_LISTED_KEYS;
use crate::keys::{Entry, Failure, Keys};
use crate::name;
use crate::operations;
use crate::options::syntax;
use crate::reply::Reply;

/// Returns the keys that the caller may read and that match a pattern, in this node's state. An error if there are more than `most` in
/// all, whether they match or not: this node does nothing else meanwhile.
pub(crate) fn keys(keys: &Keys<'_>, pattern: &[u8], most: usize) -> Result<Vec<Bytes>, Failure> {
    let below = format!("{}/", keys.prefix);
    let (mut found, mut visited, mut after) = (Vec::new(), 0, None::<LockName>);
    loop {
        let after_name = after.as_ref().map(LockName::as_str);
        let page = keys
            .node
            .read(|store| store.seen_by(keys.caller).locks_page(&below, after_name, most))?;
        visited += page.locks.len();
        if visited > most {
            return Err(Failure::Error(format!("ERR there are more than {most} keys")));
        }
        let names = page
            .locks
            .iter()
            .filter_map(|summary| name::key_of(keys.prefix, &summary.lock));
        found.extend(names.filter(|key| matches(pattern, key)).map(Bytes::from));
        after = page.next_after;
        if after.is_none() {
            return Ok(found);
        }
    }
}

/// Executes `SCAN`. All keys are in the first reply, so its cursor is 0.
pub(crate) fn scan(all: &Keys<'_>, mut options: &[Bytes]) -> Result<Reply, Failure> {
    let (mut pattern, mut is_other_type) = (Bytes::from_static(b"*"), false);
    while let [option, value, rest @ ..] = options {
        match option.to_ascii_uppercase().as_slice() {
            b"MATCH" => pattern = value.clone(),
            b"COUNT" => {}
            b"TYPE" => is_other_type = !value.eq_ignore_ascii_case(b"string"),
            _ => return Err(syntax()),
        }
        options = rest;
    }
    if !options.is_empty() {
        return Err(syntax());
    }
    let found = match is_other_type {
        true => Vec::new(),
        false => keys(all, &pattern, MAX_LISTED_KEYS)?,
    };
    let found = found.into_iter().map(Reply::Bulk).collect();
    Ok(Reply::Array(vec![Reply::text("0"), Reply::Array(found)]))
}

/// Releases all locks that leases hold. Needs the right to administer the locks of all keys.
pub(crate) async fn flush(all: &Keys<'_>) -> Result<Reply, Failure> {
    all.barrier().await?;
    let parent = LockName::parse(all.prefix).map_err(|bad| Failure::Error(format!("ERR {bad}")))?;
    all.node
        .read(|store| store.seen_by(all.caller).may(Right::Administer, parent.znode()))?;
    let mut released = 0;
    for key in keys(all, b"*", MAX_LISTED_KEYS)? {
        if let Some(Entry::Lease(_)) = all.read(&key).await? {
            released += usize::from(operations::delete(all, &key, None).await?);
        }
    }
    all.audit("flush", &format!("{released} locks below {}", all.prefix));
    Ok(Reply::OK)
}

/// Returns whether a key matches a pattern with `*`, `?`, `[…]` and `\`, as in Redis.
fn matches(pattern: &[u8], key: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // The last star, and the part of the key that it stands for at present: a mismatch lets it stand for one byte more.
    let mut star = None;
    while read < key.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at, read));
            at += 1;
            continue;
        }
        match one(&pattern[at..], key[read]) {
            Some(used) => {
                at += used;
                read += 1;
            }
            None => match &mut star {
                Some((from, stands_for)) => {
                    *stands_for += 1;
                    (at, read) = (*from + 1, *stands_for);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|rest| *rest == b'*')
}

/// Matches one byte of a key. Returns the length of the part of the pattern that matches it.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', rest @ ..] => {
            let end = rest.iter().skip(1).position(|close| *close == b']')? + 1;
            let (set, is_negated) = match &rest[..end] {
                [b'^', set @ ..] => (set, true),
                set => (set, false),
            };
            let mut is_in = false;
            let mut left = set;
            while let [first, others @ ..] = left {
                left = match others {
                    [b'-', last, others @ ..] => {
                        is_in |= (first.min(last)..=first.max(last)).contains(&&byte);
                        others
                    }
                    others => {
                        is_in |= *first == byte;
                        others
                    }
                };
            }
            (is_in != is_negated).then_some(end + 2)
        }
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, key, expected) in [
            ("*", "", true),
            ("*", "lock:a", true),
            ("lock:*", "lock:a", true),
            ("lock:*", "log:a", false),
            ("*a*b", "xaybzb", true),
            ("*a*b", "xaybz", false),
            ("h?llo", "hello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("a", "ab", false),
            ("[", "[", false),
            ("", "", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), key.as_bytes()),
                expected,
                "{pattern} {key}"
            );
        }
    }
}
