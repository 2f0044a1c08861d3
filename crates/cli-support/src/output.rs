//! Output of commands on the standard output.

use std::io::Write as _;

use anyhow::Context;

/// Prints a line. A reader that has gone (`lockgate … | head`) is an error, not a panic.
pub fn say(text: impl AsRef<str>) -> anyhow::Result<()> {
    writeln!(std::io::stdout().lock(), "{}", text.as_ref()).context("writing to standard output")
}
