//! Scripts of known libraries, recognised by the SHA-1 of their text. There is no Lua interpreter: the table says in words what each script
//! does, and an operation does it.

use std::time::Duration;

use bytes::Bytes;
use sha1::{Digest as _, Sha1};

mod several;
mod shape;
mod table;

pub(crate) use self::shape::ScriptCache;
use self::table::{Answer, Leave, Operation, find};
use crate::config::MAX_LISTED_KEYS;
use crate::keys::{Expiry, Failure, Keys};
use crate::listing;
use crate::operations::{self, ExpireIf, Expired, Life, SetIf, SetOptions, life_of_ms, pttl_of};
use crate::reentrant::{self, Entered};
use crate::reply::Reply;

/// Returns the SHA-1 of a script in hexadecimal digits.
pub(crate) fn sha1_of(text: &[u8]) -> String {
    Sha1::digest(text)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Returns whether a script is known.
pub(crate) fn is_known(cache: &ScriptCache, sha1: &[u8]) -> bool {
    operation(cache, sha1).is_some()
}

/// Takes the text of a script. Returns its SHA-1; an error if it is not known.
pub(crate) fn load(cache: &ScriptCache, text: &[u8]) -> Result<String, Failure> {
    let sha1 = sha1_of(text);
    match is_known(cache, sha1.as_bytes()) || cache.remember(&sha1, text) {
        true => Ok(sha1),
        false => Err(unknown(&sha1)),
    }
}

fn operation(cache: &ScriptCache, sha1: &[u8]) -> Option<Operation> {
    find(sha1).or_else(|| cache.find(sha1))
}

/// Returns the error for a script that is not known.
fn unknown(sha1: &str) -> Failure {
    Failure::Error(format!(
        "ERR unknown script {sha1}: Lockgate runs no Lua, and knows the scripts of the lock libraries that docs/clients/redis.md lists"
    ))
}

/// Executes a known script; `None` if it is not known.
pub(crate) async fn run(
    keys: &Keys<'_>,
    sha1: &[u8],
    names: &[Bytes],
    arguments: &[Bytes],
) -> Option<Result<Reply, Failure>> {
    let operation = operation(keys.scripts, sha1)?;
    Some(execute(keys, operation, names, arguments).await)
}

async fn execute(
    keys: &Keys<'_>,
    operation: Operation,
    names: &[Bytes],
    arguments: &[Bytes],
) -> Result<Reply, Failure> {
    let argument = |index: usize| {
        arguments
            .get(index)
            .ok_or_else(|| Failure::error("ERR the script needs more arguments"))
    };
    let key_at = |index: usize| {
        names
            .get(index)
            .ok_or_else(|| Failure::error("ERR the script needs a key"))
    };
    let key = || key_at(0);
    let number = |index: usize| argument(index).and_then(|bytes| whole(bytes));
    let expire_if_equal = async |unit: i64| {
        let life = life_of_ms(number(1)?.saturating_mul(unit));
        let expired = operations::expire(keys, key()?, Some(argument(0)?), ExpireIf::Always, |_| life);
        Ok::<_, Failure>(expired.await? == Expired::Changed)
    };
    let delete_if_equal = async || operations::delete(keys, key()?, Some(argument(0)?)).await;
    match operation {
        Operation::DeleteIfEqual(answer) => Ok(answer.of(delete_if_equal().await?, 1)),
        Operation::DeleteOrReason { missing, differs } => {
            Ok(Reply::Integer(match delete_if_equal().await? {
                true => 1,
                false if keys.read(key()?).await?.is_none() => missing,
                false => differs,
            }))
        }
        Operation::Delete(answer) => {
            let is_deleted = operations::delete(keys, key()?, None).await?;
            Ok(answer.of(is_deleted, 1))
        }
        Operation::ExpireIfEqual(answer) => Ok(answer.of(expire_if_equal(1).await?, 1)),
        Operation::ExpireSecondsIfEqual(answer) => Ok(answer.of(expire_if_equal(1_000).await?, 1)),
        Operation::ExpireOrAcquire(answer) => {
            let is_done =
                expire_if_equal(1).await? || acquire(keys, key()?, argument(0)?, number(1)?).await?;
            Ok(answer.of(is_done, 1))
        }
        Operation::ExpireOrAcquireIf => {
            let may_acquire = argument(2)?.as_ref() == b"yes";
            let is_done = expire_if_equal(1).await?
                || may_acquire && acquire(keys, key()?, argument(0)?, number(1)?).await?;
            Ok(Answer::OkOrNull.of(is_done, 1))
        }
        Operation::Extend => {
            let (ms, adds) = (number(1)?, argument(2)?.as_ref() == b"0");
            let life = |remaining: Option<Duration>| {
                let left = remaining.filter(|_| adds).unwrap_or_default().as_millis();
                let left = i64::try_from(left).unwrap_or(i64::MAX);
                life_of_ms(ms.saturating_add(left))
            };
            let expired = operations::expire(keys, key()?, Some(argument(0)?), ExpireIf::Some, life);
            Ok(Reply::flag(expired.await? == Expired::Changed))
        }
        Operation::ValueAndTtl => {
            let entry = keys.read(key()?).await?;
            let value = entry
                .as_ref()
                .map_or(Reply::Null, |entry| Reply::Bulk(entry.value()));
            let ttl = Reply::Integer(pttl_of(keys, entry.as_ref()));
            Ok(Reply::Array(vec![value, ttl]))
        }
        Operation::TtlIfEqual => {
            let entry = keys.read(key()?).await?;
            let value = argument(0)?;
            let is_equal = entry
                .as_ref()
                .is_some_and(|entry| entry.lease_with(value).is_some());
            Ok(Reply::Integer(match is_equal {
                true => pttl_of(keys, entry.as_ref()),
                false => -3,
            }))
        }
        Operation::AcquireAll => {
            let life = life_of_ms(number(1)?);
            let acquired = several::acquire_all(keys, names, argument(0)?, life).await?;
            Ok(Reply::count(acquired))
        }
        Operation::ObtainAll => {
            let beginning = usize::try_from(number(1)?).unwrap_or_default();
            let life = life_of_ms(number(2)?);
            let is_done = several::obtain_all(keys, names, argument(0)?, beginning, life).await?;
            Ok(Answer::OkOrNull.of(is_done, names.len()))
        }
        Operation::ExtendAll(answer) => {
            let life = life_of_ms(number(1)?);
            let is_done = several::extend_all(keys, names, argument(0)?, life).await?;
            Ok(answer.of(is_done, names.len()))
        }
        Operation::ReleaseAll => {
            let released = several::release_all(keys, names, argument(0)?).await?;
            Ok(Reply::count(released))
        }
        Operation::ReleaseAllOrNone => {
            let is_done = several::release_all_or_none(keys, names, argument(0)?).await?;
            Ok(Answer::OkOrNull.of(is_done, names.len()))
        }
        Operation::TtlOfAll => {
            let ttl = several::ttl_of_all(keys, names, argument(0)?).await?;
            Ok(ttl.map_or(Reply::Null, Reply::Integer))
        }
        Operation::Unlock => Ok(Reply::flag(!delete_if_equal().await?)),
        Operation::ExtendSeconds => {
            let life = life_of_ms(number(1)?.saturating_mul(1_000));
            let expired = operations::expire(keys, key()?, Some(argument(0)?), ExpireIf::Some, |_| life);
            Ok(Reply::Integer(match expired.await? {
                Expired::Changed => 0,
                Expired::Missing => 1,
                Expired::NotMet => 2,
            }))
        }
        Operation::ResetAll => {
            let mut deleted = 0;
            for name in listing::keys(keys, b"lock:*", MAX_LISTED_KEYS)? {
                deleted += usize::from(operations::delete(keys, &name, None).await?);
            }
            Ok(Reply::count(deleted))
        }
        Operation::Enter => {
            let expiry = expiry_of(number(0)?)?;
            Ok(
                match reentrant::enter(keys, key()?, argument(1)?, expiry).await? {
                    Entered::Holds => Reply::Null,
                    Entered::Busy(ms) => Reply::Integer(ms),
                },
            )
        }
        Operation::EnterFenced => {
            let expiry = expiry_of(number(0)?)?;
            let (ms, token) = match reentrant::enter(keys, key()?, argument(1)?, expiry).await? {
                Entered::Holds => (-1, operations::token(keys, key()?).await?.unwrap_or(-1)),
                Entered::Busy(ms) => (ms, -1),
            };
            Ok(Reply::Array(vec![Reply::Integer(ms), Reply::Integer(token)]))
        }
        Operation::Leave(Leave { holder, ms, id }) => {
            let expiry = expiry_of(number(ms)?)?;
            let id = id.map(key_at).transpose()?.map(|id| id.as_ref());
            let is_free = reentrant::leave(keys, key()?, argument(holder)?, expiry, id).await?;
            Ok(is_free.map_or(Reply::Null, Reply::flag))
        }
        Operation::Renew => {
            let expiry = expiry_of(number(0)?)?;
            let is_renewed = reentrant::renew(keys, key()?, argument(1)?, expiry).await?;
            Ok(Reply::flag(is_renewed))
        }
        Operation::RenewAll => {
            let expiry = expiry_of(number(0)?)?;
            let mut renewed = Vec::with_capacity(names.len());
            for (index, name) in names.iter().enumerate() {
                let is_renewed = reentrant::renew(keys, name, argument(index + 1)?, expiry).await?;
                renewed.push(Reply::flag(is_renewed));
            }
            Ok(Reply::Array(renewed))
        }
    }
}

/// Sets a key that does not exist, with a time to live in milliseconds. Returns whether it did.
async fn acquire(keys: &Keys<'_>, key: &[u8], value: &[u8], ms: i64) -> Result<bool, Failure> {
    let options = SetOptions {
        condition: SetIf::Absent,
        returns_former: false,
        life: Life::For(expiry_of(ms)?),
    };
    Ok(operations::set(keys, key, value, &options).await? == Reply::OK)
}

/// Returns the expiry for a number of milliseconds from now.
fn expiry_of(ms: i64) -> Result<Expiry, Failure> {
    match life_of_ms(ms) {
        Life::For(expiry) => Ok(expiry),
        Life::Kept | Life::Over => Err(Failure::error("ERR invalid expire time in the script")),
    }
}

/// Reads a number as Lua passes it to a command: some libraries send a fraction of zero.
fn whole(bytes: &[u8]) -> Result<i64, Failure> {
    let text = std::str::from_utf8(bytes).ok();
    let number = text
        .and_then(|text| text.parse::<f64>().ok())
        .filter(|number| number.is_finite());
    let number = number.ok_or_else(|| Failure::error("ERR value is not an integer or out of range"))?;
    Ok(number as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha1_is_hexadecimal() {
        assert_eq!(sha1_of(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert!(load(&ScriptCache::default(), b"abc").is_err());
    }
}
