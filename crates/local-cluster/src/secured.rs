//! Secured cluster on this machine: creates and stores the administrator's token.

use std::path::{Path, PathBuf};

use access_token::OperatorToken;
use anyhow::Context;
use cli_support::secret_file::SecretFile;
use lock_client::{LockClient, Token};

use super::LocalCluster;

/// Access settings of every node's configuration: nobody is served before the cluster is secured.
pub const SETTINGS: &str = "\n[access]\nrequired = true\n";

/// Description of the administrator's token in lists of tokens.
const DESCRIPTION: &str = "created by lockgate dev up";

fn file(dir: &Path) -> PathBuf {
    dir.join("admin.token")
}

/// Reads the administrator's token of the cluster in this directory, if it has one.
pub fn token(dir: &Path) -> anyhow::Result<Option<Token>> {
    let path = file(dir);
    match path.exists() {
        true => Ok(Some(Token::read(&path)?)),
        false => Ok(None),
    }
}

impl LocalCluster {
    /// Returns whether the nodes serve nobody before the cluster is secured.
    pub fn requires_access(&self) -> bool {
        self.nodes().any(|node| node.requires_access)
    }

    /// Returns the path of the administrator's token, if there is one.
    pub fn admin_token_file(&self) -> Option<PathBuf> {
        let dir = self.nodes().next()?.dir.parent()?;
        Some(file(dir)).filter(|path| path.exists())
    }

    /// Secures the cluster, if it is not secured yet, and stores an administrator's token. If a previous
    /// attempt secured the cluster and lost the token, another token is created.
    pub async fn secure(&mut self) -> anyhow::Result<()> {
        if self.credentials().token.is_some() {
            return Ok(());
        }
        let node = self.nodes().next().context("a cluster has a node")?;
        let dir = node
            .dir
            .parent()
            .context("a node's directory is in the cluster's")?;
        let operator = Token::read(&node.data_dir().join(OperatorToken::FILE_NAME))
            .with_context(|| format!("node {} has to be running", node.id))?;
        let mut builder = LockClient::builder([&node.http]).token(operator);
        if let Some(tls) = self.tls() {
            builder = builder.tls(tls.clone());
        }
        let access = builder.build()?.access();
        let file = SecretFile::create(&file(dir))?;
        let made = match access.status().await?.secured {
            false => access.secure(DESCRIPTION, None).await,
            true => access.create_token("admin", DESCRIPTION, None).await,
        };
        let token = made.context("securing the cluster")?.token;
        file.put(token.expose())?;
        self.set_token(token);
        Ok(())
    }
}
