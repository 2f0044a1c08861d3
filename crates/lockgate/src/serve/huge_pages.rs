//! Switch that disables transparent huge pages for this process. A node's state is millions of small
//! allocations, some of which are freed at every moment. A huge page of two megabytes stays resident for the
//! last allocation in it, and is cleared completely before the first.

use tracing::debug;

/// Variable of mimalloc with which an operator overrides this: if it is set, this module does nothing.
const OVERRIDE_VARIABLE: &str = "MIMALLOC_ALLOW_THP";

/// Disables huge pages. Call it at the start of the process: existing pages do not change.
pub fn disable() {
    if std::env::var_os(OVERRIDE_VARIABLE).is_some() {
        return;
    }
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_thp_disable(true) {
        // The node works all the same, with more memory.
        debug!(%error, "cannot disable huge pages");
    }
}
