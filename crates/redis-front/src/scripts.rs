//! Scripts of known libraries, recognised by the SHA-1 of their text. There is no Lua interpreter: the table says in words what each script
//! does, and an operation does it. `tools/redis-scripts` computes the SHA-1s from the libraries' packages.

use std::time::Duration;

use bytes::Bytes;
use sha1::{Digest as _, Sha1};

use crate::config::MAX_LISTED_KEYS;
use crate::keys::{Change, Entry, Expiry, Failure, Keys, Value};
use crate::listing;
use crate::operations::{self, ExpireIf, Expired, Life, life_of_ms};
use crate::reply::Reply;

/// Maximum number of looks at locks that another node is acquiring for the same client.
const MAX_LOOKS: usize = 20;

/// Time between two of them.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Effect of a script. `V` is the first argument, the value that the caller's lock has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    /// Deletes the key if its value is `V`: 1 or 0.
    DeleteIfEqual,
    /// Gives the key a time to live (second argument, ms) if its value is `V`: 1 or 0.
    ExpireIfEqual,
    /// As `ExpireIfEqual`, but only if the key expires at all; adds to the remaining time unless the third argument is `1`.
    Extend,
    /// Sets all keys to `V` with a time to live (second argument, ms) if none of them exists: the number of keys, or 0.
    AcquireAll,
    /// Gives all keys a time to live (second argument, ms) if all have the value `V`: the number of keys, or 0.
    ExtendAll,
    /// Deletes those keys whose value is `V`: their number.
    ReleaseAll,
    /// python-redis-lock: deletes the first key if its value is `V`, and wakes waiters at the second key. 0, or 1 if the value differs.
    Unlock,
    /// python-redis-lock: gives the first key a time to live (second argument, s) if its value is `V`. 0; 1 if the value differs; 2 if it
    /// never expires.
    ExtendSeconds,
    /// python-redis-lock: deletes the first key whatever its value is, and wakes waiters at the second key. The number of deleted keys.
    Reset,
    /// python-redis-lock: deletes all keys that begin with `lock:`. Their number.
    ResetAll,
}

/// A known script.
struct Script {
    sha1: &'static str,
    operation: Operation,
}

const fn script(sha1: &'static str, operation: Operation) -> Script {
    Script { sha1, operation }
}

/// Known scripts, by library.
const SCRIPTS: [Script; 15] = [
    // redis-py 3.5 to 8.1, `Lock`, synchronous and asyncio: release, extend, reacquire. Celery's redbeat uses the first one, too.
    script(
        "c3f8721cbb97f72bc19e972846bd7aaf91901658",
        Operation::DeleteIfEqual,
    ),
    script("a4e8783852e6b949f9ef3a97212805108459a890", Operation::Extend),
    script(
        "1cac51482acf5858da00f6d685d68f886cd6b6b2",
        Operation::ExpireIfEqual,
    ),
    // node-redlock 5: acquire, extend, release.
    script("96da70f7716f27d278a5218544df37fd8b0a5e4c", Operation::AcquireAll),
    script("aed6f382e410db8ba7926d4e5e9aab410bf2a78a", Operation::ExtendAll),
    script("e4612211c9f8f51c257e26e056b0a654b3187242", Operation::ReleaseAll),
    // node-redlock 4: the same.
    script("e5a322e2634ef59a516e8ea150cb085afafee684", Operation::AcquireAll),
    script("ce46f80993d5dac20dd066eb301a4e37994bdbed", Operation::ExtendAll),
    script("0f0f23b9048b36752b5be114f357ba083449f908", Operation::ReleaseAll),
    // redis-semaphore 5, mutex: release, refresh.
    script(
        "7157921a7cc7cfba979acf6d63f073151df17d12",
        Operation::DeleteIfEqual,
    ),
    script(
        "594683e49a64ebaf975caf5f8079a1d097c438f1",
        Operation::ExpireIfEqual,
    ),
    // python-redis-lock 3.7 and 4: unlock, extend, reset, reset all.
    script("90da91872223f85eb1376a17e3c4df21ace8c54b", Operation::Unlock),
    script(
        "fed16109024d968d9496e4140fe1355bac05ebff",
        Operation::ExtendSeconds,
    ),
    script("afbc8014508f92e446b56567e8ba600e811c1bd5", Operation::Reset),
    script("b121d3548d693116c3851b63befe947e49f28c7c", Operation::ResetAll),
];

/// Returns the SHA-1 of a script in hexadecimal digits.
pub(crate) fn sha1_of(text: &[u8]) -> String {
    Sha1::digest(text)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Returns whether a script is known.
pub(crate) fn is_known(sha1: &[u8]) -> bool {
    find(sha1).is_some()
}

fn find(sha1: &[u8]) -> Option<Operation> {
    let known = SCRIPTS
        .iter()
        .find(|known| sha1.eq_ignore_ascii_case(known.sha1.as_bytes()))?;
    Some(known.operation)
}

/// Returns the error for a script that is not known.
pub(crate) fn unknown(sha1: &str) -> Failure {
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
    let operation = find(sha1)?;
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
    let key = || {
        names
            .first()
            .ok_or_else(|| Failure::error("ERR the script needs a key"))
    };
    let number = |index: usize| argument(index).and_then(|bytes| whole(bytes));
    let count = |count: usize| Reply::Integer(i64::try_from(count).unwrap_or(i64::MAX));
    match operation {
        Operation::DeleteIfEqual => {
            let is_deleted = operations::delete(keys, key()?, Some(argument(0)?)).await?;
            Ok(Reply::flag(is_deleted))
        }
        Operation::ExpireIfEqual => {
            let life = life_of_ms(number(1)?);
            let expired = operations::expire(keys, key()?, Some(argument(0)?), ExpireIf::Always, |_| life);
            Ok(Reply::flag(expired.await? == Expired::Changed))
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
        Operation::AcquireAll => {
            let life = life_of_ms(number(1)?);
            acquire_all(keys, names, argument(0)?, life).await.map(count)
        }
        Operation::ExtendAll => {
            let (value, life) = (argument(0)?, life_of_ms(number(1)?));
            for name in names {
                let entry = keys.read(name).await?;
                if entry.is_none_or(|entry| entry.lease_with(value).is_none()) {
                    return Ok(Reply::Integer(0));
                }
            }
            for name in names {
                let expired = operations::expire(keys, name, Some(value), ExpireIf::Always, |_| life);
                if expired.await? != Expired::Changed {
                    return Ok(Reply::Integer(0));
                }
            }
            Ok(count(names.len()))
        }
        Operation::ReleaseAll => {
            let mut released = 0;
            for name in names {
                released += usize::from(operations::delete(keys, name, Some(argument(0)?)).await?);
            }
            Ok(count(released))
        }
        Operation::Unlock => {
            let is_deleted = operations::delete(keys, key()?, Some(argument(0)?)).await?;
            Ok(Reply::flag(!is_deleted))
        }
        Operation::ExtendSeconds => {
            let life = life_of_ms(number(1)?.saturating_mul(1_000));
            let expired = operations::expire(keys, key()?, Some(argument(0)?), ExpireIf::Some, |_| life);
            Ok(Reply::Integer(match expired.await? {
                Expired::Changed => 0,
                Expired::Missing => 1,
                Expired::NotMet => 2,
            }))
        }
        Operation::Reset => {
            let is_deleted = operations::delete(keys, key()?, None).await?;
            Ok(Reply::flag(is_deleted))
        }
        Operation::ResetAll => {
            let mut deleted = 0;
            for name in listing::keys(keys, b"lock:*", MAX_LISTED_KEYS)? {
                deleted += usize::from(operations::delete(keys, &name, None).await?);
            }
            Ok(count(deleted))
        }
    }
}

/// Acquires all locks, or none. Other clients can find some of them in use meanwhile, and no client can hold a lock that another one holds.
///
/// A client of Redlock sends the same to several nodes, which must not release what another of them has acquired. So the locks are acquired
/// only if all are free, and confirmed only if all have the value; while some have it, another node is acquiring them.
async fn acquire_all(keys: &Keys<'_>, names: &[Bytes], value: &Bytes, life: Life) -> Result<usize, Failure> {
    let text = Value::parse(value)?;
    let Life::For(expiry) = life else {
        return Err(Failure::error("ERR invalid expire time in 'set' command"));
    };
    let changes: Result<Vec<_>, Failure> = names.iter().map(|name| keys.change(name)).collect();
    let (mut changes, mut was_refused) = (changes?, false);
    for _ in 0..MAX_LOOKS {
        let mut entries = Vec::with_capacity(names.len());
        for change in &mut changes {
            entries.push(change.read().await?);
        }
        if entries.iter().all(Option::is_none) {
            match acquire_free(&changes, &text, expiry).await? {
                // Another client was faster, perhaps the same one at another node. If all are free again, they are drained or closed.
                0 if !std::mem::replace(&mut was_refused, true) => continue,
                count => return Ok(count),
            }
        }
        let lease = |entry: &Entry| entry.lease_with(value).cloned();
        let of_others = |entry: &Entry| lease(entry).is_none();
        if entries.iter().flatten().any(of_others) {
            return Ok(0);
        }
        let leases: Option<Vec<_>> = entries
            .iter()
            .map(|entry| entry.as_ref().and_then(lease))
            .collect();
        let Some(leases) = leases else {
            tokio::time::sleep(LOOK_INTERVAL).await;
            continue;
        };
        let mut are_confirmed = true;
        for (change, lease) in changes.iter().zip(&leases) {
            match change.confirm(lease, expiry).await? {
                None => return Ok(0),
                Some(is_confirmed) => are_confirmed &= is_confirmed,
            }
        }
        if are_confirmed {
            return Ok(names.len());
        }
    }
    Ok(0)
}

/// Acquires free locks one after the other. If one of them is in use by then, releases the others again.
async fn acquire_free(changes: &[Change<'_>], value: &Value<'_>, expiry: Expiry) -> Result<usize, Failure> {
    let mut acquired = Vec::with_capacity(changes.len());
    for change in changes {
        let outcome = change.acquire(value, expiry).await;
        if let Ok(Some(lease)) = outcome {
            acquired.push((change, lease));
            continue;
        }
        for (change, lease) in acquired {
            change.release_own(lease, value.as_bytes()).await?;
        }
        return outcome.map(|_| 0);
    }
    Ok(acquired.len())
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
    fn sha1_is_found_in_either_case() {
        let own = SCRIPTS[0].sha1;
        assert!(is_known(own.as_bytes()) && is_known(own.to_uppercase().as_bytes()));
        assert!(!is_known(b"") && !is_known(&own.as_bytes()[1..]));
        assert_eq!(sha1_of(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        for known in &SCRIPTS {
            assert!(
                known.sha1.len() == 40
                    && known
                        .sha1
                        .bytes()
                        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
            );
        }
    }
}
