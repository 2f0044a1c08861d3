//! A token that was just made, on its way to whoever asked for it: into a file, or onto standard output, once.

use std::path::PathBuf;

use clap::Args;
use cli_support::output::{say, shown, tell};
use cli_support::secret_file::SecretFile;
use lock_client::NewToken;

use super::exit::Failure;
use super::locks::say_json;

/// Where the secret of a new token goes.
#[derive(Debug, Args)]
pub struct TokenOutput {
    /// Put the token into a new file that nobody else can read, instead of printing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print JSON
    #[arg(long, conflicts_with = "out")]
    json: bool,
}

impl TokenOutput {
    /// Takes the file's place, has the token made, and hands it over.
    pub async fn create_and_write(
        &self,
        made: impl Future<Output = Result<NewToken, Failure>>,
    ) -> Result<(), Failure> {
        let file = self.out.as_deref().map(SecretFile::create).transpose()?;
        let new = made.await?;
        let until = match &new.expires_at {
            Some(end) => format!("it counts until {end}"),
            None => "it counts until it is revoked".to_owned(),
        };
        let told = format!("token {} of role {}: {until}", shown(&new.id), shown(&new.role));
        match (file, &self.out) {
            (Some(file), Some(path)) => {
                // What cannot be kept is worth nothing, and is revoked by its name.
                file.put(new.token.expose())
                    .map_err(|error| error.context(format!("{told}, and could not be written")))?;
                say(format!("{} has {told}", path.display()))?;
            }
            _ if self.json => say_json(&new.with_secret())?,
            _ => {
                // Beside what scripts read.
                tell(format!("{told}. It is shown this once."));
                say(new.token.expose())?;
            }
        }
        Ok(())
    }
}
