//! Slab: values with small indices, which are reused after a removal. It does not interpret its
//! values.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// Stored index that refers to no slot.
pub(crate) const NO_INDEX: u32 = u32::MAX;

#[derive(Debug)]
enum Slot<T> {
    Occupied(T),
    /// Free slot, with the index of the slot that was freed before it.
    Free(u32),
}

/// Values with small indices; see the module.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: u32,
    len: u32,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: NO_INDEX,
            len: 0,
        }
    }
}

impl<T> Slab<T> {
    #[cfg(test)]
    pub(crate) const BYTES_EACH: usize = size_of::<Slot<T>>();

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        match self.slots.get(at as usize)? {
            Slot::Occupied(value) => Some(value),
            Slot::Free(_) => None,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.slots).filter_map(|(at, slot)| match slot {
            Slot::Occupied(value) => Some((at, value)),
            Slot::Free(_) => None,
        })
    }

    /// Inserts a value into the most recently freed slot, or into a new one, and returns its index.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        let at = self.free;
        match self.slots.get_mut(at as usize) {
            Some(slot) => {
                match core::mem::replace(slot, Slot::Occupied(value)) {
                    Slot::Free(before) => self.free = before,
                    Slot::Occupied(_) => unreachable!("the slot {at} was free"),
                }
                at
            }
            None => {
                let at = u32::try_from(self.slots.len()).expect("the limits on watches are 32-bit numbers");
                assert!(at != NO_INDEX, "the limits on watches are 32-bit numbers");
                self.slots.push(Slot::Occupied(value));
                at
            }
        }
    }

    pub(crate) fn remove(&mut self, at: u32) -> T {
        let slot = core::mem::replace(&mut self.slots[at as usize], Slot::Free(self.free));
        match slot {
            Slot::Occupied(value) => {
                self.free = at;
                self.len -= 1;
                value
            }
            Slot::Free(_) => unreachable!("the slot {at} was occupied"),
        }
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        self.get(at).expect("an index refers to an occupied slot")
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        match &mut self.slots[at as usize] {
            Slot::Occupied(value) => value,
            Slot::Free(_) => unreachable!("an index refers to an occupied slot"),
        }
    }
}
