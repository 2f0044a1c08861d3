//! A tree of znodes as a [`Store`] over ZooKeeper's protocol. A linearizable read is `sync` followed by
//! `getData`, as ZooKeeper's documentation recommends.

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use zk_wire::{AclEntry, CreateCall, ErrorCode, Reply, Request};

use super::{Client, unexpected};
use crate::client::result::CallResult;
use crate::client::store::{Freshness, Store, Versioned};

/// Name prefix of numbered znodes.
const NUMBERED: &str = "n-";

/// Digits of a sequential znode's number.
const DIGITS: usize = 10;

/// Number of keys that one transaction creates; its frame stays far below a megabyte.
const CREATED_AT_ONCE: usize = 200;

/// ZooKeeper's create flags.
pub mod flags {
    /// Exists until it is deleted.
    pub const PERSISTENT: i32 = 0;
    /// Persistent, with a sequence number appended to its name.
    pub const PERSISTENT_SEQUENTIAL: i32 = 2;
    /// Deleted with its session, with a sequence number appended to its name.
    pub const EPHEMERAL_SEQUENTIAL: i32 = 3;
}

/// One client of the store.
pub struct ZooKeeperStore(pub Client);

/// Returns a create request with open access.
pub fn create(call: CreateCall, path: String, data: &str, flags: i32) -> Request {
    let open = AclEntry {
        perms: 31,
        scheme: "world".to_owned(),
        id: "anyone".to_owned(),
    };
    Request::Create {
        call,
        path,
        data: Some(Bytes::copy_from_slice(data.as_bytes())),
        acl: Some(vec![open]),
        flags,
    }
}

/// Creates a znode and its ancestors unless they exist.
pub async fn ensure(client: &mut Client, path: &str) -> CallResult<()> {
    let ends = path.match_indices('/').skip(1).map(|(end, _)| end);
    for end in ends.chain([path.len()]) {
        let request = create(CreateCall::Create, path[..end].to_owned(), "", flags::PERSISTENT);
        match client.call(&request).await {
            CallResult::Ok(Ok(_) | Err(ErrorCode::NODE_EXISTS)) => {}
            CallResult::Ok(other) => return unexpected(other),
            CallResult::Failed(why) => return CallResult::Failed(why),
            CallResult::Unknown(why) => return CallResult::Unknown(why),
        }
    }
    CallResult::Ok(())
}

impl ZooKeeperStore {
    async fn create_some(&mut self, keys: &[String], value: &str) -> CallResult<()> {
        let creations = keys
            .iter()
            .map(|key| create(CreateCall::Create, key.clone(), value, flags::PERSISTENT));
        match self.0.call(&Request::Multi(creations.collect())).await {
            CallResult::Ok(Ok(Reply::Results(_))) => CallResult::Ok(()),
            CallResult::Ok(other) => unexpected(other),
            CallResult::Failed(why) => CallResult::Failed(why),
            CallResult::Unknown(why) => CallResult::Unknown(why),
        }
    }

    async fn read(&mut self, key: &str, freshness: Freshness) -> CallResult<Option<Versioned>> {
        if freshness == Freshness::Linearizable {
            let path = key.to_owned();
            match self.0.call(&Request::Sync { path }).await {
                CallResult::Ok(Ok(_)) => {}
                CallResult::Ok(other) => return unexpected(other),
                CallResult::Failed(why) | CallResult::Unknown(why) => return CallResult::Failed(why),
            }
        }
        let (path, watch) = (key.to_owned(), false);
        match self.0.call(&Request::GetData { path, watch }).await {
            CallResult::Ok(Ok(Reply::Data(data, stat))) => {
                let data = data.unwrap_or_default();
                CallResult::Ok(Some(Versioned {
                    value: String::from_utf8_lossy(&data).into_owned(),
                    version: u64::try_from(stat.version).unwrap_or(u64::MAX),
                }))
            }
            CallResult::Ok(Err(ErrorCode::NO_NODE)) => CallResult::Ok(None),
            CallResult::Ok(other) => unexpected(other),
            CallResult::Failed(why) | CallResult::Unknown(why) => CallResult::Failed(why),
        }
    }

    async fn write(&mut self, key: &str, value: &str, expected: Option<u64>) -> CallResult<Option<u64>> {
        let version = expected.map_or(-1, |version| i32::try_from(version).unwrap_or(i32::MAX));
        let request = Request::SetData {
            path: key.to_owned(),
            data: Some(Bytes::copy_from_slice(value.as_bytes())),
            version,
        };
        match self.0.call(&request).await {
            CallResult::Ok(Ok(Reply::Stat(stat))) => CallResult::Ok(u64::try_from(stat.version).ok()),
            CallResult::Ok(Err(ErrorCode::BAD_VERSION)) => CallResult::Ok(None),
            CallResult::Ok(other) => unexpected(other),
            CallResult::Failed(why) => CallResult::Failed(why),
            CallResult::Unknown(why) => CallResult::Unknown(why),
        }
    }
}

impl Store for ZooKeeperStore {
    fn create_all<'a>(&'a mut self, keys: &'a [String], value: &'a str) -> BoxFuture<'a, CallResult<()>> {
        async move {
            let above = keys
                .first()
                .and_then(|key| key.rsplit_once('/'))
                .map_or("", |(above, _)| above);
            match ensure(&mut self.0, above).await {
                CallResult::Ok(()) => {}
                other => return other,
            }
            for some in keys.chunks(CREATED_AT_ONCE) {
                match self.create_some(some, value).await {
                    CallResult::Ok(()) => {}
                    other => return other,
                }
            }
            CallResult::Ok(())
        }
        .boxed()
    }

    fn get<'a>(
        &'a mut self,
        key: &'a str,
        freshness: Freshness,
    ) -> BoxFuture<'a, CallResult<Option<Versioned>>> {
        self.read(key, freshness).boxed()
    }

    fn set<'a>(
        &'a mut self,
        key: &'a str,
        value: &'a str,
        expected: Option<u64>,
    ) -> BoxFuture<'a, CallResult<Option<u64>>> {
        self.write(key, value, expected).boxed()
    }

    fn create_numbered<'a>(&'a mut self, parent: &'a str) -> BoxFuture<'a, CallResult<u64>> {
        async move {
            let path = format!("{parent}/{NUMBERED}");
            let request = create(CreateCall::Create, path, "", flags::PERSISTENT_SEQUENTIAL);
            match self.0.call(&request).await {
                CallResult::Ok(Ok(Reply::Path(path))) => match number(&path) {
                    Some(number) => CallResult::Ok(number),
                    None => CallResult::Unknown(format!("a sequential znode without a number: {path}")),
                },
                CallResult::Ok(other) => unexpected(other),
                CallResult::Failed(why) => CallResult::Failed(why),
                CallResult::Unknown(why) => CallResult::Unknown(why),
            }
        }
        .boxed()
    }

    fn delete_numbered<'a>(&'a mut self, parent: &'a str, number: u64) -> BoxFuture<'a, CallResult<()>> {
        async move {
            let request = Request::Delete {
                path: format!("{parent}/{NUMBERED}{number:0DIGITS$}"),
                version: -1,
            };
            match self.0.call(&request).await {
                CallResult::Ok(Ok(_)) => CallResult::Ok(()),
                CallResult::Ok(other) => unexpected(other),
                CallResult::Failed(why) => CallResult::Failed(why),
                CallResult::Unknown(why) => CallResult::Unknown(why),
            }
        }
        .boxed()
    }
}

/// Parses the number at the end of a sequential znode's path.
pub fn number(path: &str) -> Option<u64> {
    path.get(path.len().checked_sub(DIGITS)?..)?.parse().ok()
}
