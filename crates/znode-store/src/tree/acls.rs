//! Table of the access control lists of all znodes. Most znodes of a tree share a few lists. So each list is stored once with a count of its uses,
//! and a znode has its number.

use core::num::NonZeroU32;

use slab::Slab;

use crate::model::acl::Acl;
use crate::stable_hash::{self, Table};

/// Number of a node's access control list. Numbers are reused, and differ between replicas. No list has number 0, so an `Option` of a
/// node takes no more memory than a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AclIndex(NonZeroU32);

impl AclIndex {
    /// The list that gives every caller all rights. It is not counted.
    pub(crate) const OPEN: Self = Self(NonZeroU32::MIN);

    fn of_slot(slot: usize) -> Self {
        let number = u32::try_from(slot + 1).ok().and_then(NonZeroU32::new);
        Self(number.expect("memory ends long before four billion lists"))
    }

    fn slot(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// Table of access control lists.
pub(crate) struct Acls {
    by_acl: Table<Acl, AclIndex>,
    /// Lists, the open list first.
    slots: Slab<Slot>,
}

struct Slot {
    acl: Acl,
    /// Share of the list in a node's digest.
    hash: u64,
    /// Number of nodes with this list.
    uses: u32,
}

impl Default for Acls {
    fn default() -> Self {
        let acl = Acl::open();
        let mut slots = Slab::new();
        slots.insert(Slot {
            hash: stable_hash::of(&acl),
            acl,
            uses: 0,
        });
        Self {
            by_acl: Table::default(),
            slots,
        }
    }
}

impl Acls {
    /// Returns the list of a node.
    pub(crate) fn get(&self, index: AclIndex) -> &Acl {
        &self.slots[index.slot()].acl
    }

    /// Returns the hash of a node's list.
    pub(crate) fn hash(&self, index: AclIndex) -> u64 {
        self.slots[index.slot()].hash
    }

    /// Counts another use of a list, and returns its number.
    pub(crate) fn take(&mut self, acl: &Acl) -> AclIndex {
        if acl.is_open() {
            return AclIndex::OPEN;
        }
        if let Some(&index) = self.by_acl.get(acl) {
            self.slots[index.slot()].uses += 1;
            return index;
        }
        let slot = Slot {
            acl: acl.clone(),
            hash: stable_hash::of(acl),
            uses: 1,
        };
        let index = AclIndex::of_slot(self.slots.insert(slot));
        self.by_acl.insert(acl.clone(), index);
        index
    }

    /// Counts the end of a use of a list, and removes an unused list.
    pub(crate) fn give_back(&mut self, index: AclIndex) {
        if index == AclIndex::OPEN {
            return;
        }
        let slot = &mut self.slots[index.slot()];
        slot.uses -= 1;
        if slot.uses == 0 {
            let Slot { acl, .. } = self.slots.remove(index.slot());
            self.by_acl.remove(&acl);
        }
    }

    /// Returns the number of different lists, without the open one.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_acl.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_stored_once_and_goes_with_its_last_node() {
        let mut acls = Acls::default();
        let (first, second) = (acls.take(&Acl::read_only()), acls.take(&Acl::read_only()));
        assert_eq!((first, acls.len()), (second, 1));
        assert_eq!(acls.take(&Acl::open()), AclIndex::OPEN);
        acls.give_back(first);
        assert_eq!(*acls.get(second), Acl::read_only());
        acls.give_back(second);
        assert_eq!(acls.len(), 0);
        // Its number is the next one's.
        assert_eq!(acls.take(&Acl::read_only()), first);
    }
}
