//! Commands about leases, elections and znodes.

use std::sync::Arc;

use lock_client::recipes::Election;
use lock_client::{AcquireOptions, CreateMode, Error, WatchKind};
use serde_json::{Value, json, to_value};

use crate::locks::{Held, options_of, wait_of};
use crate::output::{Failure, say};
use crate::{Command, Driver, Reply, millis};

fn create_mode(command: &Command) -> Result<CreateMode, Failure> {
    let ttl = millis(command.ttl_ms.unwrap_or_default());
    Ok(match command.mode.as_deref().unwrap_or("persistent") {
        "persistent" => CreateMode::Persistent,
        "ephemeral" => CreateMode::Ephemeral,
        "persistent_sequential" => CreateMode::PersistentSequential,
        "ephemeral_sequential" => CreateMode::EphemeralSequential,
        "container" => CreateMode::Container,
        "ttl" => CreateMode::Ttl(ttl),
        "ttl_sequential" => CreateMode::TtlSequential(ttl),
        mode => return Err(Failure::usage(format!("there is no mode {mode:?}"))),
    })
}

/// Returns the document of one result among several.
fn document(result: Result<Value, Error>) -> Value {
    result.unwrap_or_else(|error| json!({ "error": Failure::from(error).document() }))
}

impl Driver {
    pub(crate) async fn tree(self: &Arc<Self>, command: &Command) -> Reply {
        match command.r#do.as_str() {
            "lease_acquire" | "lease_wait" | "lease_renew" | "lease_release" | "lease_get" => {
                self.lease(command).await
            }
            "leases_acquire" | "leases_renew" | "leases_release" => self.leases(command).await,
            "campaign" | "resign" | "hand_over" | "leader" | "observe" => self.election(command).await,
            "guarded_set" => self.guarded_set(command).await,
            _ => self.znode(command).await,
        }
    }

    async fn lease(&self, command: &Command) -> Reply {
        let client = &self.client(command)?.client;
        let ttl = command.ttl_ms.map(millis);
        let handle = client.lease(&command.lease);
        match command.r#do.as_str() {
            "lease_acquire" if command.queue => {
                let options = options_of(command)?;
                let lease = client
                    .queue_lease(&command.lock, ttl.unwrap_or_default(), options)
                    .await?;
                let token = lease.get().await?.fencing_token.map(|token| token.0);
                Ok(json!({ "lease": lease.key(), "fencing_token": token }))
            }
            "lease_wait" => match handle.wait(wait_of(command)).await {
                Ok(lease) => Ok(json!({ "fencing_token": lease.fencing_token().0 })),
                Err(error) if error.is_not_free() => Ok(json!({ "fencing_token": null })),
                Err(error) => Err(error.into()),
            },
            "lease_acquire" => {
                let lease = client
                    .acquire_lease(&command.lock, ttl.unwrap_or_default(), options_of(command)?)
                    .await?;
                Ok(
                    json!({ "lease": lease.key(), "fencing_token": lease.fencing_token().0, "expires_in_ms": lease.expires_in().as_millis() }),
                )
            }
            "lease_renew" => {
                let lease = handle.renew(ttl).await?;
                Ok(
                    json!({ "fencing_token": lease.fencing_token().0, "expires_in_ms": lease.expires_in().as_millis() }),
                )
            }
            "lease_release" => Ok(handle.release().await.map(|()| json!({}))?),
            _ => {
                let view = handle.get().await?;
                let token = view.fencing_token.map(|token| token.0);
                Ok(
                    json!({ "lock": view.lock, "fencing_token": token, "expires_in_ms": view.expires_in_ms, "note": view.note }),
                )
            }
        }
    }

    async fn leases(&self, command: &Command) -> Reply {
        let client = &self.client(command)?.client;
        let ttl = command.ttl_ms.map(millis);
        let leases = match command.r#do.as_str() {
            "leases_acquire" => {
                let locks = command.locks.iter().map(|each| &each.lock);
                client
                    .acquire_leases(locks, ttl.unwrap_or_default(), AcquireOptions::exclusive())
                    .await
            }
            "leases_renew" => client.renew_leases(&command.leases, ttl).await,
            _ => {
                let released = client.release_leases(&command.leases).await;
                let released = released.into_iter().map(|result| result.map(|()| json!({})));
                return Ok(json!({ "leases": released.map(document).collect::<Vec<_>>() }));
            }
        };
        let leases = leases.into_iter().map(|lease| {
            let lease = lease?;
            Ok(json!({ "lease": lease.key(), "fencing_token": lease.fencing_token().0 }))
        });
        Ok(json!({ "leases": leases.map(document).collect::<Vec<_>>() }))
    }

    async fn election(&self, command: &Command) -> Reply {
        match command.r#do.as_str() {
            "campaign" => {
                let session = self.client(command)?.session().await?;
                let leadership = Election::new(session, &command.election)
                    .campaign(&command.candidate)
                    .await?;
                Ok(self.note(&command.r#as, Held::Leader(leadership)))
            }
            "resign" => {
                let held = self.grant(command)?.lock().await.take();
                if let Some(held) = held {
                    held.release().await?;
                }
                Ok(json!({}))
            }
            "hand_over" => {
                let grant = self.grant(command)?;
                let mut held = grant.lock().await;
                let Some(Held::Leader(leadership)) = held.take() else {
                    return Err(Failure::usage("it does not lead"));
                };
                match leadership.hand_over(&command.to).await? {
                    None => Ok(json!({})),
                    Some(leadership) => {
                        *held = Some(Held::Leader(leadership));
                        Err(Failure::usage("no candidate of this name waits"))
                    }
                }
            }
            "leader" => {
                let view = self.client(command)?.client.lock(&command.election).await?;
                let leader = view
                    .and_then(|view| view.holders.into_iter().next())
                    .map(|holder| holder.note);
                Ok(json!({ "candidate": leader }))
            }
            _ => {
                let mut observer = Election::observe(&self.client(command)?.client, &command.election);
                let as_ = command.r#as.clone();
                tokio::spawn(async move {
                    while let Ok(leader) = observer.next().await {
                        say(
                            &json!({ "event": "leader", "as": as_, "candidate": leader.map(|leader| leader.name) }),
                        );
                    }
                });
                Ok(json!({}))
            }
        }
    }

    async fn znode(&self, command: &Command) -> Reply {
        let opened = self.client(command)?;
        let (znodes, path) = (opened.client.znodes(), command.path.as_str());
        match command.r#do.as_str() {
            "create" => {
                let mode = create_mode(command)?;
                let znodes = match mode {
                    CreateMode::Ephemeral | CreateMode::EphemeralSequential => {
                        opened.session().await?.znodes()
                    }
                    _ => znodes,
                };
                let (path, _) = znodes.create(path, &command.data, mode, command.parents).await?;
                Ok(json!({ "path": path }))
            }
            "get" => {
                let znode = znodes.get(path).await?;
                Ok(json!({ "data": znode.text(), "version": znode.stat.version }))
            }
            "set" => {
                Ok(json!({ "version": znodes.set(path, &command.data, command.version).await?.version }))
            }
            "delete" => Ok(znodes
                .delete(path, command.version, false)
                .await
                .map(|()| json!({}))?),
            "children" => {
                let mut names: Vec<String> = znodes
                    .children(path)
                    .await?
                    .into_iter()
                    .map(|child| child.name)
                    .collect();
                names.sort();
                Ok(json!({ "children": names }))
            }
            "watch" => {
                let (kind, since) = match command.kind.as_str() {
                    "data" => (WatchKind::Data, Some(znodes.get(path).await?.stat.mzxid)),
                    "children" => (WatchKind::Children, Some(znodes.get(path).await?.stat.pzxid)),
                    _ => (WatchKind::Exists, None),
                };
                let (path, as_, timeout) =
                    (path.to_owned(), command.r#as.clone(), millis(command.timeout_ms));
                tokio::spawn(async move {
                    let watch = async {
                        match since {
                            Some(seen) => znodes.watch_after(&path, kind, seen).await,
                            None => znodes.watch(&path, kind).await,
                        }
                    };
                    if let Ok(Ok(event)) = tokio::time::timeout(timeout, watch).await {
                        let change = to_value(&event.event).unwrap_or(Value::Null);
                        say(&json!({ "event": "watch", "as": as_, "kind": change, "path": event.path }));
                    }
                });
                if since.is_none() {
                    // Without a position in the log the watch is armed when the server has it.
                    tokio::time::sleep(millis(300)).await;
                }
                Ok(json!({}))
            }
            unknown => Err(Failure::usage(format!("there is no command {unknown:?}"))),
        }
    }
}
