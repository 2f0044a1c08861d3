//! Mirror of the source at the target. It first reads and compares all znodes, then follows the watch
//! notifications. It remembers the state of both sides, and compares everything again after a loss of a
//! connection or of a watch, or after the target has swept a znode.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use cli_support::api_client::CallError;
use tokio::time::Instant;

use super::facts::{Facts, Kind, Tree, digest};
use super::incompatible_znodes::IncompatibleZnodes;
use super::progress::Progress;
use super::scope::{Scope, is_within, parent};
use super::source::{KnownTree, KnownZnode, ReadZnode, Source, SourceError};
use super::target::{Step, Target, with_advice};

/// Number of znodes that are read before they are written.
const READ_AT_ONCE: usize = 2_000;

/// Maximum number of consecutive comparisons that fail; further ones would not help.
const MAX_COMPARISONS: u32 = 8;

/// Reason why a step was not executed.
enum StepError {
    /// The connection to the source is lost and has to be reopened.
    Source(anyhow::Error),
    /// The target differs from its remembered state.
    Stale(String),
    /// Retrying does not help.
    Fatal(anyhow::Error),
}

impl From<SourceError> for StepError {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Lost(error) => Self::Source(error),
            SourceError::Refused(why) => Self::Fatal(anyhow::anyhow!(why)),
        }
    }
}

impl From<CallError> for StepError {
    fn from(error: CallError) -> Self {
        match error.code() {
            // The target has swept a container, or another client has created a child: reading the target
            // again tells which.
            "no_znode" | "not_empty" => Self::Stale(error.to_string()),
            // The target's limits were lowered since they were queried: reading the target again returns the
            // new limits, and thereby the znodes that exceed them.
            "too_large" | "limit_reached" => Self::Stale(error.to_string()),
            _ => Self::Fatal(with_advice(error)),
        }
    }
}

/// Mirror of the source at the target. See the module.
pub struct Mirror {
    source: Source,
    target: Target,
    scope: Scope,
    /// Persistent znodes of the source.
    source_tree: KnownTree,
    /// Ephemeral znodes of the source, with their sessions.
    ephemerals: BTreeMap<String, i64>,
    /// Znodes of the target.
    target_tree: Tree,
    /// Znodes of the target that do not come from the source and are kept.
    target_only: BTreeSet<String>,
    /// Znodes of the source that exceed the target's limits.
    incompatible: IncompatibleZnodes,
    /// True with `--into`: then both sides have created children below the same znodes.
    is_shared: bool,
    /// Number of changes of the source that led to a step, since the start.
    changes: u64,
    /// Time and path of the last such change.
    last_change: Option<(Instant, String)>,
    /// True if watches were lost since the last comparison.
    is_lost: bool,
    /// True if nothing may be written.
    is_reader: bool,
}

/// Difference between both sides at one path.
#[derive(Debug, Clone)]
pub struct Difference {
    /// Path.
    pub path: String,
    /// Description.
    pub what: String,
}

impl Mirror {
    /// Creates a mirror that has read nothing yet.
    pub fn new(source: Source, target: Target, scope: Scope) -> Self {
        Self {
            source,
            target,
            scope,
            source_tree: KnownTree::new(),
            ephemerals: BTreeMap::new(),
            target_tree: Tree::new(),
            target_only: BTreeSet::new(),
            incompatible: IncompatibleZnodes::default(),
            is_shared: false,
            changes: 0,
            last_change: None,
            is_lost: false,
            is_reader: false,
        }
    }

    /// Returns the persistent znodes of the source.
    pub fn source_tree(&self) -> &KnownTree {
        &self.source_tree
    }

    /// Returns the ephemeral znodes of the source, with their sessions.
    pub fn ephemerals(&self) -> &BTreeMap<String, i64> {
        &self.ephemerals
    }

    /// Returns the znodes of the target.
    pub fn target_tree(&self) -> &Tree {
        &self.target_tree
    }

    /// Returns the number of znodes that exist only at the target and are kept.
    pub fn target_only(&self) -> usize {
        self.target_only.len()
    }

    /// Returns the znodes of the source that exceed the target's limits.
    pub fn incompatible_znodes(&self) -> &IncompatibleZnodes {
        &self.incompatible
    }

    /// Returns the source, for other requests.
    pub fn source(&mut self) -> &mut Source {
        &mut self.source
    }

    /// Returns the target, for other requests.
    pub fn target(&mut self) -> &mut Target {
        &mut self.target
    }

    /// Returns the number of copied changes, and the time and path of the last one.
    pub fn changes(&self) -> (u64, Option<(Instant, String)>) {
        (self.changes, self.last_change.clone())
    }

    /// Waits for a change notification, or until the connection is lost; the next operation then reconnects.
    pub async fn wait_notification(&mut self) {
        if let Ok(connection) = self.source.connection()
            && connection.wait_notification().await.is_err()
        {
            self.source.disconnect();
        }
    }

    /// Returns the number of notified changes that are not copied yet.
    pub fn behind(&mut self) -> usize {
        self.source
            .connection()
            .map_or(0, |connection| connection.pending_notifications())
    }

    /// Returns whether the source sends change notifications; otherwise all znodes have to be compared
    /// repeatedly.
    pub fn follows(&self) -> bool {
        self.source.watches == Some(true)
    }

    /// Waits until the source's server has applied everything that was committed before, and returns the
    /// zxid.
    pub async fn sync(&mut self) -> anyhow::Result<i64> {
        let root = self.scope.root().to_owned();
        for _ in 0..MAX_COMPARISONS {
            match self.source.sync(&root).await {
                Ok(position) => return Ok(position),
                Err(SourceError::Refused(why)) => anyhow::bail!(why),
                // Notifications of the lost watches are missing; the caller compares, or follows, which then
                // compares.
                Err(SourceError::Lost(_)) => self.source.connect(&root).await.map_err(fatal)?,
            }
            self.is_lost = true;
        }
        anyhow::bail!("the connections to the source are lost repeatedly")
    }

    /// Reads the whole target.
    pub async fn read_target(&mut self) -> anyhow::Result<()> {
        let mut here = self.target.tree(self.scope.root()).await?;
        here.retain(|path, _| self.scope.has(path));
        self.target_tree = here;
        Ok(())
    }

    /// Keeps all current znodes of the target that the source does not have.
    pub fn keep_target_znodes(&mut self) {
        self.target_only = self.target_tree.keys().cloned().collect();
        self.is_shared = true;
    }

    /// Connects and reads the whole source without changing the target.
    pub async fn read_source(&mut self, progress: &mut Progress) -> anyhow::Result<()> {
        self.is_reader = true;
        self.source.connect(self.scope.root()).await.map_err(fatal)?;
        self.retry(progress, Work::All).await
    }

    /// Reads the whole source to find znodes that exceed the target's limits, without changing the target.
    pub async fn survey(&mut self, progress: &mut Progress) -> anyhow::Result<()> {
        self.is_reader = true;
        let read = self.retry(progress, Work::All).await;
        self.is_reader = false;
        read
    }

    /// Compares until both sides are equal.
    pub async fn catch_up(&mut self, progress: &mut Progress) -> anyhow::Result<()> {
        self.retry(progress, Work::All).await
    }

    /// Copies the notified changes, or compares everything if there are no notifications or watches were
    /// lost. Returns at once if there is nothing to do.
    pub async fn follow(&mut self, progress: &mut Progress) -> anyhow::Result<()> {
        match self.follows() {
            true => self.retry(progress, Work::Notified).await,
            false => self.retry(progress, Work::All).await,
        }
    }

    /// Finds znodes that have changed without an event, such as replaced access control lists, and copies
    /// them.
    pub async fn recheck(&mut self, progress: &mut Progress) -> anyhow::Result<()> {
        match self.follows() {
            true => self.retry(progress, Work::Known).await,
            false => self.retry(progress, Work::All).await,
        }
    }

    async fn retry(&mut self, progress: &mut Progress, mut work: Work) -> anyhow::Result<()> {
        for _ in 0..MAX_COMPARISONS {
            let work_now = match std::mem::take(&mut self.is_lost) {
                true => Work::All,
                false => work,
            };
            let done = match work_now {
                Work::All => self.compare(progress).await,
                Work::Notified => self.copy_notified(progress).await,
                Work::Known => self.recheck_known(progress).await,
            };
            match done {
                Ok(()) if !self.is_lost => return Ok(()),
                // A znode became compatible, and its descendants are unknown.
                Ok(()) => {}
                Err(StepError::Fatal(error)) => return Err(error),
                Err(StepError::Source(error)) => {
                    progress.say(&format!(
                        "the connection to the source is lost ({error:#}): comparing again"
                    ));
                    self.source.connect(self.scope.root()).await.map_err(fatal)?;
                    progress.say(&format!("reading from {}", self.source.server()));
                }
                Err(StepError::Stale(why)) => {
                    progress.say(&format!("the target has changed ({why}): comparing again"));
                    self.read_target().await?;
                }
            }
            work = Work::All;
        }
        anyhow::bail!("the trees still differ after {MAX_COMPARISONS} comparisons")
    }

    /// Reads the whole source and makes the target equal.
    async fn compare(&mut self, progress: &mut Progress) -> Result<(), StepError> {
        let root = self.scope.root().to_owned();
        let total = self.source.count(&root).await?;
        progress.begin("comparing", total);
        self.create_ancestors().await?;
        // The comparison covers all earlier notifications.
        self.source.connection()?.take_notifications();
        let mut seen = BTreeSet::new();
        self.ephemerals.clear();
        let known_incompatible = std::mem::take(&mut self.incompatible);
        let mut level = vec![root];
        while !level.is_empty() {
            let mut next = Vec::new();
            for paths in level.chunks(READ_AT_ONCE) {
                let wanted: Vec<String> = paths
                    .iter()
                    .filter(|path| self.scope.has(path))
                    .cloned()
                    .collect();
                let found = self.source.read(&wanted, &self.source_tree).await?;
                let mut parents: Vec<String> = paths
                    .iter()
                    .filter(|path| !self.scope.has(path))
                    .cloned()
                    .collect();
                let mut steps = Vec::new();
                for (path, node) in wanted.into_iter().zip(found) {
                    let Some(node) = node else { continue };
                    progress.read(&node);
                    if let Kind::Ephemeral(session) = node.facts.kind {
                        self.ephemerals.insert(path, session);
                        continue;
                    }
                    let limits = self.target.limits();
                    if let Some(why) = limits.incompatibility(&path, &node.facts, node.stat.num_children) {
                        self.incompatible.insert(&path, &why);
                        continue;
                    }
                    if node.stat.num_children > 0 {
                        parents.push(path.clone());
                    }
                    seen.insert(path.clone());
                    steps.extend(self.put(path, node));
                }
                self.count_changes(&steps);
                self.execute(steps, progress).await?;
                let children = self.source.children(&parents).await?.into_iter().flatten();
                next.extend(children.filter(|path| self.scope.may_have_members_below(path)));
                progress.report();
            }
            level = next;
        }
        progress.incompatible_znodes(&self.incompatible, &known_incompatible);
        if !seen.contains(self.scope.root()) && !self.incompatible.cover(self.scope.root()) {
            let what = format!("the source has no {}", self.scope.root());
            return Err(StepError::Fatal(anyhow::anyhow!(what)));
        }
        self.source_tree.retain(|path, _| seen.contains(path));
        // The target keeps the last state of a znode that has outgrown a limit, which is better than nothing.
        let is_gone = |path: &&String| {
            !seen.contains(*path) && !self.is_needed_by_others(path) && !self.incompatible.cover(path)
        };
        let gone = self.target_tree.keys().rev().filter(is_gone);
        let gone: Vec<Step> = gone.cloned().map(Step::Remove).collect();
        self.count_changes(&gone);
        self.execute(gone, progress).await
    }

    /// Creates missing ancestors of a root other than `/`. They are needed at the target, but are not part of
    /// the migrated tree.
    async fn create_ancestors(&mut self) -> Result<(), StepError> {
        let above = self.scope.above();
        if above.is_empty() || self.is_reader {
            return Ok(());
        }
        let mut steps = Vec::new();
        let found = self.source.read(&above, &KnownTree::new()).await?;
        for (path, node) in above.iter().zip(found) {
            let node = node.ok_or_else(|| StepError::Fatal(anyhow::anyhow!("the source has no {path}")))?;
            if !self.target.has(path).await.map_err(StepError::Fatal)? {
                steps.push(Step::Put(path.clone(), node.facts, node.data));
            }
        }
        Ok(self.target.execute(&steps).await?)
    }

    /// Copies the changes of which the watches have sent notifications.
    async fn copy_notified(&mut self, progress: &mut Progress) -> Result<(), StepError> {
        let (notified, since) = self.source.connection()?.take_notifications();
        if let Some(since) = since {
            progress.behind(notified.len(), since.elapsed());
        }
        // A creation or deletion changes the counter of its parent, and unknown parents have to be copied
        // before their children.
        let mut paths: BTreeSet<String> = BTreeSet::new();
        for path in notified {
            let mut above = parent(&path);
            let mut is_first = true;
            while let Some(at) =
                above.filter(|at| self.scope.has(at) && (is_first || !self.source_tree.contains_key(*at)))
            {
                paths.insert(at.to_owned());
                (above, is_first) = (parent(at), false);
            }
            if self.scope.has(&path) {
                paths.insert(path);
            }
        }
        self.copy(paths, progress).await
    }

    /// Reads znodes again, and copies those that have changed.
    async fn copy(&mut self, paths: BTreeSet<String>, progress: &mut Progress) -> Result<(), StepError> {
        // Parents before their children, because paths are sorted.
        let paths: Vec<String> = paths.into_iter().collect();
        for paths in paths.chunks(READ_AT_ONCE) {
            let found = self.source.read(paths, &self.source_tree).await?;
            let mut steps = Vec::new();
            let mut gone = BTreeSet::new();
            for (path, node) in paths.iter().zip(found) {
                match node {
                    Some(node) if matches!(node.facts.kind, Kind::Ephemeral(_)) => {
                        if let Kind::Ephemeral(session) = node.facts.kind {
                            self.ephemerals.insert(path.clone(), session);
                        }
                        gone.insert(path.clone());
                    }
                    Some(node) => {
                        self.ephemerals.remove(path);
                        let has_parent = *path == self.scope.root()
                            || parent(path).is_some_and(|parent| {
                                self.source_tree.contains_key(parent) || !self.scope.has(parent)
                            });
                        // A znode without a parent has been deleted meanwhile, and a notification of that
                        // follows.
                        if has_parent && self.check_compatibility(path, &node, progress) {
                            progress.read(&node);
                            steps.extend(self.put(path.clone(), node));
                        }
                    }
                    None => {
                        self.ephemerals.remove(path);
                        self.incompatible.remove_within(path);
                        gone.insert(path.clone());
                    }
                }
            }
            let mut removals = BTreeSet::new();
            for path in &gone {
                let below = self.source_tree.range::<String, _>(path..).map(|(path, _)| path);
                // Siblings whose names continue with a character that sorts before the slash are in between.
                let below = below.take_while(|other| other.starts_with(path.as_str()));
                removals.extend(below.filter(|other| is_within(other, path)).cloned());
            }
            for path in &removals {
                self.source_tree.remove(path);
            }
            steps.retain(|step| !matches!(step, Step::Put(path, ..) if removals.contains(path)));
            let removals = removals
                .into_iter()
                .rev()
                .filter(|path| self.target_tree.contains_key(path));
            let removals = removals.collect::<Vec<_>>().into_iter().map(Step::Remove);
            let steps: Vec<Step> = removals.chain(steps).collect();
            self.count_changes(&steps);
            self.execute(steps, progress).await?;
        }
        progress.report();
        Ok(())
    }

    /// Returns whether a znode that was read again is compatible with the target's limits, and reports it if
    /// not.
    fn check_compatibility(&mut self, path: &str, node: &ReadZnode, progress: &mut Progress) -> bool {
        if parent(path).is_some_and(|parent| self.incompatible.cover(parent)) {
            return false;
        }
        let limits = self.target.limits();
        let Some(why) = limits.incompatibility(path, &node.facts, node.stat.num_children) else {
            // The znode's descendants were left out, too, and no notification reports them.
            self.is_lost |= self.incompatible.remove(path);
            return true;
        };
        if self.incompatible.insert(path, &why) {
            progress.incompatible_znode(path, &why);
        }
        false
    }

    fn count_changes(&mut self, steps: &[Step]) {
        self.changes += steps.len() as u64;
        if let Some(Step::Put(path, ..) | Step::Remove(path)) = steps.last() {
            self.last_change = Some((Instant::now(), path.clone()));
        }
    }

    /// Reads every known znode of the source and copies those that have changed.
    async fn recheck_known(&mut self, progress: &mut Progress) -> Result<(), StepError> {
        let all: Vec<String> = self.source_tree.keys().cloned().collect();
        progress.begin("checking every znode of the source", Some(all.len() as u64));
        let mut changed = BTreeSet::new();
        let mut parents = Vec::new();
        for paths in all.chunks(READ_AT_ONCE) {
            let found = self.source.data(paths, &self.source_tree).await?;
            for (path, found) in paths.iter().zip(found) {
                let Some((data, stat)) = found else {
                    changed.insert(path.clone());
                    continue;
                };
                let known = &self.source_tree[path];
                if known.stat.pzxid != stat.pzxid || known.stat.num_children != stat.num_children {
                    parents.push(path.clone());
                }
                if known.stat != stat || known.facts.data_sha256 != data.as_deref().map(super::facts::hash) {
                    changed.insert(path.clone());
                }
                progress.checked();
            }
            progress.report();
        }
        for children in self.source.children(&parents).await? {
            let is_new =
                |path: &String| !self.source_tree.contains_key(path) && !self.ephemerals.contains_key(path);
            changed.extend(
                children
                    .into_iter()
                    .filter(|path| self.scope.has(path) && is_new(path)),
            );
        }
        self.copy(changed, progress).await
    }

    /// Remembers the state of a znode of the source, and returns the step that makes the target equal, if one
    /// is needed.
    fn put(&mut self, path: String, node: ReadZnode) -> Option<Step> {
        let ReadZnode {
            stat,
            mut facts,
            data,
        } = node;
        if facts.data_sha256.is_none() && !self.target.distinguishes_null() {
            facts.data_sha256 = Some(super::facts::hash(b""));
        }
        self.target_only.remove(&path);
        let here = self.target_tree.get(&path);
        let is_same = here.is_some_and(|here| self.is_equal(&path, &facts, here));
        self.source_tree.insert(
            path.clone(),
            KnownZnode {
                facts: facts.clone(),
                stat,
            },
        );
        // A sequence number that was used at the target must not be used again, either.
        let used_at_target = self
            .target_tree
            .get(&path)
            .filter(|_| self.is_shared)
            .map_or(0, |here| here.creations);
        facts.creations = facts.creations.max(used_at_target);
        (!is_same).then_some(Step::Put(path, facts, data))
    }

    async fn execute(&mut self, steps: Vec<Step>, progress: &mut Progress) -> Result<(), StepError> {
        if steps.is_empty() || self.is_reader {
            return Ok(());
        }
        self.target.execute(&steps).await?;
        progress.written(&steps);
        for step in steps {
            match step {
                Step::Put(path, facts, _) => {
                    self.target_tree.insert(path, facts);
                }
                Step::Remove(path) => {
                    self.target_tree.remove(&path);
                }
            }
        }
        Ok(())
    }

    /// Restores znodes that the target has swept and the source has not; returns their number.
    pub async fn restore_swept(&mut self, progress: &mut Progress) -> anyhow::Result<usize> {
        let missing: BTreeSet<String> = self
            .source_tree
            .keys()
            .filter(|path| !self.target_tree.contains_key(*path))
            .cloned()
            .collect();
        let count = missing.len();
        match self.copy(missing, progress).await {
            Ok(()) => Ok(count),
            Err(StepError::Fatal(error) | StepError::Source(error)) => Err(error),
            Err(StepError::Stale(why)) => anyhow::bail!(why),
        }
    }

    /// Returns the differences between the remembered states of both sides.
    pub fn differences(&self) -> Vec<Difference> {
        let incompatible = self.incompatible.iter().map(|(path, why)| Difference {
            path: path.clone(),
            what: format!("incompatible with the target's limits: {why}"),
        });
        let mut all: Vec<Difference> = incompatible.collect();
        for (path, known) in &self.source_tree {
            if self.incompatible.cover(path) {
                continue;
            }
            match self.target_tree.get(path) {
                Some(here) if self.is_equal(path, &known.facts, here) => {}
                Some(here) => all.push(Difference {
                    path: path.clone(),
                    what: super::facts::differences(&known.facts, here).join("; "),
                }),
                // An empty container, or a TTL znode whose time is over: each side sweeps at its own time.
                None if known.facts.kind.is_swept() && !self.has_lasting_children(path) => {}
                None => all.push(Difference {
                    path: path.clone(),
                    what: "missing at the target".to_owned(),
                }),
            }
        }
        let is_extra = |path: &&String| {
            !self.source_tree.contains_key(*path)
                && !self.is_needed_by_others(path)
                && !self.incompatible.cover(path)
        };
        let only_here = self.target_tree.keys().filter(is_extra);
        all.extend(only_here.map(|path| Difference {
            path: path.clone(),
            what: "exists only at the target".to_owned(),
        }));
        all
    }

    /// Returns whether a znode of the target, or a descendant of it, is kept for other users.
    fn is_needed_by_others(&self, path: &str) -> bool {
        let mut below = self
            .target_only
            .range::<str, _>((Bound::Included(path), Bound::Unbounded))
            .take_while(|other| other.starts_with(path));
        below.any(|other| is_within(other, path))
    }

    /// Returns whether two znodes are equal in all properties that have to be.
    fn is_equal(&self, path: &str, there: &Facts, here: &Facts) -> bool {
        let has_own_data = Scope::has_own_data(path);
        if there == here || !(has_own_data || self.is_shared) {
            return there == here;
        }
        let mut same = there.clone();
        if has_own_data {
            (same.data_sha256, same.data_length) = (here.data_sha256, here.data_length);
        }
        if self.is_shared {
            same.creations = here.creations.max(there.creations);
        }
        same == *here
    }

    fn has_lasting_children(&self, path: &str) -> bool {
        let below = self.source_tree.range(format!("{path}/")..).next();
        below.is_some_and(|(other, _)| is_within(other, path))
    }

    /// Returns the number of znodes that both sides have.
    pub fn common(&self) -> usize {
        let is_common = |path: &&String| self.source_tree.contains_key(*path);
        self.target_tree.keys().filter(is_common).count()
    }

    /// Returns the digests of the common znodes of the source and of the target. Properties that are each
    /// side's own are left out.
    pub fn digests(&self) -> (String, String) {
        let is_common = |path: &String| {
            self.target_tree.contains_key(path)
                && self.source_tree.contains_key(path)
                && !Scope::has_own_data(path)
        };
        let has_counters = !self.is_shared;
        let there = self.source_tree.iter().map(|(path, known)| (path, &known.facts));
        let there = digest(there.filter(|(path, _)| is_common(path)), has_counters);
        let here = digest(
            self.target_tree.iter().filter(|(path, _)| is_common(path)),
            has_counters,
        );
        (there, here)
    }
}

/// Scope of one operation.
#[derive(Clone, Copy)]
enum Work {
    All,
    Notified,
    Known,
}

fn fatal(error: SourceError) -> anyhow::Error {
    match error {
        SourceError::Lost(error) => error,
        SourceError::Refused(why) => anyhow::anyhow!(why),
    }
}
