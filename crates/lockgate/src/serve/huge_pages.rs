//! Memory in small pages. A node's state is millions of small pieces, of which some go every moment, and the kernel's huge pages of
//! two megabytes each stay resident for the last piece in them, and are cleared as a whole before the first.

use tracing::debug;

/// By this, which mimalloc reads, an operator says how it is to be; then nothing is done here.
const OVERRIDE_VARIABLE: &str = "MIMALLOC_ALLOW_THP";

/// Has the kernel give this process small pages from now on. Call it in the beginning: what is there stays as it is.
pub fn disable() {
    if std::env::var_os(OVERRIDE_VARIABLE).is_some() {
        return;
    }
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_thp_disable(true) {
        // It serves as well, in more memory.
        debug!(%error, "the kernel goes on with huge pages");
    }
}
