//! A data directory in memory, the way in which a node opens it, and the contents of its log.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use lock_node::fuzz::decode_entry;
use raft_log::sim_disk::SimDisk;
use raft_log::wal::WalWriter;
use raft_log::{DataDir, Disk, LogPos, StorageError, VoteRecord, Wal, WalIdentity, WalOptions};

pub const DATA_DIR: &str = "/data";
pub const LOG_DIR: &str = "/data/log";
pub const NODE: u64 = 1;
pub const CLUSTER: &str = "c";

/// Size of a segment: small, so that a few entries fill several segments.
pub const SEGMENT_BYTES: usize = 4096;

/// An opened directory.
pub struct Opened {
    pub wal: Wal,
    pub writer: WalWriter,
    _dir: DataDir,
}

/// Opens the directory as a starting node does. Every error must be a rejection that names the fault in the
/// files.
pub fn open(disk: &SimDisk) -> Result<Opened, StorageError> {
    let opened = try_open(disk);
    if let Err(error) = &opened {
        assert!(
            matches!(error, StorageError::Damaged(_) | StorageError::Foreign(_)),
            "the error does not report damage: {error}"
        );
    }
    opened
}

fn try_open(disk: &SimDisk) -> Result<Opened, StorageError> {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let dir = DataDir::open(shared.clone(), Path::new(DATA_DIR), CLUSTER, NODE)?;
    let identity = dir.identity();
    let identity = WalIdentity {
        cluster_id: identity.cluster_id.unwrap_or_default(),
        disk_id: identity.disk_id,
        node_id: NODE,
    };
    let options = WalOptions {
        segment_bytes: SEGMENT_BYTES,
        cached_bytes: 600,
        idle_flush: None,
        preallocator_thread: false,
    };
    let (wal, writer) = Wal::open(shared, Path::new(LOG_DIR), identity, options)?;
    Ok(Opened {
        wal,
        writer,
        _dir: dir,
    })
}

/// Writes a file to a disk.
pub fn put(disk: &SimDisk, path: &Path, bytes: &[u8]) {
    let dir = path.parent().expect("every file is in a directory");
    disk.create_dir_all(dir).expect("the disk has no faults");
    let file = disk.create(path).expect("the file does not exist yet");
    file.write_all_at(bytes, 0).expect("the disk has no faults");
}

/// Contents of a log, without its commit mark.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    pub vote: Option<VoteRecord>,
    pub purged: Option<LogPos>,
    pub entries: BTreeMap<u64, (u64, Bytes)>,
}

impl State {
    /// Reads the contents of a log through its public interface. Checks that the log has no holes and that
    /// its entries decode without a panic.
    pub fn of(wal: &Wal) -> Self {
        let read = wal
            .read(0..u64::MAX)
            .expect("entries found at the start can be read");
        let mut entries = BTreeMap::new();
        let mut before = None;
        for entry in read {
            let LogPos { term, index } = entry.pos;
            assert!(
                before.is_none_or(|before| before + 1 == index),
                "entries are missing before {index}"
            );
            before = Some(index);
            entries.insert(index, (term, entry.payload.clone()));
            // An undecodable entry stops a node with an error.
            let _: Result<_, StorageError> = decode_entry(entry);
        }
        let state = Self {
            vote: wal.vote(),
            purged: wal.purged(),
            entries,
        };
        assert_eq!(wal.last(), state.last());
        state
    }

    /// Returns the position of the last entry, or the purge point if no entry follows it.
    pub fn last(&self) -> Option<LogPos> {
        match self.entries.last_key_value() {
            Some((index, (term, _))) => Some(LogPos {
                term: *term,
                index: *index,
            }),
            None => self.purged,
        }
    }
}

/// Returns whether a file is a segment of the log.
pub fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "wal")
}

/// Returns all files of a disk except the lock file.
pub fn contents(disk: &SimDisk) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let files = disk.files().into_iter().filter(|path| !path.ends_with("lock"));
    files
        .map(|path| {
            let file = disk.open(&path).expect("the file was just listed");
            let length = file.len().expect("the disk has no faults");
            let mut bytes =
                vec![0; usize::try_from(length).expect("a file in memory has a length of this size")];
            file.read_exact_at(&mut bytes, 0).expect("the disk has no faults");
            (path, bytes)
        })
        .collect()
}
