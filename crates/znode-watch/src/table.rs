//! Memory layout of the watches: a sparse matrix of paths and watchers. A cell holds the kinds that
//! one watcher has at one path. It can be found by its pair, from its path and from its watcher,
//! each in constant time. The table does not know about events.
//!
//! ```text
//!                    watcher 0      watcher 1
//!   /a      ──────►  data ───────►  data, children     a row:    the watchers that an event triggers
//!   /a/b    ──────────────────────► recursive          a column: the watches that end with a connection
//! ```
//!
//! A cell takes 32 bytes and about 7 in the table of pairs; a path takes 32 and about 7 in the
//! table of paths, and its text, which all of its watchers share. Freed slots are reused; the
//! memory is not returned to the allocator.

use core::ops::{Index, IndexMut};

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64_with_seed;
use znode_store::{Identities, ZPath};

use crate::kind::Kinds;
use crate::slab::{NO_INDEX, Slab};

/// The two lists that contain a cell.
#[derive(Debug, Clone, Copy)]
enum Axis {
    Row,
    Column,
}

/// Neighbours of a cell in one of its lists.
#[derive(Debug, Clone, Copy)]
struct Links {
    before: u32,
    after: u32,
}

/// First and last cell of a list.
#[derive(Debug, Clone, Copy)]
struct Ends {
    first: u32,
    last: u32,
}

impl Default for Ends {
    fn default() -> Self {
        Self {
            first: NO_INDEX,
            last: NO_INDEX,
        }
    }
}

/// Watches of one watcher at one path.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) path: u32,
    pub(crate) watcher: u32,
    pub(crate) kinds: Kinds,
    links: [Links; 2],
}

/// Path with at least one watch.
#[derive(Debug)]
struct Row {
    path: ZPath,
    /// Stored, so that growing the hash table does not read every path.
    hash: u32,
    cells: Ends,
}

/// Connected watcher.
#[derive(Debug)]
pub(crate) struct Column {
    /// Distinguishes it from earlier watchers in the same slot.
    pub(crate) generation: u32,
    pub(crate) identities: Identities,
    /// Sum of the units of its watches.
    pub(crate) units: u32,
    /// Number of the last event whose triggers included this watcher.
    pub(crate) last_notified: u64,
    cells: Ends,
}

/// Sparse matrix of paths and watchers; see the module.
#[derive(Debug)]
pub(crate) struct Table {
    cells: Slab<Cell>,
    rows: Slab<Row>,
    columns: Slab<Column>,
    by_path: HashTable<u32>,
    by_pair: HashTable<u32>,
    hash_seed: u64,
}

impl Table {
    pub(crate) fn new(hash_seed: u64) -> Self {
        Self {
            cells: Slab::default(),
            rows: Slab::default(),
            columns: Slab::default(),
            by_path: HashTable::new(),
            by_pair: HashTable::new(),
            hash_seed,
        }
    }

    pub(crate) fn paths(&self) -> u32 {
        self.rows.len()
    }

    pub(crate) fn watchers(&self) -> u32 {
        self.columns.len()
    }

    pub(crate) fn columns(&self) -> impl Iterator<Item = (u32, &Column)> {
        self.columns.iter()
    }

    pub(crate) fn column(&self, watcher: u32) -> Option<&Column> {
        self.columns.get(watcher)
    }

    pub(crate) fn column_mut(&mut self, watcher: u32) -> &mut Column {
        &mut self.columns[watcher]
    }

    pub(crate) fn add_watcher(&mut self, generation: u32, identities: Identities) -> u32 {
        self.columns.insert(Column {
            generation,
            identities,
            units: 0,
            last_notified: 0,
            cells: Ends::default(),
        })
    }

    /// Removes a watcher.
    ///
    /// # Panics
    ///
    /// If it still has watches.
    pub(crate) fn remove_watcher(&mut self, watcher: u32) {
        let column = self.columns.remove(watcher);
        assert!(column.cells.first == NO_INDEX, "a removed watcher has no watches");
    }

    pub(crate) fn path(&self, path: u32) -> &ZPath {
        &self.rows[path].path
    }

    /// Returns the index of a watched path.
    pub(crate) fn find_path(&self, text: &str) -> Option<u32> {
        let hash = self.hash(text);
        let is = |&row: &u32| self.rows[row].path.as_str() == text;
        self.by_path.find(spread(hash), is).copied()
    }

    /// Returns the index of the cell of a pair.
    pub(crate) fn find(&self, path: u32, watcher: u32) -> Option<u32> {
        let is = |&cell: &u32| {
            let cell = &self.cells[cell];
            (cell.path, cell.watcher) == (path, watcher)
        };
        self.by_pair.find(hash_pair(path, watcher), is).copied()
    }

    /// Returns the index of the cell of a pair, which is created if absent.
    pub(crate) fn find_or_add(&mut self, path: &ZPath, watcher: u32) -> u32 {
        let row = match self.find_path(path.as_str()) {
            Some(row) => row,
            None => self.add_path(path),
        };
        if let Some(cell) = self.find(row, watcher) {
            return cell;
        }
        let nowhere = Links {
            before: NO_INDEX,
            after: NO_INDEX,
        };
        let cell = self.cells.insert(Cell {
            path: row,
            watcher,
            kinds: Kinds::NONE,
            links: [nowhere; 2],
        });
        let cells = &self.cells;
        let rehash = |&cell: &u32| hash_pair(cells[cell].path, cells[cell].watcher);
        self.by_pair.insert_unique(hash_pair(row, watcher), cell, rehash);
        self.link(Axis::Row, cell);
        self.link(Axis::Column, cell);
        cell
    }

    /// Removes a cell, and its path if no other watcher watches it.
    pub(crate) fn remove(&mut self, cell: u32) {
        self.unlink(Axis::Row, cell);
        self.unlink(Axis::Column, cell);
        let Cell { path, watcher, .. } = self.cells.remove(cell);
        match self
            .by_pair
            .find_entry(hash_pair(path, watcher), |&other| other == cell)
        {
            Ok(entry) => drop(entry.remove()),
            Err(_) => unreachable!("every cell is in the table of pairs"),
        }
        if self.rows[path].cells.first == NO_INDEX {
            let row = self.rows.remove(path);
            match self.by_path.find_entry(spread(row.hash), |&other| other == path) {
                Ok(entry) => drop(entry.remove()),
                Err(_) => unreachable!("every path is in the table of paths"),
            }
        }
    }

    /// Returns the first cell of a path. Cells are in the order of their insertion.
    pub(crate) fn first_at(&self, path: u32) -> Option<u32> {
        index(self.rows[path].cells.first)
    }

    /// Returns the cell after this one at the same path.
    pub(crate) fn next_at(&self, cell: u32) -> Option<u32> {
        index(self.cells[cell].links[Axis::Row as usize].after)
    }

    /// Returns the first cell of a watcher. Cells are in the order of their insertion.
    pub(crate) fn first_of(&self, watcher: u32) -> Option<u32> {
        index(self.columns[watcher].cells.first)
    }

    /// Returns the cell after this one of the same watcher.
    pub(crate) fn next_of(&self, cell: u32) -> Option<u32> {
        index(self.cells[cell].links[Axis::Column as usize].after)
    }

    fn add_path(&mut self, path: &ZPath) -> u32 {
        let hash = self.hash(path.as_str());
        let row = self.rows.insert(Row {
            path: path.clone(),
            hash,
            cells: Ends::default(),
        });
        let rows = &self.rows;
        self.by_path
            .insert_unique(spread(hash), row, |&row| spread(rows[row].hash));
        row
    }

    fn hash(&self, text: &str) -> u32 {
        // Half of the hash is enough to distinguish a few million paths.
        xxh3_64_with_seed(text.as_bytes(), self.hash_seed) as u32
    }

    fn ends(&mut self, axis: Axis, cell: u32) -> &mut Ends {
        let cell = &self.cells[cell];
        match axis {
            Axis::Row => &mut self.rows[cell.path].cells,
            Axis::Column => &mut self.columns[cell.watcher].cells,
        }
    }

    fn link(&mut self, axis: Axis, cell: u32) {
        let ends = self.ends(axis, cell);
        let before = core::mem::replace(&mut ends.last, cell);
        if before == NO_INDEX {
            ends.first = cell;
        } else {
            self.cells[before].links[axis as usize].after = cell;
        }
        self.cells[cell].links[axis as usize].before = before;
    }

    fn unlink(&mut self, axis: Axis, cell: u32) {
        let Links { before, after } = self.cells[cell].links[axis as usize];
        match index(before) {
            Some(before) => self.cells[before].links[axis as usize].after = after,
            None => self.ends(axis, cell).first = after,
        }
        match index(after) {
            Some(after) => self.cells[after].links[axis as usize].before = before,
            None => self.ends(axis, cell).last = before,
        }
    }
}

impl Index<u32> for Table {
    type Output = Cell;

    fn index(&self, cell: u32) -> &Cell {
        &self.cells[cell]
    }
}

impl IndexMut<u32> for Table {
    fn index_mut(&mut self, cell: u32) -> &mut Cell {
        &mut self.cells[cell]
    }
}

fn index(stored: u32) -> Option<u32> {
    (stored != NO_INDEX).then_some(stored)
}

/// Hashes a pair of indices. Indices are small and dense, but the hash table needs all bits to
/// vary.
fn hash_pair(path: u32, watcher: u32) -> u64 {
    scramble(u64::from(path) << 32 | u64::from(watcher))
}

fn spread(hash: u32) -> u64 {
    scramble(u64::from(hash))
}

fn scramble(bits: u64) -> u64 {
    // Multiplication by the golden ratio separates neighbours. Folding mixes the upper half into
    // the lower.
    let product = u128::from(bits) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_takes_32_bytes() {
        // The crate's documentation names these sizes; the hash tables come on top.
        assert_eq!(Slab::<Cell>::BYTES_EACH, 32);
        assert_eq!(Slab::<Row>::BYTES_EACH, 32);
    }
}
