//! What all systems under test can do as stores of small values: the part of their APIs that one and the same workload
//! can ask of each of them.

use futures_util::future::BoxFuture;

use super::answer::Answer;

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// The text.
    pub value: String,
    /// How often it was written, from wherever the system begins to count.
    pub version: u64,
}

/// What a read may show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// All that was answered anywhere before.
    Linearizable,
    /// What the node that is asked knows.
    Local,
}

/// One client's access to a store. Keys look like paths, and the path above a key exists.
pub trait Store: Send {
    /// Makes many keys and what is above them, none of which are there. For the time before a run.
    fn create_all<'a>(&'a mut self, keys: &'a [String], value: &'a str) -> BoxFuture<'a, Answer<()>>;

    /// Reads a key.
    fn get<'a>(&'a mut self, key: &'a str, freshness: Freshness) -> BoxFuture<'a, Answer<Option<Versioned>>>;

    /// Writes a key that is there, if its version is the expected one or none is expected: the new version. `None`: it has
    /// another version.
    fn set<'a>(
        &'a mut self,
        key: &'a str,
        value: &'a str,
        expected: Option<u64>,
    ) -> BoxFuture<'a, Answer<Option<u64>>>;

    /// Makes something below `parent` that has a number of its own.
    fn create_numbered<'a>(&'a mut self, parent: &'a str) -> BoxFuture<'a, Answer<u64>>;

    /// Deletes what has this number.
    fn delete_numbered<'a>(&'a mut self, parent: &'a str, number: u64) -> BoxFuture<'a, Answer<()>>;
}
