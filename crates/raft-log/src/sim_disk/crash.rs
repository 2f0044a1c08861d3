//! Model of the states that a power cut may leave on a simulated disk: the durable data, and the data that is
//! not durable yet.
//!
//! It sees only the events, in order. Failing calls and ignored syncs are implemented elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{FileId, Random, Sim, SimDisk};
use crate::sync::Mutex;

/// Unit of atomic writes: a power cut leaves each sector with one of the contents that were written to it.
pub(super) const SECTOR_BYTES: usize = 512;

type Sector = [u8; SECTOR_BYTES];

/// Event on the disk.
#[derive(Debug, Clone)]
pub(super) enum Event {
    Create {
        path: PathBuf,
        file: FileId,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
        file: FileId,
    },
    Remove {
        path: PathBuf,
    },
    SyncDir {
        dir: PathBuf,
    },
    Write {
        file: FileId,
        offset: usize,
        bytes: Arc<[u8]>,
    },
    SyncData {
        file: FileId,
    },
    FailedSync {
        file: FileId,
    },
}

/// Change of a name that is not durable yet.
#[derive(Debug, Clone)]
enum NameChange {
    Create(PathBuf, FileId),
    Rename(PathBuf, PathBuf, FileId),
    Remove(PathBuf),
}

#[derive(Debug, Clone, Default)]
pub(super) struct DirModel {
    durable: BTreeMap<PathBuf, FileId>,
    pending: Vec<NameChange>,
}

/// Contents of a sector since it was last made durable.
#[derive(Debug, Clone)]
struct SectorModel {
    /// Contents that were written to it, oldest first.
    since: Vec<Sector>,
    /// Set if the next sync writes it. After a failed sync the kernel considers it clean.
    dirty: bool,
}

#[derive(Debug, Clone, Default)]
struct FileModel {
    durable: Vec<u8>,
    current: Vec<u8>,
    pending: BTreeMap<usize, SectorModel>,
    /// Lengths of the file since the last sync.
    lengths: Vec<usize>,
}

/// Durable state, and the changes that a crash may keep or lose.
#[derive(Debug, Clone, Default)]
pub struct CrashModel {
    pub(super) dirs: BTreeMap<PathBuf, DirModel>,
    files: BTreeMap<FileId, FileModel>,
    pub(super) seen: usize,
}

impl CrashModel {
    pub(super) fn apply(&mut self, event: &Event) {
        match event {
            Event::Create { path, file } => self.change(path, NameChange::Create(path.clone(), *file)),
            Event::Rename { from, to, file } => {
                self.change(from, NameChange::Rename(from.clone(), to.clone(), *file));
            }
            Event::Remove { path } => self.change(path, NameChange::Remove(path.clone())),
            Event::SyncDir { dir } => {
                let dir = self.dirs.entry(dir.clone()).or_default();
                for change in std::mem::take(&mut dir.pending) {
                    change.apply(&mut dir.durable);
                }
            }
            Event::Write { file, offset, bytes } => {
                self.files.entry(*file).or_default().write(*offset, bytes)
            }
            Event::SyncData { file } => self.files.entry(*file).or_default().sync(),
            Event::FailedSync { file } => self.files.entry(*file).or_default().sync_failed(),
        }
    }

    fn change(&mut self, path: &Path, change: NameChange) {
        let dir = path.parent().expect("a file is in a directory");
        self.dirs.entry(dir.to_owned()).or_default().pending.push(change);
    }

    /// Returns one of the disks that a power cut now may leave. The same seed yields the same disk; seed 0
    /// loses everything that may be lost, seed 1 keeps everything.
    pub fn crash(&self, seed: u64) -> SimDisk {
        let mut random = Random::new(seed);
        let mode = if seed < 2 { seed } else { 2 + random.below(3) };
        let mut sim = Sim::default();
        let mut base = CrashModel::default();
        for (path, dir) in &self.dirs {
            let mut names = dir.durable.clone();
            let kept = match mode {
                0 => 0,
                1 => dir.pending.len(),
                _ => random.below(dir.pending.len() as u64 + 1) as usize,
            };
            for (at, change) in dir.pending.iter().enumerate() {
                // An ordered file system keeps a prefix of the changes; other file systems promise nothing.
                let keep = if mode == 4 {
                    random.below(2) == 0
                } else {
                    at < kept
                };
                if keep {
                    change.apply(&mut names);
                }
            }
            sim.dirs.insert(path.clone());
            sim.names.extend(names.clone());
            base.dirs.insert(
                path.clone(),
                DirModel {
                    durable: names,
                    pending: Vec::new(),
                },
            );
        }
        // A file without a name is lost, and an empty file may be all that remains of a name.
        let files: BTreeSet<FileId> = sim.names.values().copied().collect();
        for id in files {
            let contents = self
                .files
                .get(&id)
                .map(|file| file.crash(mode, &mut random))
                .unwrap_or_default();
            sim.next_file = sim.next_file.max(id);
            sim.contents.insert(id, contents.clone());
            let model = FileModel {
                durable: contents.clone(),
                current: contents,
                ..FileModel::default()
            };
            base.files.insert(id, model);
        }
        sim.base = base;
        SimDisk {
            sim: Arc::new(Mutex::new(sim)),
        }
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<PathBuf, FileId>) {
        match self {
            Self::Create(path, file) => {
                names.insert(path.clone(), *file);
            }
            Self::Rename(from, to, file) => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
            Self::Remove(path) => {
                names.remove(path);
            }
        }
    }
}

impl FileModel {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        write_into(&mut self.current, offset, bytes);
        self.lengths.push(self.current.len());
        if bytes.is_empty() {
            return;
        }
        for number in offset / SECTOR_BYTES..=(offset + bytes.len() - 1) / SECTOR_BYTES {
            let content = sector(&self.current, number);
            let pending = self.pending.entry(number).or_insert(SectorModel {
                since: Vec::new(),
                dirty: true,
            });
            pending.since.push(content);
            pending.dirty = true;
        }
    }

    fn sync(&mut self) {
        let mut lost = BTreeMap::new();
        for (number, pending) in std::mem::take(&mut self.pending) {
            if pending.dirty {
                put_sector(&mut self.durable, number, &sector(&self.current, number));
            } else {
                lost.insert(number, pending);
            }
        }
        self.pending = lost;
        self.durable.resize(self.current.len(), 0);
        self.lengths.clear();
    }

    fn sync_failed(&mut self) {
        self.pending
            .values_mut()
            .for_each(|pending| pending.dirty = false);
    }

    fn crash(&self, mode: u64, random: &mut Random) -> Vec<u8> {
        let mut contents = self.durable.clone();
        for (number, pending) in &self.pending {
            let kept = match mode {
                0 => 0,
                1 => pending.since.len(),
                // A sector that keeps or loses all its changes is closer to a real crash than one that keeps
                // some.
                2 => random.below(2) as usize * pending.since.len(),
                _ => random.below(pending.since.len() as u64 + 1) as usize,
            };
            if let Some(last) = kept.checked_sub(1) {
                put_sector(&mut contents, *number, &pending.since[last]);
            }
        }
        let kept = match mode {
            0 => 0,
            1 => self.lengths.len(),
            _ => random.below(self.lengths.len() as u64 + 1) as usize,
        };
        contents.resize(
            kept.checked_sub(1)
                .map_or(self.durable.len(), |last| self.lengths[last]),
            0,
        );
        contents
    }
}

fn sector(contents: &[u8], number: usize) -> Sector {
    let mut sector = [0; SECTOR_BYTES];
    let from = (number * SECTOR_BYTES).min(contents.len());
    let to = (from + SECTOR_BYTES).min(contents.len());
    sector[..to - from].copy_from_slice(&contents[from..to]);
    sector
}

fn put_sector(contents: &mut Vec<u8>, number: usize, sector: &Sector) {
    write_into(contents, number * SECTOR_BYTES, sector);
}

/// Writes bytes at an offset, extending the contents if necessary.
pub(super) fn write_into(contents: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if contents.len() < end {
        contents.resize(end, 0);
    }
    contents[offset..end].copy_from_slice(bytes);
}
