//! A cluster on this machine that wants to know who calls: its administrator's token, and how it comes to have one.

use std::path::{Path, PathBuf};

use access_token::OperatorToken;
use anyhow::Context;
use cli_support::secret_file::SecretFile;
use lock_client::{LockClient, Token};

use super::LocalCluster;

/// What stands in the nodes' configurations, the same in all of them: nobody is served before the cluster is secured.
pub const SETTINGS: &str = "\n[access]\nrequired = true\n";

/// What the administrator's token is called, for people who list tokens.
const DESCRIPTION: &str = "made by lockgate cluster up";

fn file(dir: &Path) -> PathBuf {
    dir.join("admin.token")
}

/// The administrator's token of the cluster in this directory, if it has one.
pub fn token(dir: &Path) -> anyhow::Result<Option<Token>> {
    let path = file(dir);
    match path.exists() {
        true => Ok(Some(Token::read(&path)?)),
        false => Ok(None),
    }
}

impl LocalCluster {
    /// Whether its nodes serve nobody before it is secured.
    pub fn requires_access(&self) -> bool {
        self.nodes().any(|node| node.requires_access)
    }

    /// Where the administrator's token is, if there is one.
    pub fn admin_token_file(&self) -> Option<PathBuf> {
        let dir = self.nodes().next()?.dir.parent()?;
        Some(file(dir)).filter(|path| path.exists())
    }

    /// Secures the cluster, if that was not done, and keeps an administrator's token. One that got lost on its way is replaced.
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
            .with_context(|| format!("node {} has to run", node.id))?;
        let mut builder = LockClient::builder([&node.http]).token(operator);
        if let Some(tls) = self.tls() {
            builder = builder.tls(tls.clone());
        }
        let access = builder.build()?.access();
        let kept = SecretFile::create(&file(dir))?;
        let made = match access.status().await?.secured {
            false => access.secure(DESCRIPTION, None).await,
            true => access.create_token("admin", DESCRIPTION, None).await,
        };
        let token = made.context("securing the cluster")?.token;
        kept.put(token.expose())?;
        self.show(token);
        Ok(())
    }
}
