//! A machine's disk: the simulated one of the storage's own tests, on which the power may be cut within any call, and
//! which may be full. What a power cut leaves is for `sim_disk` to say.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use raft_log::disk::{Disk, DiskFile, DiskLock};
use raft_log::sim_disk::{Fault, SimDisk};

/// What is to happen to a disk, and what has.
#[derive(Debug, Default)]
struct Plan {
    /// The power is cut in the call after so many.
    cut_in: Option<u64>,
    /// The power was cut when so much had happened to the disk.
    cut_at: Option<usize>,
    /// Nothing that needs space is done.
    full: bool,
}

/// A disk with power.
#[derive(Clone, Default)]
pub struct Device {
    disk: SimDisk,
    plan: Arc<Mutex<Plan>>,
}

impl Device {
    /// A disk as it was left.
    pub fn new(disk: SimDisk) -> Self {
        Self {
            disk,
            plan: Arc::default(),
        }
    }

    /// The disk itself.
    pub fn disk(&self) -> &SimDisk {
        &self.disk
    }

    /// Cuts the power in the middle of a call, after so many others.
    pub fn cut_power_in(&self, calls: u64) {
        self.plan.lock().cut_in = Some(calls);
    }

    /// Whether that has happened.
    pub fn is_cut(&self) -> bool {
        self.plan.lock().cut_at.is_some()
    }

    /// Takes all space, or gives it back.
    pub fn set_full(&self, full: bool) {
        self.plan.lock().full = full;
    }

    /// Nothing more is to happen to it, and it has space.
    pub fn be_well(&self) {
        let mut plan = self.plan.lock();
        plan.cut_in = None;
        plan.full = false;
        // No call has this number, so none fails.
        self.disk.fail_call(0, Fault::InputOutput);
    }

    /// Whether there is no space.
    pub fn is_full(&self) -> bool {
        self.plan.lock().full
    }

    /// One of the disks that are left when the power is cut now, or was before. See
    /// [`raft_log::sim_disk::CrashModel::crash`].
    pub fn left(&self, mixture: u64) -> SimDisk {
        let seen = self.plan.lock().cut_at.unwrap_or_else(|| self.disk.events());
        let mut model = self.disk.crash_model();
        self.disk.advance(&mut model, seen);
        model.crash(mixture)
    }

    fn call(&self) -> io::Result<()> {
        let mut plan = self.plan.lock();
        match plan.cut_in {
            Some(0) => {
                plan.cut_in = None;
                plan.cut_at = Some(self.disk.events());
            }
            Some(calls) => plan.cut_in = Some(calls - 1),
            None => {}
        }
        match plan.cut_at {
            Some(_) => Err(io::Error::other("the power is cut")),
            None => Ok(()),
        }
    }

    fn space(&self) -> io::Result<()> {
        match self.is_full() {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }

    fn file(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(DeviceFile {
            device: self.clone(),
            file,
        })
    }
}

impl Disk for Device {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.call()?;
        self.disk.create_dir_all(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.call()?;
        self.space()?;
        Ok(self.file(self.disk.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.call()?;
        Ok(self.file(self.disk.open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call()?;
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call()?;
        self.disk.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.call()?;
        self.disk.sync_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.call()?;
        self.disk.list(dir)
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        self.call()?;
        match self.is_full() {
            true => Ok(0),
            false => self.disk.free_space(dir),
        }
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<DiskLock>> {
        self.call()?;
        self.disk.try_lock(path)
    }
}

struct DeviceFile {
    device: Device,
    file: Arc<dyn DiskFile>,
}

impl DiskFile for DeviceFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.device.call()?;
        self.file.read_exact_at(buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.device.call()?;
        if self.device.is_full() && offset + bytes.len() as u64 > self.file.len()? {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.write_all_at(bytes, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.device.call()?;
        self.file.len()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.device.call()?;
        self.file.sync_data()
    }
}
