//! Checkpoint of a migration, a znode at the target. An interrupted migration continues from it, and after
//! the switch it prevents that newer writes of clients are overwritten.

use anyhow::{Context, bail};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::facts::{AclEntry, Facts, Kind, hash};
use super::scope::CHECKPOINT;
use super::target::{Step, Target, with_advice};

/// Checkpoint of a migration. See the module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Root of the migrated tree.
    pub root: String,
    /// Addresses of the source, for people.
    pub from: Vec<String>,
    /// True if znodes that only the target has are kept.
    pub into: bool,
    /// True if clients have been moved to the target.
    pub switched: bool,
    /// Version of the program that began the migration, for people.
    pub program: String,
}

impl Checkpoint {
    /// Creates the checkpoint of a new migration.
    pub fn new(root: &str, from: &[String], into: bool) -> Self {
        Self {
            root: root.to_owned(),
            from: from.to_vec(),
            into,
            switched: false,
            program: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// Reads the checkpoint at the target, if there is one.
    pub async fn read(target: &mut Target) -> anyhow::Result<Option<Self>> {
        let Some(text) = target.text(CHECKPOINT).await? else {
            return Ok(None);
        };
        let checkpoint = serde_json::from_str(&text)
            .with_context(|| format!("{CHECKPOINT} does not contain the checkpoint of a migration"))?;
        Ok(Some(checkpoint))
    }

    /// Writes the checkpoint to the target.
    pub async fn write(&self, target: &mut Target) -> anyhow::Result<()> {
        let data = Bytes::from(serde_json::to_vec(self)?);
        let anyone = AclEntry {
            perms: "cdrwa".to_owned(),
            scheme: "world".to_owned(),
            id: "anyone".to_owned(),
        };
        let facts = Facts {
            kind: Kind::Persistent,
            data_sha256: Some(hash(&data)),
            data_length: data.len() as u32,
            acl: vec![anyone].into(),
            version: 0,
            aversion: 0,
            created_ms: 0,
            modified_ms: 0,
            creations: 0,
        };
        target
            .execute(&[Step::Put(CHECKPOINT.to_owned(), facts, data)])
            .await
            .map_err(with_advice)
    }

    /// Fails if another migration was begun at the target, or if this one is finished.
    pub fn require(&self, root: &str) -> anyhow::Result<()> {
        if self.root != root {
            bail!(
                "the target has an unfinished migration of {}, not of {root}: finish it, or delete the znode {CHECKPOINT}",
                self.root
            );
        }
        if self.switched {
            bail!(
                "the switch of {root} is done: clients write to the target now, and their writes would be overwritten. \
                 (If no client has written since, delete the znode {CHECKPOINT} to migrate again.)"
            );
        }
        Ok(())
    }
}
