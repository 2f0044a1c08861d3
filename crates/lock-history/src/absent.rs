//! Stand-in for the index in a build without the feature `index`: it never opens, so its methods are never called.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use znode_store::{ContenderEnd, Hold, LockName};

use crate::bounds::HistoryLimits;
use crate::error::IndexError;
use crate::record::{HistoryGap, HistoryPage, Position};

/// One node's index; there is none in this build.
#[derive(Debug)]
pub struct Index(Infallible);

#[expect(missing_docs, reason = "the index itself documents them")]
impl Index {
    pub fn open(_dir: &Path, _owner: [u8; 16], _bounds: HistoryLimits) -> Result<Self, IndexError> {
        Err(IndexError::Absent)
    }

    pub fn was_lost(&self) -> bool {
        match self.0 {}
    }

    pub fn len(&self) -> usize {
        match self.0 {}
    }

    pub fn is_empty(&self) -> bool {
        match self.0 {}
    }

    pub fn began(&mut self, _hold: &Arc<Hold>) {
        match self.0 {}
    }

    pub fn ended(
        &mut self,
        _hold: &Hold,
        _at: Position,
        _how: &ContenderEnd,
        _by: Option<&str>,
    ) -> Result<(), IndexError> {
        match self.0 {}
    }

    pub fn hidden(
        &mut self,
        _hold: &Hold,
        _not_before: Position,
        _not_after: Position,
    ) -> Result<(), IndexError> {
        match self.0 {}
    }

    pub fn advance_to(&mut self, _position: Position) {
        match self.0 {}
    }

    pub fn missed_until(&mut self, _until: Position) -> Option<HistoryGap> {
        match self.0 {}
    }

    pub fn open_holds(&self) -> Vec<Arc<Hold>> {
        match self.0 {}
    }

    pub fn since_of(&self, _hold: &Hold) -> Option<u64> {
        match self.0 {}
    }

    pub fn remove_expired(&mut self, _now_ms: u64) -> Result<(), IndexError> {
        match self.0 {}
    }

    pub fn commit(&mut self, _all: bool) -> Result<(), IndexError> {
        match self.0 {}
    }

    pub fn flush(&mut self) -> Result<(), IndexError> {
        match self.0 {}
    }

    pub fn page(
        &mut self,
        _lock: &LockName,
        _before: Option<u64>,
        _count: usize,
    ) -> Result<HistoryPage, IndexError> {
        match self.0 {}
    }

    pub fn shut(self) -> Result<(), IndexError> {
        match self.0 {}
    }
}
