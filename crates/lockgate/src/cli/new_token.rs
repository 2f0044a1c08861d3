//! Output of a new token: into a file, or once to standard output.

use std::path::PathBuf;

use clap::Args;
use cli_support::format::Output;
use cli_support::output::{say, shown, tell};
use cli_support::secret_file::SecretFile;
use lock_client::NewToken;

use super::exit::Failure;

/// Destination of a new token's secret.
#[derive(Debug, Args)]
pub struct TokenOutput {
    /// Write the token to a new file that only its owner can read, instead of printing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

impl TokenOutput {
    /// Creates the file, requests the token, and writes it.
    pub async fn create_and_write(
        &self,
        made: impl Future<Output = Result<NewToken, Failure>>,
    ) -> Result<(), Failure> {
        let file = self.out.as_deref().map(SecretFile::create).transpose()?;
        let new = made.await?;
        let until = match &new.expires_at {
            Some(end) => format!("valid until {end}"),
            None => "valid until it is revoked".to_owned(),
        };
        let description = format!("token {} of role {}: {until}", shown(&new.id), shown(&new.role));
        match (file, &self.out) {
            (Some(file), Some(path)) => {
                // The caller can revoke the lost token by its id.
                file.put(new.token.expose()).map_err(|error| {
                    error.context(format!(
                        "created {description}, but could not write it; revoke it"
                    ))
                })?;
                say(format!("{} has {description}", path.display()))?;
            }
            _ if self.output.is_document() => self.output.say(&new.with_secret(), String::new)?,
            _ => {
                // On standard error, apart from the output for scripts.
                tell(format!("{description}. It is shown only now."));
                say(new.token.expose())?;
            }
        }
        Ok(())
    }
}
