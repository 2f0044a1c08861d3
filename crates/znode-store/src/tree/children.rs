//! The set of a node's children: their indices, found by name. Names are stored in the nodes and nowhere
//! else, so the set asks its caller for them. It has no order that anybody may see.

use alloc::vec::Vec;

use hashbrown::HashTable;

use crate::stable_hash;
use crate::tree::node::NodeIndex;

/// So many children are compared one by one: most parents have few, and a table costs more than that.
const FEW: usize = 8;

/// Below this share of its capacity a table is made smaller, so that a list of children costs what there
/// is and not what there once was.
const SPARSE: usize = 8;

/// See the module.
#[derive(Debug)]
pub(crate) enum Children {
    Few(Vec<NodeIndex>),
    Many(HashTable<NodeIndex>),
}

impl Default for Children {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

fn hash(name: &str) -> u64 {
    stable_hash::of_bytes(name.as_bytes())
}

impl Children {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(few) => few.len(),
            Self::Many(table) => table.len(),
        }
    }

    /// The child called `name`.
    pub(crate) fn find<'n>(&self, name: &str, name_of: impl Fn(NodeIndex) -> &'n str) -> Option<NodeIndex> {
        match self {
            Self::Few(few) => few.iter().copied().find(|&child| name_of(child) == name),
            Self::Many(table) => table.find(hash(name), |&child| name_of(child) == name).copied(),
        }
    }

    /// Adds a child whose name is not there yet.
    pub(crate) fn insert<'n>(&mut self, child: NodeIndex, name_of: impl Fn(NodeIndex) -> &'n str) {
        match self {
            Self::Few(few) if few.len() < FEW => few.push(child),
            Self::Few(few) => {
                let mut table = HashTable::with_capacity(2 * FEW);
                for &member in few.iter().chain([&child]) {
                    table.insert_unique(hash(name_of(member)), member, |&i| hash(name_of(i)));
                }
                *self = Self::Many(table);
            }
            Self::Many(table) => {
                table.insert_unique(hash(name_of(child)), child, |&i| hash(name_of(i)));
            }
        }
    }

    /// Takes a child out; its name must still be known.
    pub(crate) fn remove<'n>(&mut self, child: NodeIndex, name_of: impl Fn(NodeIndex) -> &'n str) {
        match self {
            Self::Few(few) => {
                let at = few
                    .iter()
                    .position(|&member| member == child)
                    .expect("a child is in its parent's set");
                few.swap_remove(at);
                if few.is_empty() {
                    *few = Vec::new();
                }
            }
            Self::Many(table) => {
                match table.find_entry(hash(name_of(child)), |&member| member == child) {
                    Ok(entry) => entry.remove(),
                    Err(_) => unreachable!("a child is in its parent's set"),
                };
                if table.is_empty() {
                    *self = Self::default();
                } else if table.len() * SPARSE < table.capacity() {
                    table.shrink_to(2 * table.len(), |&i| hash(name_of(i)));
                }
            }
        }
    }

    /// All of them, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = NodeIndex> + '_ {
        let (few, many) = match self {
            Self::Few(few) => (Some(few.iter()), None),
            Self::Many(table) => (None, Some(table.iter())),
        };
        few.into_iter()
            .flatten()
            .chain(many.into_iter().flatten())
            .copied()
    }
}
