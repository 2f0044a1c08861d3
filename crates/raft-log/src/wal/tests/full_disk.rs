//! Tests of a disk that becomes full: the space that the log reports while it continues in a preallocated
//! segment.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use parking_lot::{Condvar, Mutex};

use super::*;
use crate::disk::{DiskFile, DiskLock};

/// State of the simulated disk, and the answer recorded during a write.
#[derive(Default)]
struct Scene {
    full: AtomicBool,
    /// The creation of a segment failed.
    refused: Mutex<bool>,
    refusal: Condvar,
    /// The writer has continued in another segment.
    rolled: AtomicBool,
    wal: OnceLock<Wal>,
    /// Answer of the log right after it continued there: whether it has room.
    said: OnceLock<bool>,
}

/// A real disk on which no file can be created once it is full.
struct FullDisk(Arc<Scene>);

struct WatchedFile {
    scene: Arc<Scene>,
    file: Arc<dyn DiskFile>,
}

impl FullDisk {
    fn watched(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(WatchedFile {
            scene: self.0.clone(),
            file,
        })
    }
}

impl Disk for FullDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        RealDisk.create_dir_all(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        if self.0.full.load(SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(self.watched(RealDisk.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.watched(RealDisk.open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let full = self.0.full.load(SeqCst);
        self.0.rolled.store(full, SeqCst);
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = RealDisk.remove(path);
        // Last step of a failed creation, before the log reports it.
        if self.0.full.load(SeqCst) {
            *self.0.refused.lock() = true;
            self.0.refusal.notify_all();
        }
        removed
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(dir)
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        RealDisk.free_space(dir)
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<DiskLock>> {
        RealDisk.try_lock(path)
    }
}

impl DiskFile for WatchedFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let scene = &self.scene;
        if scene.rolled.load(SeqCst) && scene.said.get().is_none() {
            let mut refused = scene.refused.lock();
            while !*refused {
                scene.refusal.wait(&mut refused);
            }
            drop(refused);
            let wal = scene.wal.get().expect("the log is open");
            while !wal.is_starved() {
                std::thread::yield_now();
            }
            scene
                .said
                .set(wal.has_room_for([50]))
                .expect("has_room_for is called once");
        }
        self.file.write_all_at(bytes, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[test]
fn log_has_room_throughout_the_change_to_a_preallocated_segment() {
    let dir = tempfile::tempdir().unwrap();
    let scene = Arc::new(Scene::default());
    let wal = Wal::start(Arc::new(FullDisk(scene.clone())), dir.path(), IDENTITY, options()).unwrap();
    assert!(scene.wal.set(wal.clone()).is_ok());
    while wal.shared().space.lock().spares < SEGMENTS_AHEAD {
        std::thread::yield_now();
    }
    scene.full.store(true, SeqCst);
    let mut index = 1;
    while scene.said.get().is_none() {
        durably(|done| wal.append(entries(1, index..index + 1), done)).unwrap();
        index += 1;
    }
    assert_eq!(scene.said.get(), Some(&true));
    // One segment is reserved for votes, so eventually there is no room for entries.
    while wal.has_room_for([50]) {
        durably(|done| wal.append(entries(1, index..index + 1), done)).unwrap();
        index += 1;
    }
    assert_eq!(wal.shared().space.lock().spares, SEGMENTS_AHEAD - 1);
}
