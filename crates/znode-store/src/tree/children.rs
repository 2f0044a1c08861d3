//! The set of a node's children: their indices, found by name. Names are stored in the nodes and nowhere
//! else, so the set asks its caller for them; but it keeps a hash of each, for a table that grows would
//! otherwise have to visit all of a million children. It has no order that anybody may see.

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
    Many(HashTable<Child>),
}

impl Default for Children {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

/// A member of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Child {
    /// Half of the hash of its name, which is enough to find it.
    hash: u32,
    index: NodeIndex,
}

impl Child {
    fn new(index: NodeIndex, name: &str) -> Self {
        Self {
            hash: half_hash(name),
            index,
        }
    }

    fn hash(&self) -> u64 {
        spread(self.hash)
    }
}

fn half_hash(name: &str) -> u32 {
    stable_hash::of_bytes(name.as_bytes()) as u32
}

/// The table looks at the highest bits and at the lowest ones.
fn spread(half: u32) -> u64 {
    u64::from(half) | u64::from(half) << 32
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
            Self::Many(table) => {
                let half = half_hash(name);
                table
                    .find(spread(half), |child| {
                        child.hash == half && name_of(child.index) == name
                    })
                    .map(|child| child.index)
            }
        }
    }

    /// Adds a child whose name is not there yet.
    pub(crate) fn insert<'n>(&mut self, child: NodeIndex, name_of: impl Fn(NodeIndex) -> &'n str) {
        match self {
            Self::Few(few) if few.len() < FEW => few.push(child),
            Self::Few(few) => {
                let mut table = HashTable::with_capacity(2 * FEW);
                for &member in few.iter().chain([&child]) {
                    let member = Child::new(member, name_of(member));
                    table.insert_unique(member.hash(), member, Child::hash);
                }
                *self = Self::Many(table);
            }
            Self::Many(table) => {
                let child = Child::new(child, name_of(child));
                table.insert_unique(child.hash(), child, Child::hash);
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
                match table.find_entry(spread(half_hash(name_of(child))), |member| member.index == child) {
                    Ok(entry) => entry.remove(),
                    Err(_) => unreachable!("a child is in its parent's set"),
                };
                if table.is_empty() {
                    *self = Self::default();
                } else if table.len() * SPARSE < table.capacity() {
                    table.shrink_to(2 * table.len(), Child::hash);
                }
            }
        }
    }

    /// All of them, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = NodeIndex> + '_ {
        let (few, many) = match self {
            Self::Few(few) => (Some(few.iter().copied()), None),
            Self::Many(table) => (None, Some(table.iter().map(|child| child.index))),
        };
        few.into_iter().flatten().chain(many.into_iter().flatten())
    }
}
