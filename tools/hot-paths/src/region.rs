//! The function whose execution is counted.

use std::hint::black_box;

/// Pattern that matches the name of [`instructions_counted_here`] in the symbol table, whatever the
/// compiler's mangling. Callgrind starts to count when it enters the function and stops when it leaves it, so
/// no other function may have this in its name.
pub const PATTERN: &str = "*instructions_counted_here*";

/// Does the work that is counted. A path calls it once, by its other name, `counted`.
///
/// It is not generic and takes no closure by type. So only one instance exists, whatever the work, and the
/// compiler cannot merge it with its callers.
#[inline(never)]
pub fn instructions_counted_here(work: &mut dyn FnMut()) {
    work();
    // The last instruction must not be a jump: such a tail call never returns to this function.
    black_box(());
}
