//! The note at the target that a tree is being brought there: whoever was interrupted goes on, and after the switch nothing is
//! overwritten that clients have written since.

use anyhow::{Context, bail};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::facts::{AclEntry, Facts, Kind, hash};
use super::scope::MARK;
use super::target::{Step, Target, explained};

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// What is brought.
    pub root: String,
    /// From where, for people.
    pub from: Vec<String>,
    /// Whether what only the target has stays.
    pub into: bool,
    /// Whether clients have been sent to the target.
    pub switched: bool,
    /// By which version of the program, for people.
    pub program: String,
}

impl Mark {
    /// Of a beginning.
    pub fn new(root: &str, from: &[String], into: bool) -> Self {
        Self {
            root: root.to_owned(),
            from: from.to_vec(),
            into,
            switched: false,
            program: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// The one that is there.
    pub async fn read(target: &mut Target) -> anyhow::Result<Option<Self>> {
        let Some(text) = target.text(MARK).await? else {
            return Ok(None);
        };
        let mark =
            serde_json::from_str(&text).with_context(|| format!("{MARK} is no note of a migration"))?;
        Ok(Some(mark))
    }

    /// Puts it there.
    pub async fn write(&self, target: &mut Target) -> anyhow::Result<()> {
        let data = Bytes::from(serde_json::to_vec(self)?);
        let everybody = AclEntry {
            perms: "cdrwa".to_owned(),
            scheme: "world".to_owned(),
            id: "anyone".to_owned(),
        };
        let facts = Facts {
            kind: Kind::Persistent,
            data_sha256: Some(hash(&data)),
            data_length: data.len() as u32,
            acl: vec![everybody].into(),
            version: 0,
            aversion: 0,
            created_ms: 0,
            modified_ms: 0,
            creations: 0,
        };
        target
            .take(&[Step::Put(MARK.to_owned(), facts, data)])
            .await
            .map_err(explained)
    }

    /// Refuses to go on where another thing was begun, or this one is over.
    pub fn require(&self, root: &str) -> anyhow::Result<()> {
        if self.root != root {
            bail!(
                "a migration of {} was begun here, not of {root}: finish that one, or delete the znode {MARK}",
                self.root
            );
        }
        if self.switched {
            bail!(
                "the switch of {root} was made: clients write here now, and what they have written since would be overwritten. \
                 (Who is sure that nobody has deletes the znode {MARK}.)"
            );
        }
        Ok(())
    }
}
