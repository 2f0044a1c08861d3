//! RedLock: the holder of a lock is the client that has it at a majority of independent Redis masters. A
//! client asks all masters at once. Without a majority it releases what it acquired, and retries after a
//! random time (redis.io, "Distributed Locks with Redis").
//!
//! It is included for its speed only. Its guarantees are weaker: it has no fencing token, and it relies on
//! clocks.

use anyhow::ensure;
use load_generator::drive::{Client, Moments};

use crate::Task;
use crate::redis::{is_acquired, load_script, lock_commands};
use crate::resp::{Connection, Reply};

/// A client with a connection to each master.
pub struct Caller {
    masters: Vec<Connection>,
    commands: [Vec<u8>; 2],
    task: Task,
}

impl Caller {
    /// Connects to all masters.
    pub async fn open(servers: &[String], task: Task) -> anyhow::Result<Self> {
        ensure!(servers.len() % 2 == 1, "RedLock needs an odd number of masters");
        let mut masters = Vec::with_capacity(servers.len());
        let mut hash = String::new();
        for server in servers {
            let mut connection = Connection::open(server).await?;
            // The name of a script is its hash, which is the same at all masters.
            hash = load_script(&mut connection).await?;
            masters.push(connection);
        }
        Ok(Self {
            masters,
            commands: lock_commands(&task, &hash),
            task,
        })
    }

    /// Sends a command to all masters and waits for all replies. Returns the number of replies that `accepts`
    /// accepts.
    async fn all(
        &mut self,
        command: usize,
        accepts: impl Fn(&Reply) -> anyhow::Result<bool>,
    ) -> anyhow::Result<usize> {
        for master in &mut self.masters {
            master.send(&self.commands[command]).await?;
        }
        let mut count = 0;
        for master in &mut self.masters {
            count += usize::from(accepts(&master.receive().await?)?);
        }
        Ok(count)
    }
}

impl Client for Caller {
    async fn once(&mut self, moments: &mut Moments) -> anyhow::Result<()> {
        let majority = self.masters.len() / 2 + 1;
        let is_released = |reply: &Reply| Ok(*reply == Reply::Int(1));
        while self.all(0, is_acquired).await? < majority {
            self.all(1, is_released).await?;
            tokio::time::sleep(self.task.retry.mul_f64(fastrand::f64())).await;
        }
        moments.granted();
        moments.releasing();
        let released = self.all(1, is_released).await?;
        ensure!(released >= majority, "the lock was lost");
        Ok(())
    }

    async fn close(self) -> anyhow::Result<()> {
        Ok(())
    }
}
