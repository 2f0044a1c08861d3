//! Checker of contenders whose place in a queue, and whose hold, belong to a lease or a session and
//! to no connection. A contender lives as long as the last renewal promised, unless its client
//! leaves or its hold reaches its maximum time. It is granted its exclusive lock at most once, in
//! order of arrival, and not within the minimum time of an earlier hold.
//!
//! [`holds`](crate::holds) checks the servers' own record. This checker knows what clients learned,
//! and when.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::client_view::Belief;
use crate::history::{ClientId, Nanos, seconds};
use crate::holds::Mode;
use crate::sessions::Rules;
use crate::verdict::Verdict;

mod life;

use life::Life;

/// Contender for an exclusive lock, with all evidence about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contender {
    /// Name of the lock.
    pub lock: String,
    /// Name of the contender.
    pub holder: String,
    /// Client that requested it.
    pub client: ClientId,
    /// Id of the request that created it.
    pub request: String,
    /// Time just before the first copy of that request was sent.
    pub requested: Nanos,
    /// Time at which the answer arrived: the contender had its place by then.
    pub answered: Nanos,
    /// Longest time to live that its client requested, if every renewal is in the evidence. Then a
    /// silent contender must end in time.
    pub ttl: Option<Nanos>,
    /// Minimum time of its hold: within that time nobody else is granted the lock.
    pub min_hold: Nanos,
    /// Maximum time of its hold, whatever renewals there are.
    pub max_hold: Option<Nanos>,
    /// Evidence, in any order.
    pub evidence: Vec<Evidence>,
}

/// One request, and what its answer says of a contender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Time just before the request was sent.
    pub invoked: Nanos,
    /// Time just after the answer arrived, or at which the client gave up.
    pub returned: Nanos,
    /// Fact that the answer shows.
    pub fact: Fact,
}

/// Fact about a contender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// A confirmed acquire or renewal: the contender lives at least until this time.
    Promised(Nanos),
    /// The client sent a renewal, and its outcome is unknown.
    Attempted,
    /// A linearizable read found it alive.
    Alive,
    /// A linearizable read found it alive and waiting.
    Waiting,
    /// It has been granted the lock with this fencing token. The answer may be old: the hold may
    /// have ended since.
    Granted(u64),
    /// The client sent its first request to release or withdraw it.
    Leaving,
    /// The answer to the first such request: it is gone.
    Left,
    /// A server reported that it is gone, for this reason if the server knew it.
    Gone(Option<End>),
}

/// Reason that a server gave for the end of a contender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// Its client released it, withdrew it or closed its session.
    ByClient,
    /// Its lease or session was not renewed in time.
    Expired,
    /// Its hold reached its maximum time.
    MaxHold,
    /// Anything else, which nobody requests in these runs: a break, a deleted znode.
    Other(String),
}

/// Checks all rules.
pub fn check(contenders: &[Contender], rules: &Rules) -> Verdict {
    let mut locks: BTreeMap<&str, Vec<&Contender>> = BTreeMap::new();
    for contender in contenders {
        locks.entry(&contender.lock).or_default().push(contender);
    }
    let mut lines = Vec::new();
    for (lock, contenders) in locks {
        let lives = lives_of(&contenders);
        let mut of_lock: Vec<String> = lives.iter().flat_map(|life| life.contradictions(rules)).collect();
        of_lock.extend(doubles(&lives));
        of_lock.extend(overtaking(&lives));
        of_lock.extend(grants_in_min_hold(&lives));
        lines.extend(of_lock.into_iter().map(|line| format!("lock {lock}: {line}")));
    }
    Verdict::of(lines)
}

/// Returns the holds in which the clients believed, each up to its own deadline.
pub fn beliefs(contenders: &[Contender]) -> Vec<Belief> {
    let beliefs = contenders.iter().filter_map(|contender| {
        let life = Life::of(contender);
        let granted = life.granted?;
        Some(Belief {
            lock: contender.lock.clone(),
            client: contender.client,
            mode: Mode::Exclusive,
            token: granted.token,
            granted: granted.by,
            released: life.leaving,
            deadline: life.promised.min(life.max_hold_over()),
        })
    });
    beliefs.collect()
}

/// Returns the lives of the contenders for one lock. A contender was granted the lock after every
/// hold with a smaller token had ended, so evidence of those bounds its own grant.
fn lives_of<'a>(contenders: &[&'a Contender]) -> Vec<Life<'a>> {
    let mut lives: Vec<Life<'_>> = contenders.iter().map(|contender| Life::of(contender)).collect();
    lives.sort_by_key(|life| life.granted.map(|granted| granted.token));
    let mut held_until = 0;
    for life in &mut lives {
        if let Some(granted) = &mut life.granted {
            granted.after = granted.after.max(held_until);
            held_until = held_until.max(life.known_alive);
        }
    }
    lives
}

/// Reports a request with two contenders, and a token of two contenders.
fn doubles(lives: &[Life<'_>]) -> Vec<String> {
    let mut requests: BTreeMap<&str, &Life<'_>> = BTreeMap::new();
    let mut tokens: BTreeMap<u64, &Life<'_>> = BTreeMap::new();
    let mut lines = Vec::new();
    for life in lives {
        let request = life.contender.request.as_str();
        if let Some(other) = requests.insert(request, life) {
            lines.push(format!(
                "request {request} has two contenders: {} and {}",
                other.name(),
                life.name()
            ));
        }
        if let Some(granted) = life.granted
            && let Some(other) = tokens.insert(granted.token, life)
        {
            lines.push(format!(
                "{} was granted the lock with the token {} of {}",
                life.name(),
                granted.token,
                other.name()
            ));
        }
    }
    lines
}

/// Reports contenders that were granted the lock before one that had certainly arrived earlier and
/// still waited.
fn overtaking(lives: &[Life<'_>]) -> Vec<String> {
    let mut lines = Vec::new();
    for before in lives {
        let waits_at = before
            .waiting
            .into_iter()
            .chain(before.granted.map(|granted| granted.after));
        let Some(waits_at) = waits_at.max() else {
            continue;
        };
        let overtakes = |life: &&Life<'_>| {
            let earlier_token = |token| before.granted.is_some_and(|before| token < before.token);
            life.contender.requested > before.contender.answered
                && life
                    .granted
                    .is_some_and(|granted| granted.by < waits_at || earlier_token(granted.token))
        };
        if let Some(after) = lives.iter().find(overtakes) {
            lines.push(format!(
                "{}, requested at {}, was granted the lock before {}, which was in the queue at {} and waited at {}",
                after.name(),
                seconds(after.contender.requested),
                before.name(),
                seconds(before.contender.answered),
                seconds(waits_at),
            ));
        }
    }
    lines
}

/// Reports grants within the minimum time of an earlier hold. The lives are in order of their
/// tokens.
fn grants_in_min_hold(lives: &[Life<'_>]) -> Vec<String> {
    let mut lines = Vec::new();
    // The earliest of all later grants, from the last hold backwards.
    let mut earliest: Option<(Nanos, &Life<'_>)> = None;
    for life in lives.iter().rev() {
        let Some(granted) = life.granted else { continue };
        let open = granted.after + life.contender.min_hold;
        if let Some((by, next)) = earliest
            && by < open
        {
            lines.push(format!(
                "{} was granted the lock by {}, although {}, granted after {}, closes it until {}",
                next.name(),
                seconds(by),
                life.name(),
                seconds(granted.after),
                seconds(open),
            ));
        }
        if earliest.is_none_or(|(by, _)| granted.by < by) {
            earliest = Some((granted.by, life));
        }
    }
    lines
}

#[cfg(test)]
mod tests;
