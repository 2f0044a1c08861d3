//! Owner of a data directory: the file `identity`, and the lock that excludes a second process.
//!
//! A directory belongs to one node of one cluster for good. A node that started with another node's promises,
//! or without its own, could vote twice in a term. This module does not know the other contents of the
//! directory.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{Disk, DiskLock, read_all};
use super::error::StorageError;
use crate::sync::Mutex;
use fault_injection::fail_step;

const MAGIC: [u8; 8] = *b"LOCKIDEN";
const VERSION: u32 = 7;
const FILE_NAME: &str = "identity";
const TEMPORARY_NAME: &str = "identity.tmp";
const LOCK_NAME: &str = "lock";
/// File with the initial state of a cluster that is restored from a backup.
pub const RESTORED_NAME: &str = "restored";
/// Offset of the cluster's name.
const NAME_AT: usize = 56;
/// Maximum length of a cluster's name, so that it fits wherever it is shown.
pub const MAX_CLUSTER_NAME_BYTES: usize = 255;

/// Cluster, node and id of a data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Name of the cluster, as configured when the directory was created.
    pub cluster: String,
    /// Id of the cluster, chosen at random when it was formed. `None` until this node knows it.
    pub cluster_id: Option<[u8; 16]>,
    /// Id of the node.
    pub node_id: u64,
    /// Random id, chosen when the directory was created. Distinguishes it from another directory of the same
    /// node.
    pub disk_id: [u8; 16],
}

impl Identity {
    /// | offset | bytes | what |
    /// |---:|---:|---|
    /// | 0 | 8 | `LOCKIDEN` |
    /// | 8 | 4 | version, 7 |
    /// | 12 | 2 | length *n* of the cluster's name |
    /// | 14 | 1 | 1 if the cluster's id is known, 0 if not |
    /// | 15 | 1 | zero |
    /// | 16 | 8 | node id |
    /// | 24 | 16 | disk id |
    /// | 40 | 16 | cluster id, or zero |
    /// | 56 | *n* | the cluster's name |
    /// | 56 + *n* | 4 | CRC32C of everything before |
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(NAME_AT + self.cluster.len() + 4);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        let name_bytes = u16::try_from(self.cluster.len()).expect("the name was checked");
        bytes.extend_from_slice(&name_bytes.to_le_bytes());
        bytes.push(u8::from(self.cluster_id.is_some()));
        bytes.push(0);
        bytes.extend_from_slice(&self.node_id.to_le_bytes());
        bytes.extend_from_slice(&self.disk_id);
        bytes.extend_from_slice(&self.cluster_id.unwrap_or_default());
        bytes.extend_from_slice(self.cluster.as_bytes());
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() < NAME_AT + 4 || bytes[0..8] != MAGIC {
            return Err("is not an identity file".into());
        }
        let (body, crc) = bytes.split_at(bytes.len() - 4);
        if crc32c::crc32c(body).to_le_bytes() != crc {
            return Err("is damaged: its checksum is wrong".into());
        }
        let version = u32::from_le_bytes(body[8..12].try_into().expect("four bytes"));
        if version != VERSION {
            return Err(format!(
                "has version {version} of the format, and this program knows version {VERSION}"
            ));
        }
        let cluster =
            String::from_utf8(body[NAME_AT..].to_vec()).map_err(|_| "is damaged: a name is not UTF-8")?;
        if cluster.len() != usize::from(u16::from_le_bytes([body[12], body[13]])) {
            return Err("is damaged: its length is wrong".into());
        }
        let cluster_id = body[40..56].try_into().expect("sixteen bytes");
        Ok(Self {
            cluster,
            cluster_id: (body[14] == 1).then_some(cluster_id),
            node_id: u64::from_le_bytes(body[16..24].try_into().expect("eight bytes")),
            disk_id: body[24..40].try_into().expect("sixteen bytes"),
        })
    }
}

/// A data directory that is locked for this process.
pub struct DataDir {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    identity: Mutex<Identity>,
    _lock: DiskLock,
}

impl DataDir {
    /// Locks a data directory and checks that it belongs to this node. An empty directory becomes this
    /// node's.
    pub fn open(disk: Arc<dyn Disk>, path: &Path, cluster: &str, node_id: u64) -> Result<Self, StorageError> {
        if cluster.is_empty() || cluster.len() > MAX_CLUSTER_NAME_BYTES {
            let text = format!("a cluster's name has between 1 and {MAX_CLUSTER_NAME_BYTES} bytes");
            return Err(StorageError::Contract(text));
        }
        let lock = lock(disk.as_ref(), path)?;
        let identity = match load(disk.as_ref(), path)? {
            Some(identity) => {
                check(path, &identity, cluster, node_id)?;
                // The previous process may have ended between the rename and the sync.
                disk.sync_dir(path)
                    .map_err(|source| StorageError::io("sync", path, source))?;
                identity
            }
            None => {
                refuse_data_without_identity(disk.as_ref(), path)?;
                let mut disk_id = [0; 16];
                getrandom::fill(&mut disk_id).map_err(|error| StorageError::Io {
                    what: "draw the id of the data directory".into(),
                    source: Arc::new(std::io::Error::other(error.to_string())),
                })?;
                let identity = Identity {
                    cluster: cluster.to_owned(),
                    cluster_id: None,
                    node_id,
                    disk_id,
                };
                save(disk.as_ref(), path, &identity)?;
                identity
            }
        };
        Ok(Self {
            disk,
            path: path.to_owned(),
            identity: Mutex::new(identity),
            _lock: lock,
        })
    }

    /// Checks whether this node could open the directory as its own, without changing anything. Returns the
    /// identity, or `None` if the directory has no owner yet. Does not check whether another process has it
    /// open.
    pub fn inspect(
        disk: &dyn Disk,
        path: &Path,
        cluster: &str,
        node_id: u64,
    ) -> Result<Option<Identity>, StorageError> {
        let found = load(disk, path)?;
        match &found {
            Some(identity) => check(path, identity, cluster, node_id)?,
            None => refuse_data_without_identity(disk, path)?,
        }
        Ok(found)
    }

    /// Creates a data directory that belongs to `identity`, with additional contents that `fill` writes. The
    /// identity is written last: if the creation is interrupted before, no node starts in the directory, and
    /// the caller can repeat it.
    ///
    /// Returns `Ok(Err(name))` and does nothing if the directory already contains something; `name` is an
    /// example.
    pub fn create(
        disk: Arc<dyn Disk>,
        path: &Path,
        identity: Identity,
        fill: impl FnOnce() -> Result<(), StorageError>,
    ) -> Result<Result<Self, String>, StorageError> {
        let lock = lock(disk.as_ref(), path)?;
        if let Some(found) = foreign_content(disk.as_ref(), path)? {
            return Ok(Err(found));
        }
        fill()?;
        save(disk.as_ref(), path, &identity)?;
        Ok(Ok(Self {
            disk,
            path: path.to_owned(),
            identity: Mutex::new(identity),
            _lock: lock,
        }))
    }

    /// Returns whether a name in a data directory may be a leftover of an interrupted [`DataDir::create`].
    pub fn is_creation_leftover(name: &str) -> bool {
        name == LOCK_NAME || name == RESTORED_NAME || name.ends_with(".tmp")
    }

    /// Returns the identity.
    pub fn identity(&self) -> Identity {
        self.identity.lock().clone()
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of free bytes in its file system.
    pub fn free_space(&self) -> Result<u64, StorageError> {
        let free = self.disk.free_space(&self.path);
        free.map_err(|source| StorageError::io("ask for the free space of", &self.path, source))
    }

    /// Records the id of the cluster, once it has been formed or this node has learned it. The id never
    /// changes again.
    pub fn set_cluster_id(&self, id: [u8; 16]) -> Result<(), StorageError> {
        let mut identity = self.identity.lock();
        match identity.cluster_id {
            Some(known) if known == id => return Ok(()),
            Some(known) => {
                let text = format!(
                    "the data directory {} belongs to cluster {}, but the peers are cluster {}. Either the peers' \
                     addresses or the data directory are those of another cluster of the same name",
                    self.path.display(),
                    hex(&known),
                    hex(&id)
                );
                return Err(StorageError::Foreign(text));
            }
            None => {}
        }
        let changed = Identity {
            cluster_id: Some(id),
            ..identity.clone()
        };
        save(self.disk.as_ref(), &self.path, &changed)?;
        *identity = changed;
        Ok(())
    }
}

/// Locks a data directory, which is created if missing.
fn lock(disk: &dyn Disk, path: &Path) -> Result<DiskLock, StorageError> {
    disk.create_dir_all(path)
        .map_err(|source| StorageError::io("create", path, source))?;
    let lock_path = path.join(LOCK_NAME);
    let lock = disk
        .try_lock(&lock_path)
        .map_err(|source| StorageError::io("lock", &lock_path, source))?;
    lock.ok_or_else(|| {
        let text = format!(
            "the data directory {} is in use by another process. Stop that one, or give this node a data \
             directory of its own",
            path.display()
        );
        StorageError::InUse(text)
    })
}

/// Returns the name of a file or directory in `path` that cannot be a leftover of an interrupted creation.
fn foreign_content(disk: &dyn Disk, path: &Path) -> Result<Option<String>, StorageError> {
    let list = |dir: &Path| match disk.list(dir) {
        Ok(names) => Ok(names),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(StorageError::io("list", dir, error)),
    };
    let mine = list(path)?;
    if let Some(name) = mine.into_iter().find(|name| !DataDir::is_creation_leftover(name)) {
        return Ok(Some(name));
    }
    for part in [super::LOG_DIR, super::SNAPSHOT_DIR] {
        if let Some(name) = list(&path.join(part))?.first() {
            return Ok(Some(format!("{part}/{name}")));
        }
    }
    Ok(None)
}

fn load(disk: &dyn Disk, dir: &Path) -> Result<Option<Identity>, StorageError> {
    let path = dir.join(FILE_NAME);
    let file = match disk.open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StorageError::io("open", &path, error)),
    };
    let bytes = read_all(file.as_ref()).map_err(|source| StorageError::io("read", &path, source))?;
    let identity = Identity::decode(&bytes).map_err(|why| {
        StorageError::Damaged(format!(
            "{} {why}. Restore the file, or remove this member from the cluster and let a new member with a new \
             node id and an empty data directory take its place",
            path.display()
        ))
    })?;
    Ok(Some(identity))
}

/// Writes a temporary file and renames it over the old one.
fn save(disk: &dyn Disk, dir: &Path, identity: &Identity) -> Result<(), StorageError> {
    let path = dir.join(FILE_NAME);
    let temporary = dir.join(TEMPORARY_NAME);
    match disk.remove(&temporary) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(StorageError::io("remove", &temporary, error)),
    }
    let file = disk
        .create(&temporary)
        .map_err(|source| StorageError::io("create", &temporary, source))?;
    fail_step!("identity::before_write", |e| StorageError::io(
        "write", &temporary, e
    ));
    file.write_all_at(&identity.encode(), 0)
        .and_then(|()| file.sync_data())
        .map_err(|source| StorageError::io("write", &temporary, source))?;
    fail_step!("identity::before_rename", |e| StorageError::io(
        "rename to",
        &path,
        e
    ));
    disk.rename(&temporary, &path)
        .map_err(|source| StorageError::io("rename to", &path, source))?;
    fail_step!("identity::after_rename", |e| StorageError::io("sync", dir, e));
    disk.sync_dir(dir)
        .map_err(|source| StorageError::io("sync", dir, source))?;
    fail_step!("identity::after_dir_sync", |e| StorageError::io("sync", dir, e));
    Ok(())
}

fn check(path: &Path, found: &Identity, cluster: &str, node_id: u64) -> Result<(), StorageError> {
    if found.cluster == cluster && found.node_id == node_id {
        return Ok(());
    }
    Err(StorageError::Foreign(format!(
        "the data directory {} belongs to node {} of cluster \"{}\", but the configuration says node {node_id} of \
         cluster \"{cluster}\". Correct the configuration, or give this node a data directory of its own. A \
         directory never changes hands",
        path.display(),
        found.node_id,
        found.cluster,
    )))
}

/// Rejects a log without an identity: it belonged to a node, and a start under a new identity would forget
/// that node's promises.
fn refuse_data_without_identity(disk: &dyn Disk, path: &Path) -> Result<(), StorageError> {
    let names = disk
        .list(path)
        .map_err(|source| StorageError::io("list", path, source))?;
    if names.iter().any(|name| name == RESTORED_NAME) {
        return Err(StorageError::Foreign(format!(
            "a backup was being restored into the data directory {}, and that was interrupted. Restore it again",
            path.display()
        )));
    }
    for part in [super::LOG_DIR, super::SNAPSHOT_DIR] {
        let dir = path.join(part);
        let names = match disk.list(&dir) {
            Ok(names) => names,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(StorageError::io("list", &dir, error)),
        };
        if !names.is_empty() {
            return Err(StorageError::Foreign(format!(
                "the data directory {} has data in {part} but the file {FILE_NAME} is missing, so it is not known \
                 whose it is. Restore the file, or give this node an empty data directory and a new node id",
                path.display()
            )));
        }
    }
    Ok(())
}

/// Returns the id as 32 hexadecimal digits.
pub fn hex(id: &[u8; 16]) -> String {
    id.iter().fold(String::with_capacity(32), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String cannot fail");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;

    fn open(dir: &Path, cluster: &str, node_id: u64) -> Result<DataDir, StorageError> {
        DataDir::open(Arc::new(RealDisk), dir, cluster, node_id)
    }

    #[test]
    fn a_directory_stays_with_its_node() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let first = open(&path, "red", 1).unwrap();
        first.set_cluster_id([5; 16]).unwrap();
        let identity = first.identity();
        drop(first);
        let again = open(&path, "red", 1).unwrap();
        assert_eq!(again.identity(), identity);
        assert_eq!(identity.cluster_id, Some([5; 16]));
        assert!(again.free_space().unwrap() > 0);
        again.set_cluster_id([5; 16]).unwrap();
        let other = again.set_cluster_id([6; 16]).unwrap_err();
        assert!(matches!(other, StorageError::Foreign(_)), "{other}");
        drop(again);
        for (cluster, node_id) in [("red", 2), ("blue", 1)] {
            let refused = open(&path, cluster, node_id).map(|_| ()).unwrap_err();
            assert!(matches!(refused, StorageError::Foreign(_)), "{refused}");
            assert!(
                refused.to_string().contains("node 1 of cluster \"red\""),
                "{refused}"
            );
        }
    }

    #[test]
    fn two_processes_cannot_share_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(dir.path(), "red", 1).unwrap();
        let second = open(dir.path(), "red", 1).map(|_| ()).unwrap_err();
        assert!(matches!(second, StorageError::InUse(_)), "{second}");
        drop(first);
        open(dir.path(), "red", 1).unwrap();
    }

    #[test]
    fn data_without_an_identity_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("log")).unwrap();
        std::fs::write(dir.path().join("log/0000000000000001.wal"), b"x").unwrap();
        let refused = open(dir.path(), "red", 1).map(|_| ()).unwrap_err();
        assert!(matches!(refused, StorageError::Foreign(_)), "{refused}");
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let identity = Identity {
            cluster: "red".into(),
            cluster_id: None,
            node_id: 4,
            disk_id: [9; 16],
        };
        let bytes = identity.encode();
        assert_eq!(Identity::decode(&bytes), Ok(identity));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Identity::decode(&flipped).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(Identity::decode(&bytes[..len]).is_err(), "{len} bytes");
        }
    }
}
