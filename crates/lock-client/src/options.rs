//! Options of acquire calls, for one lock or several. `acquire.rs` sends them.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::encode::millis;

/// Longest wait that the API accepts as a number: seven days.
const LONGEST_WAIT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Mode of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mode {
    /// One holder.
    Exclusive,
    /// Any number of holders, none of them exclusive.
    Shared,
    /// One of the readers, which can become exclusive.
    Upgradeable,
    /// Holders whose permits add up to at most a limit.
    Semaphore,
    /// A mode that this version of the client does not know.
    #[serde(other)]
    Unknown,
}

impl Mode {
    /// Returns the word of the API.
    pub fn word(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Upgradeable => "upgradeable",
            Self::Semaphore => "semaphore",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Wait of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// Fail at once.
    Try,
    /// Wait for this time, at most seven days.
    AtMost(Duration),
    /// Wait until the lock is granted.
    Forever,
}

impl Wait {
    /// Limits the wait to the longest that the API accepts.
    pub(crate) fn bounded(self) -> Self {
        match self {
            Self::AtMost(time) => Self::AtMost(time.min(LONGEST_WAIT)),
            Self::Try | Self::Forever => self,
        }
    }
}

/// Options of an acquire. By default a call waits until the lock is granted, and two acquires of one session exclude each other as those
/// of two sessions do.
#[derive(Debug, Clone)]
#[must_use = "options acquire nothing by themselves"]
pub struct AcquireOptions {
    pub(crate) wait: Wait,
    /// Fields of the request, without the session, the wait and the request id.
    pub(crate) parameters: Map<String, Value>,
}

impl AcquireOptions {
    /// One holder.
    pub fn exclusive() -> Self {
        Self::in_mode(Mode::Exclusive)
    }

    /// Any number of holders, none of them exclusive.
    pub fn shared() -> Self {
        Self::in_mode(Mode::Shared)
    }

    /// One of the readers, and the only one that can become exclusive: see [`crate::LockGuard::upgrade`].
    pub fn upgradeable() -> Self {
        Self::in_mode(Mode::Upgradeable)
    }

    /// One of `limit` permits. All users of a semaphore name the same limit.
    pub fn semaphore(limit: u32) -> Self {
        Self::semaphore_of_any_limit().with("limit", limit)
    }

    /// One permit of a semaphore that is in use, or whose limit was set ([`crate::LockClient::set_limit`]), with any limit.
    pub fn semaphore_of_any_limit() -> Self {
        let mut options = Self::in_mode(Mode::Semaphore);
        options.parameters.remove("reentrant");
        options
    }

    fn in_mode(mode: Mode) -> Self {
        let options = Self {
            wait: Wait::Forever,
            parameters: Map::new(),
        };
        options.with("mode", mode.word()).with("reentrant", false)
    }

    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.parameters.insert(name.to_owned(), value.into());
        self
    }

    /// Sets the number of permits of a semaphore, granted together.
    pub fn permits(self, permits: u32) -> Self {
        self.with("permits", permits)
    }

    /// Fails at once if the lock is not free.
    pub fn try_only(mut self) -> Self {
        self.wait = Wait::Try;
        self
    }

    /// Waits at most for `time`, up to seven days.
    pub fn wait_at_most(mut self, time: Duration) -> Self {
        self.wait = Wait::AtMost(time).bounded();
        self
    }

    /// Re-enters at once if the session holds the lock (not a semaphore) for the same `owner`. Each acquire is a guard of its own, and the
    /// lock is free when the last guard is released.
    pub fn reentrant(self, owner: &str) -> Self {
        self.with("owner", owner).with("reentrant", true)
    }

    /// Sets the owner within the session, without re-entry. The cluster detects deadlocks between owners, and refuses the call that would
    /// complete one.
    pub fn owner(self, owner: &str) -> Self {
        self.with("owner", owner)
    }

    /// Returns the named owner.
    pub(crate) fn owner_name(&self) -> Option<String> {
        Some(self.parameters.get("owner")?.as_str()?.to_owned())
    }

    /// Returns the named owner of a call that does not re-enter and waits without a bound.
    pub(crate) fn waiting_owner(&self) -> Option<&str> {
        let owner = self.parameters.get("owner")?.as_str()?;
        let enters_again = self.parameters.get("reentrant").and_then(Value::as_bool) == Some(true);
        (self.wait == Wait::Forever && !enters_again).then_some(owner)
    }

    /// Returns whether the wanted mode excludes this hold.
    pub(crate) fn excludes(&self, held: Mode) -> bool {
        let wanted = self.parameters.get("mode").and_then(Value::as_str);
        match held {
            Mode::Exclusive => wanted != Some("semaphore"),
            Mode::Upgradeable => matches!(wanted, Some("exclusive" | "upgradeable")),
            Mode::Shared => wanted == Some("exclusive"),
            Mode::Semaphore | Mode::Unknown => false,
        }
    }

    /// Sets a text that is shown with the lock.
    pub fn note(self, note: &str) -> Self {
        self.with("note", note)
    }

    /// Keeps the lock closed for this time (at most a minute) after the session *expires* with it, because writes of this program may still
    /// be on their way to a storage that does not check tokens. After a release, a break or a close the next waiter gets the lock at once.
    pub fn lock_delay(self, delay: Duration) -> Self {
        self.with("lock_delay_ms", millis(delay))
    }

    /// Keeps the lock closed for other contenders for this time after the grant (at most seven days), even if it is released early: for jobs
    /// on several machines whose clocks differ. Needs the mode exclusive.
    pub fn min_hold(self, time: Duration) -> Self {
        self.with("min_hold_ms", millis(time))
    }

    /// Ends the hold this time after the grant (at most seven days), even if heartbeats continue: against a program that hangs. Its guard
    /// is lost with [`Loss::MaxHold`](crate::Loss::MaxHold).
    pub fn max_hold(self, time: Duration) -> Self {
        self.with("max_hold_ms", millis(time))
    }

    /// Shares a queue with clients of ZooKeeper that use this recipe. The default is Curator's `InterProcessMutex` for exclusive locks,
    /// and `InterProcessReadWriteLock` for other modes.
    pub fn names(self, names: ContenderNames) -> Self {
        self.with("names", names.word())
    }
}

/// Lock recipes of ZooKeeper's clients that can share a queue with Lockgate. Each recipe finds only contenders with its own names, so use
/// one recipe for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContenderNames {
    /// Curator's `InterProcessMutex`.
    Mutex,
    /// Curator's `InterProcessReadWriteLock`.
    ReadWrite,
    /// kazoo's `Lock`, `ReadLock` and `WriteLock`.
    Kazoo,
}

impl ContenderNames {
    fn word(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::ReadWrite => "read_write",
            Self::Kazoo => "kazoo",
        }
    }
}

/// Set of locks that are acquired together: all, or none. Of two such calls one is ahead of the other in every common lock, so they never
/// wait for each other.
#[derive(Debug, Clone)]
#[must_use = "a set acquires nothing by itself"]
pub struct LockSet {
    pub(crate) wait: Wait,
    pub(crate) locks: Vec<Value>,
    /// Fields that all locks share.
    pub(crate) parameters: Map<String, Value>,
}

impl Default for LockSet {
    fn default() -> Self {
        Self::new()
    }
}

impl LockSet {
    /// Empty set.
    pub fn new() -> Self {
        Self {
            wait: Wait::Forever,
            locks: Vec::new(),
            parameters: Map::new(),
        }
    }

    /// Adds a lock (64 at most). Of the options only mode, permits, lock-delay and re-entry count; wait, owner and note belong to the set.
    /// The cluster refuses bounds of a hold ([`AcquireOptions::max_hold`]) in a set.
    pub fn with(mut self, lock: &str, options: AcquireOptions) -> Self {
        let mut parameters = options.parameters;
        for of_all in ["owner", "note"] {
            parameters.remove(of_all);
        }
        parameters.insert("name".to_owned(), lock.into());
        self.locks.push(Value::Object(parameters));
        self
    }

    /// Fails at once if not all locks are free.
    pub fn try_only(mut self) -> Self {
        self.wait = Wait::Try;
        self
    }

    /// Waits at most for `time`, up to seven days.
    pub fn wait_at_most(mut self, time: Duration) -> Self {
        self.wait = Wait::AtMost(time).bounded();
        self
    }

    /// Sets the owner within the session: the scope of re-entry.
    pub fn owner(mut self, owner: &str) -> Self {
        self.parameters.insert("owner".to_owned(), owner.into());
        self
    }

    /// Sets a text that is shown with the locks.
    pub fn note(mut self, note: &str) -> Self {
        self.parameters.insert("note".to_owned(), note.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_of_the_call_are_not_fields_of_each_lock() {
        let set = LockSet::new()
            .with("a", AcquireOptions::exclusive().reentrant("mine").note("x"))
            .with("b", AcquireOptions::semaphore(3).permits(2))
            .owner("task");
        assert_eq!(
            Value::from(set.locks),
            json!([
                { "name": "a", "mode": "exclusive", "reentrant": true },
                { "name": "b", "mode": "semaphore", "limit": 3, "permits": 2 },
            ])
        );
        assert_eq!(Value::from(set.parameters), json!({ "owner": "task" }));
    }
}
