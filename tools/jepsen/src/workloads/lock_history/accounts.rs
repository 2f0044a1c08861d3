//! Accounts of the servers after the run: whether all locks are free again, and the history of holders that
//! each node has.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use lockgate_check::holds::{End, Gap, History, Hold, Mode};
use serde_json::Value;

use crate::client::{CallResult, Caller, Reply};
use crate::systems::caller;
use crate::world::World;

/// Time limit within which the locks of crashed clients must become free after the end of a run: the
/// session's TTL, an election, and the TTL again, with a wide margin for a slow machine.
const FREE_WITHIN: Duration = Duration::from_secs(15);

/// Interval between two queries.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Time limit of a query of a node that has just been restarted.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// Number of holds per page: the maximum.
const PAGE: usize = 1000;

/// Waits until no lock has a holder or a waiter; describes the locks that are not free in time.
pub async fn all_free(world: &World, locks: &[String]) -> Result<Vec<String>> {
    let mut caller = caller(world, 0);
    let deadline = tokio::time::Instant::now() + FREE_WITHIN;
    loop {
        let mut left = Vec::new();
        for lock in locks {
            let path = format!("/v1/locks/{lock}?linearizable=true");
            let view = match query(&mut caller, &path).await? {
                None => continue,
                Some(view) => view,
            };
            let is_empty = |field: &str| view[field].as_array().is_some_and(Vec::is_empty);
            if !is_empty("holders") || !is_empty("queue") {
                left.push(format!(
                    "lock {lock} is still not free {FREE_WITHIN:?} after the run: {view}"
                ));
            }
        }
        if left.is_empty() || tokio::time::Instant::now() > deadline {
            return Ok(left);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Returns the history of the locks from every node.
pub async fn of_all_nodes(world: &World, locks: &[String]) -> Result<Vec<History>> {
    let mut accounts = Vec::new();
    for endpoint in world.endpoints.iter() {
        let mut caller = Caller::to_one(endpoint.http);
        let mut account = History::default();
        for lock in locks {
            read_lock(&mut caller, lock, &mut account)
                .await
                .with_context(|| format!("node {}'s history of {lock}", endpoint.node))?;
        }
        accounts.push(account);
    }
    Ok(accounts)
}

/// Queries a lock; `None` if it does not exist.
async fn query(caller: &mut Caller, path: &str) -> Result<Option<Value>> {
    let deadline = tokio::time::Instant::now() + ANSWER_WITHIN;
    loop {
        match caller.get(path).await {
            Reply::Refused(code, _) if code == "no_lock" => return Ok(None),
            reply => match reply.done() {
                CallResult::Ok(document) => return Ok(Some(document)),
                CallResult::Failed(why) | CallResult::Unknown(why)
                    if tokio::time::Instant::now() > deadline =>
                {
                    bail!("{path}: {why}")
                }
                CallResult::Failed(_) | CallResult::Unknown(_) => tokio::time::sleep(POLL_INTERVAL).await,
            },
        }
    }
}

async fn read_lock(caller: &mut Caller, lock: &str, account: &mut History) -> Result<()> {
    let mut before: Option<String> = None;
    loop {
        let mut path = format!("/v1/locks/{lock}/history?linearizable=true&limit={PAGE}");
        if let Some(before) = &before {
            path.push_str(&format!("&cursor={before}"));
        }
        let page = query(caller, &path).await?.context("a node without a history")?;
        for entry in page["history"].as_array().context("no history in the answer")? {
            account
                .holds
                .push(hold(lock, entry).with_context(|| entry.to_string())?);
        }
        for gap in page["gaps"].as_array().context("no gaps in the answer")? {
            add_gap(account, time(&gap["from_at"])?, time(&gap["until_at"])?);
        }
        if !page["since_at"].is_null() {
            add_gap(account, 0, time(&page["since_at"])?);
        }
        match page["next_cursor"].as_str() {
            Some(next) => before = Some(next.to_owned()),
            None => return Ok(()),
        }
    }
}

/// Adds a gap unless it is known: all locks of a node have the same gaps, and each page lists them.
fn add_gap(account: &mut History, after: u64, until: u64) {
    let gap = Gap { after, until };
    if !account.gaps.contains(&gap) {
        account.gaps.push(gap);
    }
}

/// Parses one entry. Positions are times of the log in milliseconds, which never decrease.
fn hold(lock: &str, entry: &Value) -> Result<Hold> {
    let permits = |name: &str| {
        let number = entry[name].as_u64().context("no number of permits")?;
        u32::try_from(number).context("too many permits")
    };
    let token = entry["fencing_token"].as_u64().context("no token")?;
    Ok(Hold {
        lock: lock.to_owned(),
        contender: entry["holder"].as_str().context("no holder")?.to_owned(),
        mode: match entry["mode"].as_str() {
            Some("exclusive") => Mode::Exclusive,
            Some("shared") => Mode::Shared,
            Some("upgradeable") => Mode::Upgradeable,
            Some("semaphore") => Mode::Permits {
                permits: permits("permits")?,
                limit: permits("limit")?,
            },
            _ => bail!("an unknown mode"),
        },
        token,
        // A token is the position at which its contender was created, since no client upgrades here.
        arrived: Some(token),
        began: match &entry["from_at"] {
            Value::Null => None,
            at => Some(time(at)?),
        },
        end: match entry["ended"].as_str() {
            None => End::Lasting,
            Some("unknown") => End::Hidden {
                not_before: time(&entry["last_held_at"])?,
                not_after: time(&entry["gone_at"])?,
            },
            Some(_) => End::At(time(&entry["until_at"])?),
        },
    })
}

/// Returns milliseconds since 1970.
fn time(at: &Value) -> Result<u64> {
    let at = at.as_str().context("no time")?;
    let time = humantime::parse_rfc3339(at).with_context(|| format!("the time {at}"))?;
    let since = time
        .duration_since(std::time::UNIX_EPOCH)
        .context("before 1970")?;
    u64::try_from(since.as_millis()).context("a time out of range")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn entry_is_parsed_with_its_times() {
        let entry = json!({
            "holder": "a", "mode": "semaphore", "permits": 2, "limit": 5, "fencing_token": 17,
            "from_at": "1970-01-01T00:00:01.250Z", "until_at": "1970-01-01T00:00:02.000Z", "ended": "released",
        });
        let hold = hold("x", &entry).expect("the entry is complete");
        assert_eq!(hold.began, Some(1250));
        assert_eq!(hold.end, End::At(2000));
        assert_eq!(hold.mode, Mode::Permits { permits: 2, limit: 5 });
    }

    #[test]
    fn unknown_times_of_a_hold_stay_unknown() {
        let entry = json!({
            "holder": "a", "mode": "exclusive", "fencing_token": 17, "from_at": null, "until_at": null,
            "ended": "unknown", "last_held_at": "1970-01-01T00:00:01Z", "gone_at": "1970-01-01T00:00:02Z",
        });
        let hold = hold("x", &entry).expect("the entry is complete");
        assert_eq!(
            (hold.began, hold.end),
            (
                None,
                End::Hidden {
                    not_before: 1000,
                    not_after: 2000
                }
            )
        );
        assert!(super::hold("x", &json!({"holder": "a"})).is_err());
    }
}
