//! Interface of all systems under test as stores of small values: the common part of their APIs that one
//! workload can use.

use futures_util::future::BoxFuture;

use super::result::CallResult;

/// Value of a key with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// The value, as text.
    pub value: String,
    /// Number of writes, from wherever the system starts counting.
    pub version: u64,
}

/// Consistency of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Reflects every write that was acknowledged anywhere before the read.
    Linearizable,
    /// Reflects the local state of the node that answers.
    Local,
}

/// Access of one client to a store. Keys look like paths, and the parent of each key exists.
pub trait Store: Send {
    /// Creates many keys and their parents, none of which exist yet. Used before a run.
    fn create_all<'a>(&'a mut self, keys: &'a [String], value: &'a str) -> BoxFuture<'a, CallResult<()>>;

    /// Reads a key.
    fn get<'a>(
        &'a mut self,
        key: &'a str,
        freshness: Freshness,
    ) -> BoxFuture<'a, CallResult<Option<Versioned>>>;

    /// Writes an existing key, if its version is the expected one or none is expected; returns the new
    /// version. `None` means that the version differs.
    fn set<'a>(
        &'a mut self,
        key: &'a str,
        value: &'a str,
        expected: Option<u64>,
    ) -> BoxFuture<'a, CallResult<Option<u64>>>;

    /// Creates a child of `parent` with a unique number, and returns the number.
    fn create_numbered<'a>(&'a mut self, parent: &'a str) -> BoxFuture<'a, CallResult<u64>>;

    /// Deletes the child with this number.
    fn delete_numbered<'a>(&'a mut self, parent: &'a str, number: u64) -> BoxFuture<'a, CallResult<()>>;
}
