//! A client of one Redis. Its lock is the one in Redis' documentation: `SET key random NX PX ttl`, and a
//! script that deletes the key if it still has the client's value.

use anyhow::{bail, ensure};
use load_generator::drive::{Client, Moments};

use crate::resp::{Connection, Reply, command};
use crate::{Task, Workload};

/// Script that deletes the key if it has the caller's value (redis.io, "Distributed Locks with Redis").
pub const UNLOCK: &str =
    r#"if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end"#;

/// Returns the two commands of a lock: to acquire it, and to release it.
pub fn lock_commands(task: &Task, hash: &str) -> [Vec<u8>; 2] {
    let own = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
    let ttl = task.ttl.as_millis().to_string();
    let key = task.key.as_bytes();
    [
        command(&[b"SET", key, own.as_bytes(), b"NX", b"PX", ttl.as_bytes()]),
        command(&[b"EVALSHA", hash.as_bytes(), b"1", key, own.as_bytes()]),
    ]
}

/// Loads the script into the server and returns its hash, by which it is called.
pub async fn load_script(connection: &mut Connection) -> anyhow::Result<String> {
    match connection
        .call(&command(&[b"SCRIPT", b"LOAD", UNLOCK.as_bytes()]))
        .await?
    {
        Reply::Bulk(Some(hash)) => Ok(String::from_utf8(hash)?),
        other => bail!("unexpected reply to SCRIPT LOAD: {other:?}"),
    }
}

/// Returns whether the lock was acquired.
pub fn is_acquired(reply: &Reply) -> anyhow::Result<bool> {
    match reply {
        Reply::Simple(_) => Ok(true),
        Reply::Bulk(None) => Ok(false),
        other => bail!("unexpected reply to SET NX: {other:?}"),
    }
}

/// A client with its connection.
pub struct Caller {
    connection: Connection,
    task: Task,
    operation: Operation,
}

enum Operation {
    Lock([Vec<u8>; 2]),
    One(Vec<u8>),
    Create(u64),
}

impl Caller {
    /// Connects, and creates the script or key that the workload needs.
    pub async fn open(server: &str, task: Task) -> anyhow::Result<Self> {
        let mut connection = Connection::open(server).await?;
        let set = command(&[b"SET", task.key.as_bytes(), &task.data]);
        let operation = match task.workload {
            Workload::Lock | Workload::Contended => {
                let hash = load_script(&mut connection).await?;
                Operation::Lock(lock_commands(&task, &hash))
            }
            Workload::Set => Operation::One(set),
            Workload::Get => {
                connection.call(&set).await?;
                Operation::One(command(&[b"GET", task.key.as_bytes()]))
            }
            Workload::Create => Operation::Create(0),
        };
        Ok(Self {
            connection,
            task,
            operation,
        })
    }
}

impl Client for Caller {
    async fn once(&mut self, moments: &mut Moments) -> anyhow::Result<()> {
        let reply = match &mut self.operation {
            Operation::Lock([lock, unlock]) => {
                while !is_acquired(&self.connection.call(lock).await?)? {
                    tokio::time::sleep(self.task.retry.mul_f64(fastrand::f64())).await;
                }
                moments.granted();
                moments.releasing();
                let reply = self.connection.call(unlock).await?;
                ensure!(reply == Reply::Int(1), "the lock was lost: {reply:?}");
                return Ok(());
            }
            Operation::One(command) => self.connection.call(command).await?,
            Operation::Create(number) => {
                *number += 1;
                let key = format!("{}/n{number:010}", self.task.key);
                let set = command(&[b"SET", key.as_bytes(), &self.task.data]);
                self.connection.call(&set).await?
            }
        };
        match reply {
            Reply::Simple(_) | Reply::Bulk(Some(_)) => Ok(()),
            other => bail!("unexpected reply: {other:?}"),
        }
    }

    async fn close(self) -> anyhow::Result<()> {
        Ok(())
    }
}
