//! Real disk with injected faults: little space, slow syncs, or syncs that never end.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use raft_log::disk::DiskLock;
use raft_log::disk::{Disk, DiskFile, RealDisk};

#[derive(Default)]
struct Troubles {
    /// Space of the disk; `None`: as much as the real disk has.
    capacity: Option<u64>,
    /// Length of each file.
    lengths: BTreeMap<PathBuf, Arc<Mutex<u64>>>,
    delay: Duration,
    stalled: bool,
    /// Number of writes without space.
    refused: u64,
}

#[derive(Default)]
struct Shared {
    troubles: Mutex<Troubles>,
    changed: Condvar,
}

/// The disk. Clones share its state.
#[derive(Clone, Default)]
pub struct TroubledDisk {
    shared: Arc<Shared>,
}

impl Troubles {
    fn used(&self) -> u64 {
        self.lengths.values().map(|length| *length.lock()).sum()
    }
}

impl TroubledDisk {
    /// Sets the free space, at least 0.
    pub fn set_free(&self, bytes: u64) {
        let mut troubles = self.shared.troubles.lock();
        troubles.capacity = Some(troubles.used() + bytes);
    }

    /// Removes the bound of the space.
    pub fn make_room(&self) {
        self.shared.troubles.lock().capacity = None;
    }

    /// Returns the number of writes without space.
    pub fn refused(&self) -> u64 {
        self.shared.troubles.lock().refused
    }

    /// Sets the duration of each sync.
    pub fn set_delay(&self, delay: Duration) {
        self.shared.troubles.lock().delay = delay;
    }

    /// Sets whether syncs hang.
    pub fn set_stalled(&self, stalled: bool) {
        self.shared.troubles.lock().stalled = stalled;
        self.shared.changed.notify_all();
    }

    fn wrap(&self, path: &Path, real: Arc<dyn DiskFile>) -> io::Result<Arc<dyn DiskFile>> {
        let mut troubles = self.shared.troubles.lock();
        let length = match troubles.lengths.get(path) {
            Some(length) => length.clone(),
            None => {
                let length = Arc::new(Mutex::new(real.len()?));
                troubles.lengths.insert(path.to_owned(), length.clone());
                length
            }
        };
        Ok(Arc::new(TroubledFile {
            disk: self.clone(),
            real,
            length,
        }))
    }
}

impl Disk for TroubledDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        RealDisk.create_dir_all(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.wrap(path, RealDisk.create(path)?)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.wrap(path, RealDisk.open(path)?)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)?;
        let mut troubles = self.shared.troubles.lock();
        if let Some(length) = troubles.lengths.remove(from) {
            troubles.lengths.insert(to.to_owned(), length);
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)?;
        self.shared.troubles.lock().lengths.remove(path);
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(dir)
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        let troubles = self.shared.troubles.lock();
        match troubles.capacity {
            Some(capacity) => Ok(capacity.saturating_sub(troubles.used())),
            None => RealDisk.free_space(dir),
        }
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<DiskLock>> {
        RealDisk.try_lock(path)
    }
}

struct TroubledFile {
    disk: TroubledDisk,
    real: Arc<dyn DiskFile>,
    length: Arc<Mutex<u64>>,
}

impl DiskFile for TroubledFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.real.read_exact_at(buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut troubles = self.disk.shared.troubles.lock();
        let end = offset + bytes.len() as u64;
        let growth = end.saturating_sub(*self.length.lock());
        // Allocated bytes can be overwritten on a full disk.
        if growth > 0
            && let Some(capacity) = troubles.capacity
            && troubles.used() + growth > capacity
        {
            troubles.refused += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        *self.length.lock() += growth;
        drop(troubles);
        self.real.write_all_at(bytes, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.real.len()
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut troubles = self.disk.shared.troubles.lock();
        while troubles.stalled {
            self.disk.shared.changed.wait(&mut troubles);
        }
        let delay = troubles.delay;
        drop(troubles);
        std::thread::sleep(delay);
        self.real.sync_data()
    }
}
