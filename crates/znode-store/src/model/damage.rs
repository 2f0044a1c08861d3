//! Damage in a snapshot: the reasons why a part of it cannot be restored.

/// Reason why a record of a snapshot cannot be part of any state, for people.
pub(crate) type Damage = &'static str;

/// Bound that no counter of commands or of their effects reaches. A restored counter beyond it could overflow later.
pub(crate) const NEVER_COUNTED: u64 = 1 << 63;
