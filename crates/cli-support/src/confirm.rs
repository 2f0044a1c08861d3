//! Confirmation of commands whose effect cannot be undone.

use std::io::{IsTerminal as _, stdin};

use anyhow::{Context as _, bail};
use clap::Args;

use crate::output::tell;
use crate::usage::UsageError;

/// Option that confirms a command.
#[derive(Debug, Clone, Copy, Args)]
pub struct Confirmation {
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

impl Confirmation {
    /// Asks the user on a terminal whether to do this; without a terminal `--yes` is required.
    pub fn require(self, effect: &str) -> anyhow::Result<()> {
        if self.yes {
            return Ok(());
        }
        if !stdin().is_terminal() {
            return Err(
                UsageError(format!("{effect}, which cannot be undone: confirm it with --yes")).into(),
            );
        }
        tell(format!("{effect}, which cannot be undone. Continue? [y/N]"));
        let mut answer = String::new();
        stdin().read_line(&mut answer).context("reading the answer")?;
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => bail!("nothing was done"),
        }
    }
}
