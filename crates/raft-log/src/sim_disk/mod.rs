//! Simulated disk in memory that loses power, fails and ignores syncs when a test asks for it.
//!
//! It separates the state that a process sees from the durable state. From the events up to any moment,
//! [`CrashModel::crash`] builds one of the disks that a power cut at that moment may leave:
//!
//! * Each sector of a file holds what was last synced, or any contents that were written to it since.
//! * A directory lacks some of the name changes since its last sync: none, the last ones, or an arbitrary
//!   subset.
//! * Data of a failed sync may be there or not, and a later sync does not help it.
//!
//! The disk does not know what is stored on it. Calls are ordered as the process made them, so a test that
//! needs a reproducible run must make all calls from one thread.

mod crash;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::crash::CrashModel;
use self::crash::{Event, SECTOR_BYTES, write_into};
use super::disk::{Disk, DiskFile, DiskLock};
use crate::sync::Mutex;

/// Free space of a disk for which no test has set it.
const FREE_BYTES: u64 = 1 << 40;

type FileId = u64;

/// Error of a call that is made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Input/output error of the device.
    InputOutput,
    /// No space left on the device.
    NoSpace,
}

impl Fault {
    fn error(self) -> io::Error {
        match self {
            Self::InputOutput => io::Error::other("simulated input/output error"),
            Self::NoSpace => io::Error::from(io::ErrorKind::StorageFull),
        }
    }
}

/// Kind of call that reports success and does nothing. Tests use it to check that the suite finds missing
/// syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnoredCall {
    /// [`DiskFile::sync_data`].
    SyncData,
    /// [`Disk::sync_dir`].
    SyncDir,
}

/// State of the disk as its process sees it, and the events since its creation.
#[derive(Default)]
struct Sim {
    dirs: BTreeSet<PathBuf>,
    names: BTreeMap<PathBuf, FileId>,
    contents: BTreeMap<FileId, Vec<u8>>,
    next_file: FileId,
    base: CrashModel,
    events: Vec<Event>,
    calls: u64,
    faults: Option<(Range<u64>, Fault)>,
    ignored: Option<IgnoredCall>,
    locked: BTreeSet<PathBuf>,
    free_bytes: Option<u64>,
}

/// A simulated disk. Clones are the same disk.
#[derive(Clone, Default)]
pub struct SimDisk {
    sim: Arc<Mutex<Sim>>,
}

impl SimDisk {
    /// Creates an empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of events so far (changes and syncs), which identifies a moment for a crash.
    pub fn events(&self) -> usize {
        self.sim.lock().events.len()
    }

    /// Returns the number of calls so far that can be made to fail.
    pub fn calls(&self) -> u64 {
        self.sim.lock().calls
    }

    /// Makes the call with this number fail, counted from the disk's first call.
    pub fn fail_call(&self, number: u64, fault: Fault) {
        self.sim.lock().faults = Some((number..number + 1, fault));
    }

    /// Makes all calls fail, beginning with this number.
    pub fn fail_calls_from(&self, number: u64, fault: Fault) {
        self.sim.lock().faults = Some((number..u64::MAX, fault));
    }

    /// Ignores all calls of a kind from now on.
    pub fn ignore_calls(&self, ignored: IgnoredCall) {
        self.sim.lock().ignored = Some(ignored);
    }

    /// Sets the free space that the disk reports. It is not enforced.
    pub fn set_free_space(&self, bytes: u64) {
        self.sim.lock().free_bytes = Some(bytes);
    }

    /// Returns the possible states after a crash at the creation of this disk.
    pub fn crash_model(&self) -> CrashModel {
        self.sim.lock().base.clone()
    }

    /// Advances `model` by the events up to a moment.
    pub fn advance(&self, model: &mut CrashModel, events: usize) {
        let sim = self.sim.lock();
        for event in &sim.events[model.seen..events] {
            model.apply(event);
        }
        model.seen = events;
    }

    /// Returns the paths of all files.
    pub fn files(&self) -> Vec<PathBuf> {
        self.sim.lock().names.keys().cloned().collect()
    }
}

impl Sim {
    /// Counts a call, and returns the error if it is to fail.
    fn call(&mut self) -> io::Result<()> {
        self.calls += 1;
        match &self.faults {
            Some((calls, fault)) if calls.contains(&self.calls) => Err(fault.error()),
            _ => Ok(()),
        }
    }

    fn find(&self, path: &Path) -> io::Result<FileId> {
        self.names
            .get(path)
            .copied()
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn write(&mut self, file: FileId, offset: usize, bytes: &[u8]) {
        let contents = self.contents.entry(file).or_default();
        write_into(contents, offset, bytes);
        self.events.push(Event::Write {
            file,
            offset,
            bytes: bytes.into(),
        });
    }
}

impl Disk for SimDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut sim = self.sim.lock();
        sim.call()?;
        // Durable at once, as the trait promises.
        for dir in dir.ancestors() {
            sim.dirs.insert(dir.to_owned());
            sim.base.dirs.entry(dir.to_owned()).or_default();
        }
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut sim = self.sim.lock();
        sim.call()?;
        if sim.names.contains_key(path) {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        if !path.parent().is_some_and(|parent| sim.dirs.contains(parent)) {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        sim.next_file += 1;
        let file = sim.next_file;
        sim.names.insert(path.to_owned(), file);
        sim.contents.insert(file, Vec::new());
        sim.events.push(Event::Create {
            path: path.to_owned(),
            file,
        });
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            file,
        }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut sim = self.sim.lock();
        sim.call()?;
        let file = sim.find(path)?;
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            file,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut sim = self.sim.lock();
        sim.call()?;
        let file = sim.find(from)?;
        sim.names.remove(from);
        sim.names.insert(to.to_owned(), file);
        sim.events.push(Event::Rename {
            from: from.to_owned(),
            to: to.to_owned(),
            file,
        });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut sim = self.sim.lock();
        sim.call()?;
        sim.find(path)?;
        // The contents stay readable for processes that have the file open.
        sim.names.remove(path);
        sim.events.push(Event::Remove {
            path: path.to_owned(),
        });
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut sim = self.sim.lock();
        sim.call()?;
        if sim.ignored != Some(IgnoredCall::SyncDir) {
            sim.events.push(Event::SyncDir { dir: dir.to_owned() });
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut sim = self.sim.lock();
        sim.call()?;
        if !sim.dirs.contains(dir) {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        let inside = sim.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside
            .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
            .collect())
    }

    fn free_space(&self, _dir: &Path) -> io::Result<u64> {
        let mut sim = self.sim.lock();
        sim.call()?;
        Ok(sim.free_bytes.unwrap_or(FREE_BYTES))
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<DiskLock>> {
        let mut sim = self.sim.lock();
        sim.call()?;
        if !sim.locked.insert(path.to_owned()) {
            return Ok(None);
        }
        Ok(Some(DiskLock::new(SimLock {
            disk: self.clone(),
            path: path.to_owned(),
        })))
    }
}

struct SimLock {
    disk: SimDisk,
    path: PathBuf,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.sim.lock().locked.remove(&self.path);
    }
}

struct SimFile {
    disk: SimDisk,
    file: FileId,
}

impl DiskFile for SimFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut sim = self.disk.sim.lock();
        sim.call()?;
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let bytes = sim.contents[&self.file].get(from..from + buffer.len());
        buffer.copy_from_slice(bytes.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut sim = self.disk.sim.lock();
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        if let Err(error) = sim.call() {
            // A failed write may have written a part of its bytes: here, up to a sector in the middle.
            let middle = (offset + bytes.len() / 2).next_multiple_of(SECTOR_BYTES) - offset;
            sim.write(self.file, offset, &bytes[..middle.min(bytes.len())]);
            return Err(error);
        }
        sim.write(self.file, offset, bytes);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let mut sim = self.disk.sim.lock();
        sim.call()?;
        Ok(sim.contents[&self.file].len() as u64)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut sim = self.disk.sim.lock();
        if let Err(error) = sim.call() {
            sim.events.push(Event::FailedSync { file: self.file });
            return Err(error);
        }
        if sim.ignored != Some(IgnoredCall::SyncData) {
            sim.events.push(Event::SyncData { file: self.file });
        }
        Ok(())
    }
}

/// Pseudo-random number generator (SplitMix64): the same seed yields the same numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`.
    ///
    /// # Panics
    ///
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crash(disk: &SimDisk, seed: u64) -> SimDisk {
        let mut model = disk.crash_model();
        disk.advance(&mut model, disk.events());
        model.crash(seed)
    }

    fn contents(disk: &SimDisk, path: &Path) -> Option<Vec<u8>> {
        let file = disk.open(path).ok()?;
        Some(crate::disk::read_all(file.as_ref()).unwrap())
    }

    #[test]
    fn crash_preserves_synced_data_only() {
        let disk = SimDisk::new();
        let path = Path::new("/d/f");
        disk.create_dir_all(Path::new("/d")).unwrap();
        let file = disk.create(path).unwrap();
        file.write_all_at(b"old", 0).unwrap();
        file.sync_data().unwrap();
        assert_eq!(contents(&crash(&disk, 0), path), None, "its name was not");
        assert_eq!(contents(&crash(&disk, 1), path), Some(b"old".to_vec()));
        disk.sync_dir(Path::new("/d")).unwrap();
        file.write_all_at(&[b'x'; 1024], 0).unwrap();
        assert_eq!(contents(&crash(&disk, 0), path), Some(b"old".to_vec()));
        let torn = (2..100).filter_map(|seed| contents(&crash(&disk, seed), path));
        assert!(
            torn.into_iter()
                .any(|bytes| bytes.len() == 1024 && bytes[0] == b'x' && bytes[1023] == 0)
        );
        file.sync_data().unwrap();
        for seed in 0..100 {
            assert_eq!(contents(&crash(&disk, seed), path), Some(vec![b'x'; 1024]));
        }
    }

    #[test]
    fn crash_may_undo_rename_before_directory_sync() {
        let disk = SimDisk::new();
        let (dir, old, new) = (Path::new("/d"), Path::new("/d/old"), Path::new("/d/new"));
        disk.create_dir_all(dir).unwrap();
        disk.create(old).unwrap();
        disk.sync_dir(dir).unwrap();
        disk.rename(old, new).unwrap();
        assert_eq!(crash(&disk, 0).files(), [old]);
        assert_eq!(crash(&disk, 1).files(), [new]);
        disk.sync_dir(dir).unwrap();
        assert_eq!(crash(&disk, 0).files(), [new]);
    }

    #[test]
    fn sync_after_failed_sync_covers_only_later_writes() {
        let disk = SimDisk::new();
        disk.create_dir_all(Path::new("/d")).unwrap();
        let path = Path::new("/d/f");
        let file = disk.create(path).unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        file.write_all_at(&[b'x'; 1024], 0).unwrap();
        disk.fail_call(disk.calls() + 1, Fault::InputOutput);
        file.sync_data().unwrap_err();
        file.write_all_at(b"y", 512).unwrap();
        file.sync_data().unwrap();
        let left = contents(&crash(&disk, 0), path).unwrap();
        assert_eq!((left[0], left[512], left[513]), (0, b'y', b'x'));
        assert_eq!(contents(&crash(&disk, 1), path).unwrap()[0], b'x');
    }
}
