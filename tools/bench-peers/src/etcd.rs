//! A client of etcd: keys through the service KV, locks through the service Lock under a lease of the
//! client's own (rpc.proto, v3lock.proto).

use anyhow::{Context, bail};
use bytes::Bytes;
use load_generator::drive::{Client, Moments};

use crate::grpc::{Call, Connection};
use crate::protobuf::{Message, Value, field};
use crate::{Task, Workload};

/// A client with its connection.
pub struct Caller {
    connection: Connection,
    operation: Operation,
}

#[allow(clippy::large_enum_variant, reason = "each client has one, created once")]
enum Operation {
    Lock {
        lock: Call,
        unlock: Call,
        revoke: Call,
        /// The lock request with its name and lease, which never changes.
        request: Message,
        lease: i64,
    },
    One(Call, Message),
    Create {
        put: Call,
        home: String,
        data: Vec<u8>,
        number: u64,
    },
}

impl Caller {
    /// Connects, and creates the lease or key that the workload needs.
    pub async fn open(server: &str, task: Task) -> anyhow::Result<Self> {
        let mut connection = Connection::open(server).await?;
        let put = connection.method("/etcdserverpb.KV/Put")?;
        let put_own = Message::new().bytes(1, task.key.as_bytes()).bytes(2, &task.data);
        let operation = match task.workload {
            Workload::Lock | Workload::Contended => {
                let grant = connection.method("/etcdserverpb.Lease/LeaseGrant")?;
                let ttl = i64::try_from(task.ttl.as_secs())?;
                let granted = connection.call(&grant, &Message::new().int(1, ttl)).await?;
                let Some(Value::Int(lease)) = field(&granted, 2)? else {
                    bail!("the response has no lease id");
                };
                Operation::Lock {
                    lock: connection.method("/v3lockpb.Lock/Lock")?,
                    unlock: connection.method("/v3lockpb.Lock/Unlock")?,
                    revoke: connection.method("/etcdserverpb.Lease/LeaseRevoke")?,
                    request: Message::new().bytes(1, task.key.as_bytes()).int(2, lease),
                    lease,
                }
            }
            Workload::Set => Operation::One(put, put_own),
            Workload::Get => {
                connection.call(&put, &put_own).await?;
                let range = connection.method("/etcdserverpb.KV/Range")?;
                // Reads the state of this server without asking the leader, as reads of ZooKeeper and
                // Lockgate do.
                const SERIALIZABLE: u32 = 7;
                let own = Message::new().bytes(1, task.key.as_bytes()).int(SERIALIZABLE, 1);
                Operation::One(range, own)
            }
            Workload::Create => Operation::Create {
                put,
                home: task.key,
                data: task.data,
                number: 0,
            },
        };
        Ok(Self {
            connection,
            operation,
        })
    }
}

impl Client for Caller {
    async fn once(&mut self, moments: &mut Moments) -> anyhow::Result<()> {
        let connection = &mut self.connection;
        match &mut self.operation {
            Operation::Lock {
                lock,
                unlock,
                request,
                ..
            } => {
                let granted: Bytes = connection.call(lock, request).await.context("acquiring a lock")?;
                moments.granted();
                let Some(Value::Bytes(key)) = field(&granted, 2)? else {
                    bail!("the response has no lock key");
                };
                let request = Message::new().bytes(1, key);
                moments.releasing();
                connection
                    .call(unlock, &request)
                    .await
                    .context("releasing a lock")?;
            }
            Operation::One(call, message) => {
                connection.call(call, message).await?;
            }
            Operation::Create {
                put,
                home,
                data,
                number,
            } => {
                *number += 1;
                let key = format!("{home}/n{number:010}");
                let message = Message::new().bytes(1, key.as_bytes()).bytes(2, data);
                connection.call(put, &message).await?;
            }
        }
        Ok(())
    }

    async fn close(mut self) -> anyhow::Result<()> {
        if let Operation::Lock { revoke, lease, .. } = &self.operation {
            let request = Message::new().int(1, *lease);
            self.connection
                .call(revoke, &request)
                .await
                .context("revoking a lease")?;
        }
        Ok(())
    }
}
