//! The script commands of the lock protocol.

use std::error::Error;

use goldenscript::Command;

use crate::script::Script;

/// Runs a command of the lock protocol; `None` if it is none.
pub fn run(script: &mut Script, command: &Command) -> Result<Option<String>, Box<dyn Error>> {
    let _ = (script, command);
    Ok(None)
}
