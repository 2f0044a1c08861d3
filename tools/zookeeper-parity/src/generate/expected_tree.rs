//! The generator's model of existing znodes. It is mostly right, so that most requests find a znode.
//! It may be wrong, because the generator ignores permissions, quotas and many errors: nothing is compared
//! with it.

use std::collections::BTreeMap;

use super::material;
use crate::program::WRITTEN_ROOT;
use crate::rng::Rng;
use crate::wire::Request;

/// Znode that is believed to exist.
#[derive(Clone, Default)]
struct Node {
    /// Session of an ephemeral znode.
    owner: Option<usize>,
    creations: u32,
    version: i32,
}

/// The znodes below the root, and the root.
#[derive(Clone)]
pub struct ExpectedTree(BTreeMap<String, Node>);

impl ExpectedTree {
    /// Creates the model of an empty tree with its root.
    pub fn new() -> Self {
        Self(BTreeMap::from([(WRITTEN_ROOT.to_owned(), Node::default())]))
    }

    /// Draws an existing path, seldom the root.
    pub fn existing(&self, rng: &mut Rng) -> String {
        let first = usize::from(self.0.len() > 1 && rng.percent(95));
        let at = first + rng.below(self.0.len() - first);
        self.0
            .keys()
            .nth(at)
            .expect("the index is below the length")
            .clone()
    }

    /// Draws a path without children other than the root, if there is one.
    pub fn leaf(&self, rng: &mut Rng) -> Option<String> {
        let leaves = self
            .0
            .keys()
            .filter(|path| *path != WRITTEN_ROOT && !self.has_children(path));
        let leaves = leaves.collect::<Vec<_>>();
        if leaves.is_empty() {
            None
        } else {
            Some(leaves[rng.below(leaves.len())].clone())
        }
    }

    /// Returns the version of a znode, or that of a new one.
    pub fn version(&self, path: &str) -> i32 {
        self.0.get(path).map_or(0, |node| node.version)
    }

    /// Ends a session and removes its ephemeral znodes.
    pub fn end(&mut self, session: usize) {
        self.0.retain(|_, node| node.owner != Some(session));
    }

    /// Applies the expected effect of a request. Returns `false` if it should fail.
    pub fn note(&mut self, session: usize, request: &Request) -> bool {
        match request {
            Request::Create { path, flags, .. } => self.create(session, path, *flags),
            Request::Delete { path, version } => {
                let exists = self.is_at(path, *version) && !self.has_children(path) && path != WRITTEN_ROOT;
                if exists {
                    self.0.remove(path);
                }
                exists
            }
            Request::SetData { path, version, .. } => {
                let exists = self.is_at(path, *version);
                if exists {
                    self.0.entry(path.clone()).or_default().version += 1;
                }
                exists
            }
            Request::Check { path, version } => self.is_at(path, *version),
            Request::Multi(items) => {
                let before = self.clone();
                let succeeds = items.iter().all(|item| self.note(session, item));
                if !succeeds {
                    *self = before;
                }
                succeeds
            }
            _ => true,
        }
    }

    fn create(&mut self, session: usize, path: &str, flags: i32) -> bool {
        let Some((parent, name)) = path.rsplit_once('/') else {
            return false;
        };
        let Some(of) = self.0.get_mut(parent) else {
            return false;
        };
        if of.owner.is_some() {
            return false;
        }
        let is_sequential = matches!(flags, 2 | 3 | 6);
        let path = if is_sequential {
            format!("{parent}/{name}{:010}", of.creations)
        } else {
            path.to_owned()
        };
        if self.0.contains_key(&path) || material::ILLEGAL_CHILDREN.contains(&&*path) {
            return false;
        }
        if let Some(of) = self.0.get_mut(parent) {
            of.creations += 1;
        }
        let owner = matches!(flags, 1 | 3).then_some(session);
        self.0.insert(
            path,
            Node {
                owner,
                ..Node::default()
            },
        );
        true
    }

    fn is_at(&self, path: &str, version: i32) -> bool {
        self.0
            .get(path)
            .is_some_and(|node| version == -1 || version == node.version)
    }

    fn has_children(&self, path: &str) -> bool {
        let below = format!("{path}/");
        self.0
            .range(below.clone()..)
            .next()
            .is_some_and(|(other, _)| other.starts_with(&below))
    }
}
