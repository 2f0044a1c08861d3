//! Set of the children of a node: their indices, found by name. Names are stored only in the nodes, so the caller passes a function that returns
//! them. The set stores a hash of each name, because the growth of a table would otherwise visit all of a million children. Only pages have an order.

use alloc::vec::Vec;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::stable_hash;
use crate::tree::index::NodeIndex;
use crate::tree::order::Order;

/// Number of children up to which they are compared one by one. Most parents have few, and a table costs more than that.
const FEW: usize = 8;

/// Divisor of the capacity of a table that gives the number of children below which the table shrinks. So the memory follows the present number of
/// children, and not a former one.
const SPARSE: usize = 8;

/// Number of children up to which they are sorted for each page. Larger sets are always in order, which costs each change some comparisons of
/// names.
const SORTED_EACH_TIME: usize = 1024;

/// Set of the children of a node.
#[derive(Debug)]
pub(crate) enum Children {
    Few(Vec<NodeIndex>),
    Many(HashTable<Child>),
    /// Set with an order, because it is too large to sort for each page.
    Ordered {
        table: HashTable<Child>,
        order: Order,
    },
}

impl Default for Children {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

/// Entry of a table.
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

/// Spreads half a hash over 64 bits, because the table uses the highest and the lowest bits.
fn spread(half: u32) -> u64 {
    u64::from(half) | u64::from(half) << 32
}

impl Children {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(few) => few.len(),
            Self::Many(table) | Self::Ordered { table, .. } => table.len(),
        }
    }

    /// Returns the child called `name`.
    pub(crate) fn find<'n>(&self, name: &str, name_of: impl Fn(NodeIndex) -> &'n str) -> Option<NodeIndex> {
        match self {
            Self::Few(few) => few.iter().copied().find(|&child| name_of(child) == name),
            Self::Many(table) | Self::Ordered { table, .. } => {
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
                add(table, child, &name_of);
                if table.len() > SORTED_EACH_TIME {
                    let mut all: Vec<_> = table.iter().map(|child| child.index).collect();
                    all.sort_unstable_by_key(|&child| name_of(child));
                    *self = Self::Ordered {
                        order: Order::from_sorted(&all),
                        table: core::mem::take(table),
                    };
                }
            }
            Self::Ordered { table, order } => {
                add(table, child, &name_of);
                order.insert(child, &name_of);
            }
        }
    }

    /// Adds a child while a tree is rebuilt, unless there is one of its name. Returns whether it was added. After the last child the caller calls
    /// [`Children::put_in_order`].
    pub(crate) fn insert_unordered<'n>(
        &mut self,
        child: NodeIndex,
        name_of: impl Fn(NodeIndex) -> &'n str,
    ) -> bool {
        match self {
            Self::Few(few) => {
                let name = name_of(child);
                let is_new = few.iter().all(|&member| name_of(member) != name);
                if is_new {
                    self.insert(child, name_of);
                }
                is_new
            }
            Self::Many(table) | Self::Ordered { table, .. } => {
                let child = Child::new(child, name_of(child));
                let is_same = |member: &Child| {
                    member.hash == child.hash && name_of(member.index) == name_of(child.index)
                };
                match table.entry(child.hash(), is_same, Child::hash) {
                    Entry::Occupied(_) => false,
                    Entry::Vacant(place) => {
                        place.insert(child);
                        true
                    }
                }
            }
        }
    }

    /// Sorts a large set once.
    pub(crate) fn put_in_order<'n>(&mut self, name_of: impl Fn(NodeIndex) -> &'n str) {
        if let Self::Many(table) = self
            && table.len() > SORTED_EACH_TIME
        {
            let mut all: Vec<_> = table.iter().map(|child| child.index).collect();
            // Order of creation. It is often the order of names as well, and then the next sort has little to do.
            all.sort_unstable();
            all.sort_by_key(|&child| name_of(child));
            *self = Self::Ordered {
                order: Order::from_sorted(&all),
                table: core::mem::take(table),
            };
        }
    }

    /// Removes a child; its name must still be known.
    pub(crate) fn remove<'n>(&mut self, child: NodeIndex, name_of: impl Fn(NodeIndex) -> &'n str) {
        match self {
            Self::Few(few) => {
                let at = few
                    .iter()
                    .position(|&member| member == child)
                    .expect("a child is in its parent's set");
                few.swap_remove(at);
            }
            Self::Many(table) => {
                take_out(table, child, &name_of);
                if table.is_empty() {
                    *self = Self::default();
                }
            }
            Self::Ordered { table, order } => {
                order.remove(child, &name_of);
                take_out(table, child, &name_of);
                // Half of the number at which the order is made, so that a set of that size does not switch back and forth.
                if table.len() < SORTED_EACH_TIME / 2 {
                    *self = Self::Many(core::mem::take(table));
                }
            }
        }
    }

    /// Returns at most `count` children whose names begin with `prefix` and follow `after`, by name, and whether there are more.
    pub(crate) fn page<'n>(
        &self,
        prefix: &str,
        after: Option<&str>,
        count: usize,
        name_of: impl Fn(NodeIndex) -> &'n str,
    ) -> (Vec<NodeIndex>, bool) {
        let is_wanted = |name: &str| name.starts_with(prefix) && after.is_none_or(|after| name > after);
        let mut page: Vec<NodeIndex> = match self {
            Self::Ordered { order, .. } => {
                let first = order.first_at(after.map_or(prefix, |after| after.max(prefix)), &name_of);
                let is_before = |name: &str| after.is_some_and(|after| name <= after);
                let rest = first.skip_while(|&child| is_before(name_of(child)));
                let wanted = rest.take_while(|&child| name_of(child).starts_with(prefix));
                wanted.take(count.saturating_add(1)).collect()
            }
            _ => {
                let mut wanted: Vec<_> = self.iter().filter(|&child| is_wanted(name_of(child))).collect();
                wanted.sort_unstable_by_key(|&child| name_of(child));
                wanted
            }
        };
        let more = page.len() > count;
        page.truncate(count);
        (page, more)
    }

    /// Returns all children, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = NodeIndex> + '_ {
        let (few, many) = match self {
            Self::Few(few) => (Some(few.iter().copied()), None),
            Self::Many(table) | Self::Ordered { table, .. } => {
                (None, Some(table.iter().map(|child| child.index)))
            }
        };
        few.into_iter().flatten().chain(many.into_iter().flatten())
    }
}

fn add<'n>(table: &mut HashTable<Child>, child: NodeIndex, name_of: impl Fn(NodeIndex) -> &'n str) {
    let child = Child::new(child, name_of(child));
    table.insert_unique(child.hash(), child, Child::hash);
}

fn take_out<'n>(table: &mut HashTable<Child>, child: NodeIndex, name_of: impl Fn(NodeIndex) -> &'n str) {
    match table.find_entry(spread(half_hash(name_of(child))), |member| member.index == child) {
        Ok(entry) => entry.remove(),
        Err(_) => unreachable!("a child is in its parent's set"),
    };
    if table.len() * SPARSE < table.capacity() {
        table.shrink_to(2 * table.len(), Child::hash);
    }
}
