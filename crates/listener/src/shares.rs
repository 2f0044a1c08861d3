//! Shares of a resource that many callers use: one caller that has some of it gets no more than half of all.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Record of who has how much of a resource.
#[derive(Debug)]
pub struct Shares {
    /// Maximum that one caller has.
    most: usize,
    used: Mutex<HashMap<String, usize>>,
}

/// Part of a resource. Dropping it returns it.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    caller: String,
    amount: usize,
}

impl Shares {
    /// Creates the record for a resource of this size.
    pub fn of(total: usize) -> Arc<Self> {
        Arc::new(Self {
            most: total / 2,
            used: Mutex::default(),
        })
    }

    /// Takes a part for a caller, by its key. `None` if the caller has its share already. A caller that has
    /// nothing gets any amount, so that the largest request is served.
    pub fn take(self: &Arc<Self>, caller: String, amount: usize) -> Option<Share> {
        self.take_below(caller, amount, self.most)
    }

    /// Takes a part like [`Shares::take`], for a resource whose size changes: a caller has at most `most`.
    pub fn take_below(self: &Arc<Self>, caller: String, amount: usize, most: usize) -> Option<Share> {
        let mut used = self.used.lock();
        match used.get_mut(&caller) {
            Some(used) if used.saturating_add(amount) > most => return None,
            Some(used) => *used += amount,
            None => drop(used.insert(caller.clone(), amount)),
        }
        let shares = self.clone();
        Some(Share {
            shares,
            caller,
            amount,
        })
    }

    /// Returns whether [`Shares::take_below`] would give the caller one more.
    pub fn has_room_below(&self, caller: &str, most: usize) -> bool {
        self.used.lock().get(caller).is_none_or(|used| *used < most)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut used = self.shares.used.lock();
        if let Some(rest) = used.get_mut(&self.caller) {
            *rest -= self.amount;
            if *rest == 0 {
                used.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_gets_half_and_others_the_rest() {
        let shares = Shares::of(10);
        let take = |caller: &str, amount| shares.take(caller.to_owned(), amount);
        let first = take("a", 3);
        let second = take("a", 2);
        assert!(first.is_some() && second.is_some());
        assert!(take("a", 1).is_none());
        let of_another = take("b", 5);
        assert!(of_another.is_some() && take("b", 1).is_none());
        drop(first);
        let third = take("a", 3);
        assert!(third.is_some());
        drop((second, third, of_another));
        assert!(shares.used.lock().is_empty());
        assert!(take("c", 9).is_some(), "the first one may be larger");
    }
}
