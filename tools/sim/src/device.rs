//! Disk of a machine: the simulated disk of the storage's own tests, with power cuts within any call, and
//! with limited space. `sim_disk` decides what a power cut leaves.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use raft_log::disk::{Disk, DiskFile, DiskLock};
use raft_log::sim_disk::{Fault, SimDisk};

/// Planned and past events of a disk.
#[derive(Debug, Default)]
struct Plan {
    /// The power is cut after this number of further calls.
    cut_in: Option<u64>,
    /// Number of disk events at the power cut.
    cut_at: Option<usize>,
    /// Calls that need space fail.
    full: bool,
}

/// Disk with a power supply.
#[derive(Clone, Default)]
pub struct Device {
    disk: SimDisk,
    plan: Arc<Mutex<Plan>>,
}

impl Device {
    /// Creates a device with the content that an earlier one left.
    pub fn new(disk: SimDisk) -> Self {
        Self {
            disk,
            plan: Arc::default(),
        }
    }

    /// Returns the simulated disk.
    pub fn disk(&self) -> &SimDisk {
        &self.disk
    }

    /// Cuts the power within a call, after this number of other calls.
    pub fn cut_power_in(&self, calls: u64) {
        self.plan.lock().cut_in = Some(calls);
    }

    /// Returns whether the power was cut.
    pub fn is_cut(&self) -> bool {
        self.plan.lock().cut_at.is_some()
    }

    /// Fills the disk, or frees its space.
    pub fn set_full(&self, full: bool) {
        self.plan.lock().full = full;
    }

    /// Cancels all planned faults and frees the space.
    pub fn repair(&self) {
        let mut plan = self.plan.lock();
        plan.cut_in = None;
        plan.full = false;
        // No call has this number, so none fails.
        self.disk.fail_call(0, Fault::InputOutput);
    }

    /// Returns whether the disk is full.
    pub fn is_full(&self) -> bool {
        self.plan.lock().full
    }

    /// Returns one of the possible disks after a power cut, now or earlier. See
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
            Some(_) => Err(io::Error::other("the power was cut")),
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
