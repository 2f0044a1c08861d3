//! RedLock: a lock is held by who has it at a majority of Redis masters that know nothing of each other. All are asked at once; who
//! has no majority gives back what it got, and tries again after a random time (redis.io, "Distributed Locks with Redis").
//!
//! It is here for its speed. What it promises is another matter: it has no fencing token, and trusts clocks.

use anyhow::ensure;
use load_generator::drive::{Client, Moments};

use crate::Task;
use crate::redis::{load_script, lock_commands, taken};
use crate::resp::{Connection, Reply};

/// A client with a connection to each master.
pub struct Caller {
    masters: Vec<Connection>,
    commands: [Vec<u8>; 2],
    task: Task,
}

impl Caller {
    /// Connects to all.
    pub async fn open(servers: &[String], task: Task) -> anyhow::Result<Self> {
        ensure!(
            servers.len() % 2 == 1,
            "a majority takes an odd number of masters"
        );
        let mut masters = Vec::with_capacity(servers.len());
        let mut hash = String::new();
        for server in servers {
            let mut connection = Connection::open(server).await?;
            // The name of a script is its hash, and the same everywhere.
            hash = load_script(&mut connection).await?;
            masters.push(connection);
        }
        Ok(Self {
            masters,
            commands: lock_commands(&task, &hash),
            task,
        })
    }

    /// Sends a command to all, then waits for all: how many replies are as wished.
    async fn all(
        &mut self,
        command: usize,
        wished: impl Fn(&Reply) -> anyhow::Result<bool>,
    ) -> anyhow::Result<usize> {
        for master in &mut self.masters {
            master.send(&self.commands[command]).await?;
        }
        let mut count = 0;
        for master in &mut self.masters {
            count += usize::from(wished(&master.receive().await?)?);
        }
        Ok(count)
    }
}

impl Client for Caller {
    async fn once(&mut self, moments: &mut Moments) -> anyhow::Result<()> {
        let majority = self.masters.len() / 2 + 1;
        let mine = |reply: &Reply| Ok(*reply == Reply::Int(1));
        while self.all(0, taken).await? < majority {
            self.all(1, mine).await?;
            tokio::time::sleep(self.task.retry.mul_f64(fastrand::f64())).await;
        }
        moments.granted();
        moments.releasing();
        let given_back = self.all(1, mine).await?;
        ensure!(given_back >= majority, "a lock was lost");
        Ok(())
    }

    async fn close(self) -> anyhow::Result<()> {
        Ok(())
    }
}
