//! How locks are wanted: one of them, or several at once. What becomes of that stands in `acquire.rs`.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::encode::millis;

/// The longest wait that the API takes as a number: seven days.
const LONGEST_WAIT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How a lock is held together with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mode {
    /// One holder.
    Exclusive,
    /// Any number of holders, none of them exclusive.
    Shared,
    /// One among those who share the lock, who may become exclusive.
    Upgradeable,
    /// Holders whose permits add up to at most a limit.
    Semaphore,
}

/// How long a call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// Not at all.
    Try,
    /// So long; at most seven days.
    AtMost(Duration),
    /// As long as it takes.
    Forever,
}

impl Wait {
    /// Not beyond what the API takes.
    pub(crate) fn bounded(self) -> Self {
        match self {
            Self::AtMost(time) => Self::AtMost(time.min(LONGEST_WAIT)),
            Self::Try | Self::Forever => self,
        }
    }
}

/// How a lock is wanted. Unless something else is said, a call waits until the lock is granted, and a second acquire of the
/// same session waits for the end of the first one like anybody else's.
#[derive(Debug, Clone)]
pub struct AcquireOptions {
    pub(crate) wait: Wait,
    /// What the API is told beside the session, the wait and the request id.
    pub(crate) wishes: Map<String, Value>,
}

impl AcquireOptions {
    /// One holder.
    pub fn exclusive() -> Self {
        Self::in_mode("exclusive")
    }

    /// Any number of holders, none of them exclusive.
    pub fn shared() -> Self {
        Self::in_mode("shared")
    }

    /// Shared with those who only read, and the only one who may become exclusive: see [`crate::LockGuard::upgrade`].
    pub fn upgradeable() -> Self {
        Self::in_mode("upgradeable")
    }

    /// One of `limit` permits. All who use a semaphore name the same limit.
    pub fn semaphore(limit: u32) -> Self {
        Self::semaphore_of_any_limit().with("limit", limit)
    }

    /// One permit of a semaphore that is in use already, or whose limit was set ([`crate::LockClient::set_limit`]), whatever the
    /// limit is.
    pub fn semaphore_of_any_limit() -> Self {
        let mut options = Self::in_mode("semaphore");
        options.wishes.remove("reentrant");
        options
    }

    fn in_mode(mode: &str) -> Self {
        let options = Self {
            wait: Wait::Forever,
            wishes: Map::new(),
        };
        options.with("mode", mode).with("reentrant", false)
    }

    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.wishes.insert(name.to_owned(), value.into());
        self
    }

    /// So many permits of a semaphore, all at once.
    pub fn permits(self, permits: u32) -> Self {
        self.with("permits", permits)
    }

    /// Gives up at once if the lock is not free.
    pub fn try_only(mut self) -> Self {
        self.wait = Wait::Try;
        self
    }

    /// Gives up after so long; at most seven days.
    pub fn wait_at_most(mut self, time: Duration) -> Self {
        self.wait = Wait::AtMost(time).bounded();
        self
    }

    /// Enters again at once where the same session holds the lock (not a semaphore) in the scope `owner` already. Each
    /// acquire is a guard of its own, and the lock is free when the last of them is released.
    pub fn reentrant(self, owner: &str) -> Self {
        self.with("owner", owner).with("reentrant", true)
    }

    /// Whose call it is within the session, without re-entry. The cluster finds deadlocks between owners: calls
    /// that have one are never left to wait for each other for ever.
    pub fn owner(self, owner: &str) -> Self {
        self.with("owner", owner)
    }

    /// The owner that was named.
    pub(crate) fn owner_name(&self) -> Option<String> {
        Some(self.wishes.get("owner")?.as_str()?.to_owned())
    }

    /// The owner that was named, if the call does not enter again and waits for as long as it takes.
    pub(crate) fn waiting_owner(&self) -> Option<&str> {
        let owner = self.wishes.get("owner")?.as_str()?;
        let enters_again = self.wishes.get("reentrant").and_then(Value::as_bool) == Some(true);
        (self.wait == Wait::Forever && !enters_again).then_some(owner)
    }

    /// Whether the lock is wanted in a mode that shuts this holder out.
    pub(crate) fn excludes(&self, held: Mode) -> bool {
        let wanted = self.wishes.get("mode").and_then(Value::as_str);
        match held {
            Mode::Exclusive => wanted != Some("semaphore"),
            Mode::Upgradeable => matches!(wanted, Some("exclusive" | "upgradeable")),
            Mode::Shared => wanted == Some("exclusive"),
            Mode::Semaphore => false,
        }
    }

    /// A text for whoever looks at the lock.
    pub fn note(self, note: &str) -> Self {
        self.with("note", note)
    }

    /// Keeps the lock closed for so long (at most a minute) after the session has *expired* with it: what this program has sent
    /// may still be on its way to a storage that does not check tokens. A release, a break and a session that is closed let
    /// the next one in at once.
    pub fn lock_delay(self, delay: Duration) -> Self {
        self.with("lock_delay_ms", millis(delay))
    }

    /// Stands in one queue with clients of ZooKeeper that use this recipe; without it with Curator's `InterProcessMutex`
    /// if it wants the lock alone, else with its `InterProcessReadWriteLock`.
    pub fn names(self, names: ContenderNames) -> Self {
        self.with("names", names.word())
    }
}

/// The recipes of ZooKeeper's clients that stand in one queue with those of Lockgate. Each of them finds only those in its way
/// who are named as it names its own, so do not two of them at one lock.
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

/// Several locks that are wanted together: all, or none. Of two such calls one is ahead of the other in every lock that
/// both want, so they never wait for each other.
#[derive(Debug, Clone)]
pub struct LockSet {
    pub(crate) wait: Wait,
    pub(crate) locks: Vec<Value>,
    /// What is said of all of them.
    pub(crate) wishes: Map<String, Value>,
}

impl Default for LockSet {
    fn default() -> Self {
        Self::new()
    }
}

impl LockSet {
    /// None yet.
    pub fn new() -> Self {
        Self {
            wait: Wait::Forever,
            locks: Vec::new(),
            wishes: Map::new(),
        }
    }

    /// This one, too (64 at most). Of the options count the mode, the permits, the lock-delay and whether it is re-entered. How
    /// long to wait, the owner and the note are the set's.
    pub fn with(mut self, lock: &str, options: AcquireOptions) -> Self {
        let mut wishes = options.wishes;
        for of_all in ["owner", "note"] {
            wishes.remove(of_all);
        }
        wishes.insert("name".to_owned(), lock.into());
        self.locks.push(Value::Object(wishes));
        self
    }

    /// Gives up at once if they are not all free.
    pub fn try_only(mut self) -> Self {
        self.wait = Wait::Try;
        self
    }

    /// Gives up after so long; at most seven days.
    pub fn wait_at_most(mut self, time: Duration) -> Self {
        self.wait = Wait::AtMost(time).bounded();
        self
    }

    /// Whose call it is within the session: the scope of re-entry where a lock is re-entered.
    pub fn owner(mut self, owner: &str) -> Self {
        self.wishes.insert("owner".to_owned(), owner.into());
        self
    }

    /// A text for whoever looks at the locks.
    pub fn note(mut self, note: &str) -> Self {
        self.wishes.insert("note".to_owned(), note.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_belongs_to_the_call_is_not_said_of_each_lock() {
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
        assert_eq!(Value::from(set.wishes), json!({ "owner": "task" }));
    }
}
