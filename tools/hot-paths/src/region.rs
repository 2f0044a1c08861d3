//! The one function whose execution is counted.

use std::hint::black_box;

/// What is in the name of [`instructions_counted_here`], however a compiler writes it into the table of symbols. Callgrind begins to
/// count when it is entered and ends when it is left, so no other function may have this in its name.
pub const PATTERN: &str = "*instructions_counted_here*";

/// Does the work that is counted. A path calls it once, by its other name, `counted`.
///
/// It is no generic function and takes no closure by type: there is one of it, whatever is counted, and the compiler cannot
/// merge it with what calls it.
#[inline(never)]
pub fn instructions_counted_here(work: &mut dyn FnMut()) {
    work();
    // What comes last must not be a jump, which is a call that never comes back here.
    black_box(());
}
