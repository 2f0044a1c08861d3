//! Namespaces with quotas, and their usage. The quotas are state. The usage follows from the tree: it is counted when a namespace gets its first
//! quotas or is restored, and kept correct from there on by every change of the tree, also by its undo.
//!
//! Only namespaces with quotas are counted, so a tree without any pays one test per change.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::hash::Hash;
use core::ops::Bound;

use fault_injection::planted::{self, Bug};

use crate::model::damage::Damage;
use crate::model::digits::sequence_number;
use crate::model::ids::SessionId;
use crate::model::namespace::{
    MAX_NAMESPACES, NamespaceName, NamespaceQuota, NamespaceUsage, NamespaceView, Quotas, namespace_of,
};
use crate::model::path::{LockName, SHORT_PATH_BYTES, ZPath};
use crate::model::refusal::{Limited, Refusal};
use crate::stable_hash::{self, Table};
use crate::tree::Tree;
use crate::tree::index::NodeIndex;
use crate::tree::node::Node;

/// Namespaces with quotas.
#[derive(Default)]
pub(crate) struct Namespaces {
    /// True once a quota was set. From then on a recorded outcome may be a refusal by a quota, which former versions cannot read.
    were_set: bool,
    by_name: BTreeMap<NamespaceName, Counted>,
}

/// Quotas and usage of one namespace.
struct Counted {
    quotas: Quotas,
    counts: Counts,
}

/// Usage of a namespace, as it is counted.
#[derive(Default)]
struct Counts {
    znodes: u64,
    bytes: u64,
    /// Number of ephemeral znodes of each session.
    sessions: Table<SessionId, u32>,
    /// Number of contenders of each lock that has some, by the lock's node.
    locks: Table<NodeIndex, u32>,
}

impl Counts {
    fn usage(&self) -> NamespaceUsage {
        NamespaceUsage {
            sessions: self.sessions.len() as u64,
            locks: self.locks.len() as u64,
            znodes: self.znodes,
            bytes: self.bytes,
        }
    }

    /// Returns the growth of the usage by a change at `path`.
    fn growth(&self, path: &ZPath, growth: &NamespaceGrowth) -> NamespaceUsage {
        let (mut sessions, mut locks) = (0, 0);
        if let Some((session, parent)) = growth.ephemeral {
            let is_in_use = parent.is_some_and(|parent| self.locks.contains_key(&parent));
            sessions = u64::from(!self.sessions.contains_key(&session));
            locks = u64::from(!is_in_use && would_contend(path));
        }
        NamespaceUsage {
            sessions,
            locks,
            znodes: growth.znodes,
            bytes: growth.bytes,
        }
    }

    fn add(&mut self, node: &Node, is_contender: bool) {
        self.znodes += 1;
        self.bytes += node.data.len() as u64;
        if let Some(session) = node.session() {
            *self.sessions.entry(session).or_insert(0) += 1;
        }
        if is_contender {
            *self.locks.entry(node.parent).or_insert(0) += 1;
        }
    }

    fn subtract(&mut self, node: &Node, is_contender: bool) {
        self.znodes -= 1;
        self.bytes -= node.data.len() as u64;
        if let Some(session) = node.session() {
            subtract_one(&mut self.sessions, session);
        }
        if is_contender {
            subtract_one(&mut self.locks, node.parent);
        }
    }
}

/// Change that may make a namespace larger.
#[derive(Default)]
pub(crate) struct NamespaceGrowth {
    pub(crate) znodes: u64,
    pub(crate) bytes: u64,
    /// Session of a new ephemeral node, and the index of its parent unless that is missing, too.
    pub(crate) ephemeral: Option<(SessionId, Option<NodeIndex>)>,
}

/// Subtracts one from a count, which is removed at zero.
fn subtract_one<K: Eq + Hash>(counts: &mut Table<K, u32>, key: K) {
    match counts.get_mut(&key) {
        Some(1) => drop(counts.remove(&key)),
        Some(count) => *count -= 1,
        None => unreachable!("what is subtracted was counted"),
    }
}

/// Returns whether a node at `path` is a contender of a lock.
fn is_contender(node: &Node, path: &ZPath) -> bool {
    node.session().is_some() && would_contend(path)
}

/// Returns whether an ephemeral node at `path` is a contender of a lock.
fn would_contend(path: &ZPath) -> bool {
    LockName::of_contender(path).is_some() && sequence_number(path.name()).is_some()
}

impl Namespaces {
    /// Returns the quotas, as they go into a snapshot and the digest; `None` if none was ever set.
    pub(crate) fn records(&self) -> Option<Vec<(NamespaceName, Quotas)>> {
        let records = self.by_name.iter();
        let records = records.map(|(name, counted)| (name.clone(), counted.quotas));
        self.were_set.then(|| records.collect())
    }

    /// Returns the quotas' share of the digest. Former versions have none, so a state in which none was ever set has the same digest there.
    pub(crate) fn digest(&self) -> u64 {
        self.records().map_or(0, |records| stable_hash::of(&records))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns a namespace with quotas.
    pub(crate) fn get(&self, name: &str) -> Option<NamespaceView> {
        let (name, counted) = self.by_name.get_key_value(name)?;
        Some(counted.view(name))
    }

    /// Returns the namespaces with quotas whose names follow `after`, by name.
    pub(crate) fn following(&self, after: Option<&str>) -> impl Iterator<Item = NamespaceView> {
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self.by_name.range::<str, _>((first, Bound::Unbounded));
        range.map(|(name, counted)| counted.view(name))
    }

    /// Returns the counts of the namespace that a path is in, if it has quotas.
    fn counts_of(&mut self, path: &ZPath) -> Option<&mut Counts> {
        if self.by_name.is_empty() {
            return None;
        }
        Some(&mut self.by_name.get_mut(namespace_of(path)?)?.counts)
    }
}

impl Counted {
    fn view(&self, name: &NamespaceName) -> NamespaceView {
        NamespaceView {
            namespace: name.clone(),
            quotas: self.quotas,
            usage: self.counts.usage(),
        }
    }

    /// Refuses growth beyond a quota.
    fn check(&self, name: &NamespaceName, growth: NamespaceUsage) -> Result<(), Refusal> {
        let used = self.counts.usage();
        for quota in NamespaceQuota::ALL {
            let (Some(limit), Some(growth), Some(used)) =
                (self.quotas.of(quota), growth.of(quota), used.of(quota))
            else {
                continue;
            };
            let would_be = used.saturating_add(growth);
            if growth > 0 && would_be > limit {
                return Err(Refusal::NamespaceQuotaExceeded {
                    namespace: name.clone(),
                    quota,
                    limit,
                    would_be,
                });
            }
        }
        Ok(())
    }
}

impl Tree {
    pub(crate) fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// Sets the quotas of a namespace, whose usage is counted if it had none. Refuses one more namespace than allowed.
    pub(crate) fn set_quotas(&mut self, name: NamespaceName, quotas: Quotas) -> Result<(), Refusal> {
        self.namespaces.were_set = true;
        if let Some(counted) = self.namespaces.by_name.get_mut(&name) {
            counted.quotas = quotas;
            return Ok(());
        }
        if self.namespaces.by_name.len() >= MAX_NAMESPACES {
            return Err(Refusal::LimitReached {
                what: Limited::Namespaces,
                limit: MAX_NAMESPACES as u32,
            });
        }
        let counts = self.count_namespace(&name);
        self.namespaces.by_name.insert(name, Counted { quotas, counts });
        Ok(())
    }

    /// Removes the quotas of a namespace, and forgets its usage.
    pub(crate) fn remove_quotas(&mut self, name: &NamespaceName) -> Result<(), Refusal> {
        match self.namespaces.by_name.remove(name) {
            Some(_) => Ok(()),
            None => Err(Refusal::NoNamespace(name.clone())),
        }
    }

    /// Sets the quotas of a snapshot, after all nodes were added.
    pub(crate) fn restore_quotas(&mut self, records: Vec<(NamespaceName, Quotas)>) -> Result<(), Damage> {
        self.namespaces.were_set = true;
        for (name, quotas) in records {
            if self.namespaces.by_name.contains_key(&name) || self.set_quotas(name, quotas).is_err() {
                return Err("a namespace in it is there twice, or one too many");
            }
        }
        Ok(())
    }

    /// Counts the usage of a namespace by a visit of all its nodes.
    fn count_namespace(&self, name: &NamespaceName) -> Counts {
        let mut counts = Counts::default();
        let tops = [(name.znodes(), false), (name.locks(), true)];
        for (top, is_of_locks) in tops {
            let mut todo: Vec<_> = self.find(&top).into_iter().collect();
            while let Some(index) = todo.pop() {
                let node = self.node(index);
                // Contenders are at short paths only.
                let may_contend =
                    is_of_locks && node.session().is_some() && self.path_bytes(index) <= SHORT_PATH_BYTES;
                counts.add(node, may_contend && would_contend(&self.path(index)));
                todo.extend(self.children(index));
            }
        }
        counts
    }

    /// Returns the usage of a namespace by a visit of all its nodes, to check what was counted.
    pub(crate) fn recounted_usage(&self, name: &NamespaceName) -> NamespaceUsage {
        self.count_namespace(name).usage()
    }

    /// Adds a new node to the usage of its namespace.
    pub(crate) fn count_inserted(&mut self, index: NodeIndex, path: &ZPath) {
        if let Some(counts) = self.namespaces.counts_of(path) {
            let node = &self.slab[index];
            counts.add(node, is_contender(node, path));
        }
    }

    /// Subtracts a node that is about to be removed from the usage of its namespace.
    pub(crate) fn count_removed(&mut self, index: NodeIndex, path: &ZPath) {
        if planted::is(Bug::UsageOutlivesZnode) {
            return;
        }
        if let Some(counts) = self.namespaces.counts_of(path) {
            let node = &self.slab[index];
            counts.subtract(node, is_contender(node, path));
        }
    }

    /// Updates the usage of a namespace after the data of the node at `path`, of `before` bytes, was replaced.
    pub(crate) fn count_replaced(&mut self, index: NodeIndex, path: &ZPath, before: usize) {
        if let Some(counts) = self.namespaces.counts_of(path) {
            counts.bytes = counts.bytes + self.slab[index].data.len() as u64 - before as u64;
        }
    }

    /// Refuses a change at `path` that would exceed a quota of its namespace.
    pub(crate) fn check_namespace(&self, path: &ZPath, growth: &NamespaceGrowth) -> Result<(), Refusal> {
        if self.namespaces.by_name.is_empty() {
            return Ok(());
        }
        let found = namespace_of(path).and_then(|name| self.namespaces.by_name.get_key_value(name));
        match found {
            Some((name, counted)) => counted.check(name, counted.counts.growth(path, growth)),
            None => Ok(()),
        }
    }
}
