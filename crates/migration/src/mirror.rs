//! Keeps the target what the source is: once by reading and comparing all of it, then by following what its watches tell. It
//! remembers what both are like. What is lost (a connection, a watch, a znode that the target has swept) is made good by
//! comparing again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use cli_support::api_client::CallError;
use tokio::time::Instant;

use super::facts::{Facts, Kind, Tree, digest};
use super::misfits::Misfits;
use super::progress::Progress;
use super::scope::{Scope, is_within, parent};
use super::source::{Known, KnownTree, Node, Source, SourceError};
use super::target::{Step, Target, explained};

/// So many znodes are read before they are written.
const READ_AT_ONCE: usize = 2_000;

/// After so many comparisons in a row that did not get to their end, something is wrong that no further one mends.
const MAX_COMPARISONS: u32 = 8;

/// Why a step was not taken.
enum Trouble {
    /// The source is to be connected to anew.
    Source(anyhow::Error),
    /// The target is not what it was taken for.
    Stale(String),
    /// Nothing helps.
    Fatal(anyhow::Error),
}

impl From<SourceError> for Trouble {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Lost(error) => Self::Source(error),
            SourceError::Refused(why) => Self::Fatal(anyhow::anyhow!(why)),
        }
    }
}

impl From<CallError> for Trouble {
    fn from(error: CallError) -> Self {
        match error.code() {
            // A container that the target has swept, or somebody's own znode: a look tells which.
            "no_node" | "not_empty" => Self::Stale(error.to_string()),
            // Its limits have been lowered since they were asked for: a look tells them, and what does not fit any more.
            "too_large" | "limit_reached" => Self::Stale(error.to_string()),
            _ => Self::Fatal(explained(error)),
        }
    }
}

/// See the module.
pub struct Mirror {
    source: Source,
    target: Target,
    scope: Scope,
    /// What the source has that lasts.
    there: KnownTree,
    /// What it has that does not: whose each is.
    ephemerals: BTreeMap<String, i64>,
    /// What the target has.
    here: Tree,
    /// What of that is not ours, and stays.
    foreign: BTreeSet<String>,
    /// What of the source the target could not have.
    misfits: Misfits,
    /// Whether there may be such: then both sides have created children below the same znodes.
    is_shared: bool,
    /// Changes of the source that came to a step, since the beginning.
    changes: u64,
    /// The last of them.
    last_change: Option<(Instant, String)>,
    /// Whether watches were lost since the last comparison.
    is_lost: bool,
    /// Whether nothing may be written.
    is_reader: bool,
}

/// What differs at a path.
#[derive(Debug, Clone)]
pub struct Difference {
    /// Where.
    pub path: String,
    /// What.
    pub what: String,
}

impl Mirror {
    /// Of nothing yet.
    pub fn new(source: Source, target: Target, scope: Scope) -> Self {
        Self {
            source,
            target,
            scope,
            there: KnownTree::new(),
            ephemerals: BTreeMap::new(),
            here: Tree::new(),
            foreign: BTreeSet::new(),
            misfits: Misfits::default(),
            is_shared: false,
            changes: 0,
            last_change: None,
            is_lost: false,
            is_reader: false,
        }
    }

    /// What the source has that lasts.
    pub fn there(&self) -> &KnownTree {
        &self.there
    }

    /// What the source has that does not last, and whose it is.
    pub fn ephemerals(&self) -> &BTreeMap<String, i64> {
        &self.ephemerals
    }

    /// What the target has.
    pub fn here(&self) -> &Tree {
        &self.here
    }

    /// How many paths of the target are not the source's, and stay.
    pub fn foreign(&self) -> usize {
        self.foreign.len()
    }

    /// What the source has that the target could not have.
    pub fn misfits(&self) -> &Misfits {
        &self.misfits
    }

    /// The source, for those who ask it something else.
    pub fn source(&mut self) -> &mut Source {
        &mut self.source
    }

    /// The target, likewise.
    pub fn target(&mut self) -> &mut Target {
        &mut self.target
    }

    /// How many changes of the source were carried over, and when and where the last one was.
    pub fn changes(&self) -> (u64, Option<(Instant, String)>) {
        (self.changes, self.last_change.clone())
    }

    /// Waits until the source tells of a change, or the connection is lost, which the next work then makes good.
    pub async fn wait_told(&mut self) {
        if let Ok(connection) = self.source.connection()
            && connection.wait_told().await.is_err()
        {
            self.source.disconnect();
        }
    }

    /// How many changes are told of and not carried over.
    pub fn behind(&mut self) -> usize {
        self.source.connection().map_or(0, |connection| connection.told())
    }

    /// Whether the source tells of changes; else it has to be compared again and again.
    pub fn follows(&self) -> bool {
        self.source.watches == Some(true)
    }

    /// Waits until what the source tells is all that was committed there, and returns that position.
    pub async fn sync(&mut self) -> anyhow::Result<i64> {
        let root = self.scope.root().to_owned();
        for _ in 0..MAX_COMPARISONS {
            match self.source.sync(&root).await {
                Ok(position) => return Ok(position),
                Err(SourceError::Refused(why)) => anyhow::bail!(why),
                // What its watches would have told is lost; whoever asks compares, or follows and then compares.
                Err(SourceError::Lost(_)) => self.source.connect(&root).await.map_err(fatal)?,
            }
            self.is_lost = true;
        }
        anyhow::bail!("the connections to the source do not last")
    }

    /// Reads the whole target, and says what of it the source does not know to be ours.
    pub async fn look_at_target(&mut self) -> anyhow::Result<()> {
        let mut here = self.target.tree(self.scope.root()).await?;
        here.retain(|path, _| self.scope.has(path));
        self.here = here;
        Ok(())
    }

    /// From now on what only the target has is left alone.
    pub fn keep_what_is_here(&mut self) {
        self.foreign = self.here.keys().cloned().collect();
        self.is_shared = true;
    }

    /// Connects and reads all of the source; the target is left as it is.
    pub async fn learn(&mut self, progress: &mut Progress) -> anyhow::Result<()> {
        self.is_reader = true;
        self.source.connect(self.scope.root()).await.map_err(fatal)?;
        self.retry(progress, Work::All).await
    }

    /// Reads all of the source, to see whether the target could have it; the target is left as it is.
    pub async fn survey(&mut self, progress: &mut Progress) -> anyhow::Result<()> {
        self.is_reader = true;
        let read = self.retry(progress, Work::All).await;
        self.is_reader = false;
        read
    }

    /// Compares until all is the same.
    pub async fn catch_up(&mut self, progress: &mut Progress) -> anyhow::Result<()> {
        self.retry(progress, Work::All).await
    }

    /// Carries over what watches have told of, or compares if there are none or they are lost. Returns at once if there is nothing.
    pub async fn follow(&mut self, progress: &mut Progress) -> anyhow::Result<()> {
        match self.follows() {
            true => self.retry(progress, Work::Told).await,
            false => self.retry(progress, Work::All).await,
        }
    }

    /// Looks whether any known znode has changed in silence (lists are replaced without an event), and carries that over.
    pub async fn sweep(&mut self, progress: &mut Progress) -> anyhow::Result<()> {
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
                Work::Told => self.carry_told(progress).await,
                Work::Known => self.sweep_known(progress).await,
            };
            match done {
                Ok(()) if !self.is_lost => return Ok(()),
                // Something fits again, and what is below it is not known.
                Ok(()) => {}
                Err(Trouble::Fatal(error)) => return Err(error),
                Err(Trouble::Source(error)) => {
                    progress.say(&format!(
                        "the connection to the source is lost ({error:#}): comparing anew"
                    ));
                    self.source.connect(self.scope.root()).await.map_err(fatal)?;
                    progress.say(&format!("reading from {}", self.source.server()));
                }
                Err(Trouble::Stale(why)) => {
                    progress.say(&format!("the target is not what it was ({why}): comparing anew"));
                    self.look_at_target().await?;
                }
            }
            work = Work::All;
        }
        anyhow::bail!("after {MAX_COMPARISONS} comparisons the trees are still not the same")
    }

    /// Reads all of the source, and makes the target the same.
    async fn compare(&mut self, progress: &mut Progress) -> Result<(), Trouble> {
        let root = self.scope.root().to_owned();
        let total = self.source.count(&root).await?;
        progress.begin("comparing", total);
        self.put_above().await?;
        // Whatever was told before is read anyway.
        self.source.connection()?.take_told();
        let mut seen = BTreeSet::new();
        self.ephemerals.clear();
        let known_misfits = std::mem::take(&mut self.misfits);
        let mut level = vec![root];
        while !level.is_empty() {
            let mut next = Vec::new();
            for paths in level.chunks(READ_AT_ONCE) {
                let wanted: Vec<String> = paths
                    .iter()
                    .filter(|path| self.scope.has(path))
                    .cloned()
                    .collect();
                let found = self.source.read(&wanted, &self.there).await?;
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
                    if let Some(why) = limits.misfit(&path, &node.facts, node.stat.num_children) {
                        self.misfits.insert(&path, &why);
                        continue;
                    }
                    if node.stat.num_children > 0 {
                        parents.push(path.clone());
                    }
                    seen.insert(path.clone());
                    steps.extend(self.put(path, node));
                }
                self.note_changes(&steps);
                self.take(steps, progress).await?;
                let children = self.source.children(&parents).await?.into_iter().flatten();
                next.extend(children.filter(|path| self.scope.leads_on(path)));
                progress.tell();
            }
            level = next;
        }
        progress.misfits(&self.misfits, &known_misfits);
        if !seen.contains(self.scope.root()) && !self.misfits.cover(self.scope.root()) {
            let what = format!("the source has no {}", self.scope.root());
            return Err(Trouble::Fatal(anyhow::anyhow!(what)));
        }
        self.there.retain(|path, _| seen.contains(path));
        // What has become too large is an older state of what is there, and better than nothing.
        let is_gone = |path: &&String| {
            !seen.contains(*path) && !self.is_needed_by_others(path) && !self.misfits.cover(path)
        };
        let gone = self.here.keys().rev().filter(is_gone);
        let gone: Vec<Step> = gone.cloned().map(Step::Remove).collect();
        self.note_changes(&gone);
        self.take(gone, progress).await
    }

    /// The znodes above a root that is not `/` are needed, and no part of what is moved: they are brought if they are missing.
    async fn put_above(&mut self) -> Result<(), Trouble> {
        let above = self.scope.above();
        if above.is_empty() || self.is_reader {
            return Ok(());
        }
        let mut steps = Vec::new();
        let found = self.source.read(&above, &KnownTree::new()).await?;
        for (path, node) in above.iter().zip(found) {
            let node = node.ok_or_else(|| Trouble::Fatal(anyhow::anyhow!("the source has no {path}")))?;
            if !self.target.has(path).await.map_err(Trouble::Fatal)? {
                steps.push(Step::Put(path.clone(), node.facts, node.data));
            }
        }
        Ok(self.target.take(&steps).await?)
    }

    /// Reads what watches have told of.
    async fn carry_told(&mut self, progress: &mut Progress) -> Result<(), Trouble> {
        let (told, since) = self.source.connection()?.take_told();
        if let Some(since) = since {
            progress.behind(told.len(), since.elapsed());
        }
        // What is created or deleted moves its parent's counter; and of what nobody knows yet the parents come first.
        let mut paths: BTreeSet<String> = BTreeSet::new();
        for path in told {
            let mut above = parent(&path);
            let mut is_first = true;
            while let Some(at) =
                above.filter(|at| self.scope.has(at) && (is_first || !self.there.contains_key(*at)))
            {
                paths.insert(at.to_owned());
                (above, is_first) = (parent(at), false);
            }
            if self.scope.has(&path) {
                paths.insert(path);
            }
        }
        self.carry(paths, progress).await
    }

    /// Reads some znodes anew, and carries over what has changed.
    async fn carry(&mut self, paths: BTreeSet<String>, progress: &mut Progress) -> Result<(), Trouble> {
        // Parents before their children, as paths are sorted.
        let paths: Vec<String> = paths.into_iter().collect();
        for paths in paths.chunks(READ_AT_ONCE) {
            let found = self.source.read(paths, &self.there).await?;
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
                        let has_place = *path == self.scope.root()
                            || parent(path).is_some_and(|parent| {
                                self.there.contains_key(parent) || !self.scope.has(parent)
                            });
                        // Without a parent it has gone meanwhile, and it is told of that.
                        if has_place && self.fits(path, &node, progress) {
                            progress.read(&node);
                            steps.extend(self.put(path.clone(), node));
                        }
                    }
                    None => {
                        self.ephemerals.remove(path);
                        self.misfits.remove_within(path);
                        gone.insert(path.clone());
                    }
                }
            }
            let mut removals = BTreeSet::new();
            for path in &gone {
                let below = self.there.range::<String, _>(path..).map(|(path, _)| path);
                // Siblings whose names go on with what sorts before a slash stand between.
                let below = below.take_while(|other| other.starts_with(path.as_str()));
                removals.extend(below.filter(|other| is_within(other, path)).cloned());
            }
            for path in &removals {
                self.there.remove(path);
            }
            steps.retain(|step| !matches!(step, Step::Put(path, ..) if removals.contains(path)));
            let removals = removals
                .into_iter()
                .rev()
                .filter(|path| self.here.contains_key(path));
            let removals = removals.collect::<Vec<_>>().into_iter().map(Step::Remove);
            let steps: Vec<Step> = removals.chain(steps).collect();
            self.note_changes(&steps);
            self.take(steps, progress).await?;
        }
        progress.tell();
        Ok(())
    }

    /// Whether a znode that was read anew may be carried over.
    fn fits(&mut self, path: &str, node: &Node, progress: &mut Progress) -> bool {
        if parent(path).is_some_and(|parent| self.misfits.cover(parent)) {
            return false;
        }
        let limits = self.target.limits();
        let Some(why) = limits.misfit(path, &node.facts, node.stat.num_children) else {
            // What is below it was left out as well, and nobody tells of that.
            self.is_lost |= self.misfits.remove(path);
            return true;
        };
        if self.misfits.insert(path, &why) {
            progress.misfit(path, &why);
        }
        false
    }

    fn note_changes(&mut self, steps: &[Step]) {
        self.changes += steps.len() as u64;
        if let Some(Step::Put(path, ..) | Step::Remove(path)) = steps.last() {
            self.last_change = Some((Instant::now(), path.clone()));
        }
    }

    /// Looks at every known znode of the source.
    async fn sweep_known(&mut self, progress: &mut Progress) -> Result<(), Trouble> {
        let all: Vec<String> = self.there.keys().cloned().collect();
        progress.begin("looking at every znode of the source", Some(all.len() as u64));
        let mut changed = BTreeSet::new();
        let mut parents = Vec::new();
        for paths in all.chunks(READ_AT_ONCE) {
            let found = self.source.data(paths, &self.there).await?;
            for (path, found) in paths.iter().zip(found) {
                let Some((data, stat)) = found else {
                    changed.insert(path.clone());
                    continue;
                };
                let known = &self.there[path];
                if known.stat.pzxid != stat.pzxid || known.stat.num_children != stat.num_children {
                    parents.push(path.clone());
                }
                if known.stat != stat || known.facts.data_sha256 != data.as_deref().map(super::facts::hash) {
                    changed.insert(path.clone());
                }
                progress.looked();
            }
            progress.tell();
        }
        for children in self.source.children(&parents).await? {
            let is_new =
                |path: &String| !self.there.contains_key(path) && !self.ephemerals.contains_key(path);
            changed.extend(
                children
                    .into_iter()
                    .filter(|path| self.scope.has(path) && is_new(path)),
            );
        }
        self.carry(changed, progress).await
    }

    /// Notes what a znode of the source is, and says what has to be done about it.
    fn put(&mut self, path: String, node: Node) -> Option<Step> {
        let Node {
            stat,
            mut facts,
            data,
        } = node;
        if facts.data_sha256.is_none() && !self.target.tells_null() {
            facts.data_sha256 = Some(super::facts::hash(b""));
        }
        self.foreign.remove(&path);
        let here = self.here.get(&path);
        let is_same = here.is_some_and(|here| self.is_alike(&path, &facts, here));
        self.there.insert(
            path.clone(),
            Known {
                facts: facts.clone(),
                stat,
            },
        );
        // A number that was given here is not given again, either.
        let given_here = self
            .here
            .get(&path)
            .filter(|_| self.is_shared)
            .map_or(0, |here| here.creations);
        facts.creations = facts.creations.max(given_here);
        (!is_same).then_some(Step::Put(path, facts, data))
    }

    async fn take(&mut self, steps: Vec<Step>, progress: &mut Progress) -> Result<(), Trouble> {
        if steps.is_empty() || self.is_reader {
            return Ok(());
        }
        self.target.take(&steps).await?;
        progress.written(&steps);
        for step in steps {
            match step {
                Step::Put(path, facts, _) => {
                    self.here.insert(path, facts);
                }
                Step::Remove(path) => {
                    self.here.remove(&path);
                }
            }
        }
        Ok(())
    }

    /// Brings again what the target has swept by itself, and the source has not; returns how many that were.
    pub async fn bring_swept(&mut self, progress: &mut Progress) -> anyhow::Result<usize> {
        let missing: BTreeSet<String> = self
            .there
            .keys()
            .filter(|path| !self.here.contains_key(*path))
            .cloned()
            .collect();
        let count = missing.len();
        match self.carry(missing, progress).await {
            Ok(()) => Ok(count),
            Err(Trouble::Fatal(error) | Trouble::Source(error)) => Err(error),
            Err(Trouble::Stale(why)) => anyhow::bail!(why),
        }
    }

    /// In what the target, as it was last looked at, differs from the source as it is known.
    pub fn differences(&self) -> Vec<Difference> {
        let misfits = self.misfits.iter().map(|(path, why)| Difference {
            path: path.clone(),
            what: format!("it does not fit. {why}"),
        });
        let mut all: Vec<Difference> = misfits.collect();
        for (path, known) in &self.there {
            if self.misfits.cover(path) {
                continue;
            }
            match self.here.get(path) {
                Some(here) if self.is_alike(path, &known.facts, here) => {}
                Some(here) => all.push(Difference {
                    path: path.clone(),
                    what: super::facts::differences(&known.facts, here).join("; "),
                }),
                // An empty container, or a znode whose time is over: each side sweeps in its own time.
                None if known.facts.kind.is_swept() && !self.has_lasting_children(path) => {}
                None => all.push(Difference {
                    path: path.clone(),
                    what: "the target does not have it".to_owned(),
                }),
            }
        }
        let is_extra = |path: &&String| {
            !self.there.contains_key(*path) && !self.is_needed_by_others(path) && !self.misfits.cover(path)
        };
        let only_here = self.here.keys().filter(is_extra);
        all.extend(only_here.map(|path| Difference {
            path: path.clone(),
            what: "only the target has it".to_owned(),
        }));
        all
    }

    /// Whether a znode of the target is not ours, or has such below it.
    fn is_needed_by_others(&self, path: &str) -> bool {
        let mut below = self
            .foreign
            .range::<str, _>((Bound::Included(path), Bound::Unbounded))
            .take_while(|other| other.starts_with(path));
        below.any(|other| is_within(other, path))
    }

    /// Whether two znodes are the same as far as they have to be.
    fn is_alike(&self, path: &str, there: &Facts, here: &Facts) -> bool {
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
        let below = self.there.range(format!("{path}/")..).next();
        below.is_some_and(|(other, _)| is_within(other, path))
    }

    /// How many znodes both sides have.
    pub fn common(&self) -> usize {
        let is_common = |path: &&String| self.there.contains_key(*path);
        self.here.keys().filter(is_common).count()
    }

    /// One number each for what both sides have: of the source, and of the target. Nothing is in it that is each side's own.
    pub fn digests(&self) -> (String, String) {
        let is_common = |path: &String| {
            self.here.contains_key(path) && self.there.contains_key(path) && !Scope::has_own_data(path)
        };
        let has_counters = !self.is_shared;
        let there = self.there.iter().map(|(path, known)| (path, &known.facts));
        let there = digest(there.filter(|(path, _)| is_common(path)), has_counters);
        let here = digest(self.here.iter().filter(|(path, _)| is_common(path)), has_counters);
        (there, here)
    }
}

/// What is done in one go.
#[derive(Clone, Copy)]
enum Work {
    All,
    Told,
    Known,
}

fn fatal(error: SourceError) -> anyhow::Error {
    match error {
        SourceError::Lost(error) => error,
        SourceError::Refused(why) => anyhow::anyhow!(why),
    }
}
