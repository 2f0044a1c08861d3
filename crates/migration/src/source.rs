//! The source ensemble: its servers, and reads of its znodes. It is never written to. The module does not
//! decide which znodes are read, or what happens with them.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use zk_wire::{ErrorCode, MultiResult, Outcome, Reply, Request, Stat, watch_mode};

use super::connection::{Connection, SourceCredentials};
use super::facts::{AclInterner, AclList, Facts, Kind, clamp_time, creations, hash};

/// Pause before the next attempt when no server accepts the connection.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Maximum number of znodes per request, so that other clients of the server do not wait for long.
const PATHS_AT_ONCE: usize = 200;

/// Maximum number of bytes per request, as far as the sizes are known: the server holds them all in memory.
const BYTES_AT_ONCE: usize = 512 * 1024;

/// Assumed size of a znode that was not read yet.
const ASSUMED_BYTES: usize = 16 * 1024;

/// Number of pipelined read requests.
const READS_AT_ONCE: usize = 8;

/// Reason why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The connection is lost, and with it the notifications of its watches.
    #[error("{0:#}")]
    Lost(#[from] anyhow::Error),
    /// Retrying does not help.
    #[error("{0}")]
    Refused(String),
}

/// Znode as it was read.
#[derive(Debug, Clone)]
pub struct ReadZnode {
    /// Stat, with the source's own zxids.
    pub stat: Stat,
    /// Properties that are compared.
    pub facts: Facts,
    /// Data; empty if it is null.
    pub data: Bytes,
}

/// Znode as it is remembered: enough to detect a change.
#[derive(Debug, Clone)]
pub struct KnownZnode {
    /// Properties that are compared.
    pub facts: Facts,
    /// Stat, with the source's own zxids.
    pub stat: Stat,
}

/// KnownZnode persistent znodes of the source.
pub type KnownTree = BTreeMap<String, KnownZnode>;

/// Client of the source ensemble. See the module.
pub struct Source {
    servers: Vec<String>,
    next: usize,
    credentials: SourceCredentials,
    /// Maximum time for which all servers may be unavailable.
    patience: Duration,
    connection: Option<Connection>,
    /// Longest silence of earlier connections, see [`Source::take_silence`].
    silence: Duration,
    lists: AclInterner,
    /// Support of the servers for persistent recursive watches; `None` before the first connection. Servers
    /// before 3.6 do not.
    pub watches: Option<bool>,
    /// Support of the servers for several reads in one request. Servers before 3.6 do not.
    multi_read: bool,
    /// Newest zxid in a response.
    pub zxid: i64,
}

impl Source {
    /// Creates a client of these servers, each `host:port`.
    pub fn new(servers: Vec<String>, credentials: SourceCredentials, patience: Duration) -> Self {
        Self {
            servers,
            next: 0,
            credentials,
            patience,
            connection: None,
            silence: Duration::ZERO,
            lists: AclInterner::default(),
            watches: None,
            multi_read: true,
            zxid: 0,
        }
    }

    /// Returns the current connection.
    pub fn connection(&mut self) -> Result<&mut Connection, SourceError> {
        let none = || SourceError::Lost(anyhow::anyhow!("there is no connection"));
        self.connection.as_mut().ok_or_else(none)
    }

    /// Drops the connection.
    pub fn disconnect(&mut self) {
        self.silence = self.take_silence();
        self.connection = None;
    }

    /// Returns the longest time without a response to a pending request since the last call.
    pub fn take_silence(&mut self) -> Duration {
        let current = self.connection.as_ref().map(Connection::take_silence);
        std::mem::take(&mut self.silence).max(current.unwrap_or_default())
    }

    /// Returns the address of the connected server.
    pub fn server(&self) -> &str {
        self.connection.as_ref().map_or("none", Connection::server)
    }

    /// Connects to the next server, sets a watch on `root` and its descendants, and waits until the server
    /// has caught up with its leader.
    pub async fn connect(&mut self, root: &str) -> Result<(), SourceError> {
        let deadline = Instant::now() + self.patience;
        loop {
            self.disconnect();
            let server = self.servers[self.next % self.servers.len()].clone();
            self.next += 1;
            let error = match self.connect_to(&server, root).await {
                Ok(()) => return Ok(()),
                Err(SourceError::Refused(why)) => return Err(SourceError::Refused(why)),
                Err(SourceError::Lost(error)) => error,
            };
            if Instant::now() >= deadline {
                let error = error.context("no server of the source can be reached");
                return Err(SourceError::Refused(format!("{error:#}")));
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    async fn connect_to(&mut self, server: &str, root: &str) -> Result<(), SourceError> {
        self.connection = Some(Connection::open(server, &self.credentials).await?);
        if self.watches != Some(false) {
            let watch = Request::AddWatch {
                path: root.to_owned(),
                mode: watch_mode::PERSISTENT_RECURSIVE,
            };
            match self.call(watch).await? {
                Ok(_) => self.watches = Some(true),
                // The response of an old server, which then closes the connection.
                Err(ErrorCode::UNIMPLEMENTED | ErrorCode::MARSHALLING_ERROR) if self.watches.is_none() => {
                    self.watches = Some(false);
                    self.multi_read = false;
                    self.connection = Some(Connection::open(server, &self.credentials).await?);
                }
                Err(code) => return Err(refused(root, code)),
            }
        }
        self.sync(root).await.map(drop)
    }

    /// Waits until the server has applied everything that was committed before, and returns the zxid.
    pub async fn sync(&mut self, root: &str) -> Result<i64, SourceError> {
        let path = root.to_owned();
        match self.call(Request::Sync { path }).await? {
            Ok(_) => {}
            Err(code) => return Err(refused(root, code)),
        }
        // The response of a sync may still contain an earlier zxid; that of a read after it does not.
        let (path, watch) = (root.to_owned(), false);
        match self.call(Request::Exists { path, watch }).await? {
            Ok(_) => Ok(self.zxid),
            Err(code) => Err(refused(root, code)),
        }
    }

    /// Returns the number of znodes below `root`; `None` if the servers do not support the request.
    pub async fn count(&mut self, root: &str) -> Result<Option<u64>, SourceError> {
        if !self.multi_read {
            return Ok(None);
        }
        let path = root.to_owned();
        match self.call(Request::GetAllChildrenNumber { path }).await? {
            Ok(Reply::Number(number)) => Ok(Some(number.max(0) as u64)),
            _ => Ok(None),
        }
    }

    async fn call(&mut self, request: Request) -> Result<Outcome, SourceError> {
        let (outcome, zxid) = self.connection()?.call(request).await?;
        self.zxid = zxid;
        Ok(outcome)
    }

    /// Reads znodes with their access control lists; `None` for each that does not exist. The list of a known
    /// znode is read only if it has changed.
    pub async fn read(
        &mut self,
        paths: &[String],
        known: &KnownTree,
    ) -> Result<Vec<Option<ReadZnode>>, SourceError> {
        let found = self.data(paths, known).await?;
        let is_same = |path: &String, stat: &Stat| {
            known
                .get(path)
                .filter(|known| known.stat.czxid == stat.czxid && known.stat.aversion == stat.aversion)
                .map(|known| known.facts.acl.clone())
        };
        let mut lists: Vec<Option<AclList>> = Vec::with_capacity(paths.len());
        let mut unread = Vec::new();
        for (index, (path, found)) in paths.iter().zip(&found).enumerate() {
            let list = found.as_ref().and_then(|(_, stat)| is_same(path, stat));
            if found.is_some() && list.is_none() {
                unread.push(index);
            }
            lists.push(list);
        }
        let requests = unread.iter().map(|index| Request::GetAcl {
            path: paths[*index].clone(),
        });
        let requests: Vec<_> = requests.collect();
        let mut stats: BTreeMap<usize, Stat> = BTreeMap::new();
        let (outcomes, _) = self.connection()?.call_all(requests).await?;
        for (index, outcome) in unread.into_iter().zip(outcomes) {
            match outcome {
                Ok(Reply::Acl(entries, stat)) => {
                    lists[index] = Some(self.lists.of_zookeeper(entries));
                    stats.insert(index, stat);
                }
                Err(ErrorCode::NO_NODE) => {}
                Err(code) => return Err(refused(&paths[index], code)),
                Ok(other) => return Err(unexpected("getACL", &other)),
            }
        }
        let node = |(index, found): (usize, Option<(Option<Bytes>, Stat)>)| {
            // A notification reports a znode that was deleted between the two reads.
            let ((data, mut stat), acl) = (found?, lists[index].clone()?);
            // Use the version of the list that was read: a later replacement is then found as another change
            // of the stat.
            stat.aversion = stats.get(&index).map_or(stat.aversion, |read| read.aversion);
            Some(node(data, stat, acl))
        };
        Ok(found.into_iter().enumerate().map(node).collect())
    }

    /// Reads data, which may be null, and stats.
    pub async fn data(
        &mut self,
        paths: &[String],
        known: &KnownTree,
    ) -> Result<Vec<Option<(Option<Bytes>, Stat)>>, SourceError> {
        let mut found = Vec::with_capacity(paths.len());
        if !self.multi_read {
            let requests = paths.iter().map(|path| get_data(path)).collect();
            let (outcomes, zxid) = self.connection()?.call_all(requests).await?;
            self.zxid = zxid;
            for (path, outcome) in paths.iter().zip(outcomes) {
                found.push(match outcome {
                    Ok(Reply::Data(data, stat)) => Some((data, stat)),
                    Err(ErrorCode::NO_NODE) => None,
                    Err(code) => return Err(refused(path, code)),
                    Ok(other) => return Err(unexpected("getData", &other)),
                });
            }
            return Ok(found);
        }
        let bytes = |path: &String| {
            let data = known.get(path).map(|known| known.facts.data_length as usize);
            path.len() + data.unwrap_or(ASSUMED_BYTES)
        };
        let chunks = chunks(paths, bytes);
        for some in chunks.chunks(READS_AT_ONCE) {
            let request =
                |chunk: &&[String]| Request::MultiRead(chunk.iter().map(|path| get_data(path)).collect());
            let requests = some.iter().map(request).collect();
            let (outcomes, zxid) = self.connection()?.call_all(requests).await?;
            self.zxid = zxid;
            for (chunk, outcome) in some.iter().zip(outcomes) {
                let results = match outcome {
                    Ok(Reply::Results(results)) if results.len() == chunk.len() => results,
                    Err(code) => return Err(refused(&chunk[0], code)),
                    Ok(other) => return Err(unexpected("multiRead", &other)),
                };
                for (path, result) in chunk.iter().zip(results) {
                    found.push(match result {
                        MultiResult::GetData(data, stat) => Some((data, stat)),
                        MultiResult::Error(ErrorCode::NO_NODE) => None,
                        MultiResult::Error(code) => return Err(refused(path, code)),
                        other => return Err(unexpected("getData", &other)),
                    });
                }
            }
        }
        Ok(found)
    }

    /// Returns the paths of the children of each parent; empty for a parent that does not exist.
    pub async fn children(&mut self, parents: &[String]) -> Result<Vec<Vec<String>>, SourceError> {
        let requests = parents.iter().map(|path| Request::GetChildren {
            path: path.clone(),
            watch: false,
        });
        let requests = requests.collect();
        let (outcomes, _) = self.connection()?.call_all(requests).await?;
        let mut all = Vec::with_capacity(parents.len());
        for (parent, outcome) in parents.iter().zip(outcomes) {
            all.push(match outcome {
                Ok(Reply::Names(names)) => names.iter().map(|name| child(parent, name)).collect(),
                Err(ErrorCode::NO_NODE) => Vec::new(),
                Err(code) => return Err(refused(parent, code)),
                Ok(other) => return Err(unexpected("getChildren", &other)),
            });
        }
        Ok(all)
    }
}

fn get_data(path: &str) -> Request {
    Request::GetData {
        path: path.to_owned(),
        watch: false,
    }
}

fn node(data: Option<Bytes>, stat: Stat, acl: AclList) -> ReadZnode {
    ReadZnode {
        facts: Facts {
            kind: Kind::of_owner(stat.ephemeral_owner),
            data_sha256: data.as_deref().map(hash),
            data_length: data.as_ref().map_or(0, Bytes::len) as u32,
            acl,
            version: stat.version,
            aversion: stat.aversion,
            created_ms: clamp_time(stat.ctime),
            modified_ms: clamp_time(stat.mtime),
            creations: creations(stat.cversion, stat.num_children),
        },
        stat,
        data: data.unwrap_or_default(),
    }
}

/// Splits paths into slices that are small enough for one request each.
fn chunks(paths: &[String], bytes: impl Fn(&String) -> usize) -> Vec<&[String]> {
    let mut all = Vec::new();
    let (mut begin, mut room) = (0, BYTES_AT_ONCE);
    for (index, path) in paths.iter().enumerate() {
        let needs = bytes(path);
        if index > begin && (needs > room || index - begin == PATHS_AT_ONCE) {
            all.push(&paths[begin..index]);
            (begin, room) = (index, BYTES_AT_ONCE);
        }
        room = room.saturating_sub(needs);
    }
    if begin < paths.len() {
        all.push(&paths[begin..]);
    }
    all
}

fn child(parent: &str, name: &str) -> String {
    match parent {
        "/" => format!("/{name}"),
        _ => format!("{parent}/{name}"),
    }
}

fn refused(path: &str, code: ErrorCode) -> SourceError {
    match code {
        ErrorCode::NO_AUTH => SourceError::Refused(format!(
            "the source denies reading {path}: provide credentials that may read all znodes, such as the super user's, with \
             --from-auth-file"
        )),
        ErrorCode::NO_NODE => SourceError::Refused(format!("the source has no {path}")),
        // Errors of a server that is about to stop or has lost its ensemble.
        ErrorCode::CONNECTION_LOSS
        | ErrorCode::SESSION_EXPIRED
        | ErrorCode::SESSION_MOVED
        | ErrorCode::OPERATION_TIMEOUT
        | ErrorCode::REQUEST_TIMEOUT
        | ErrorCode::UNIMPLEMENTED
        | ErrorCode::THROTTLED_OP => SourceError::Lost(anyhow::anyhow!("reading {path}: {code}")),
        code => SourceError::Refused(format!("the source rejects reading {path}: {code}")),
    }
}

fn unexpected(what: &str, answer: &impl std::fmt::Debug) -> SourceError {
    SourceError::Refused(format!("unexpected response of the source to {what}: {answer:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_bounded_in_paths_and_bytes() {
        let paths: Vec<_> = (0..450).map(|n| format!("/{n}")).collect();
        let lengths = |bytes: usize| {
            chunks(&paths, |_| bytes)
                .iter()
                .map(|chunk| chunk.len())
                .collect::<Vec<_>>()
        };
        assert_eq!(lengths(1), [200, 200, 50]);
        assert_eq!(lengths(BYTES_AT_ONCE / 100), [100, 100, 100, 100, 50]);
        // A znode above the limit is read alone.
        assert_eq!(lengths(2 * BYTES_AT_ONCE), [1; 450]);
        assert_eq!(chunks(&[], |_| 1), [&[] as &[String]; 0]);
    }
}
