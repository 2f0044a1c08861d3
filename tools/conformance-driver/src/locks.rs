//! Commands about locks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use lock_client::recipes::Leadership;
use lock_client::{AcquireOptions, Error, LockGuard, LockGuards, LockSet, Loss, Transaction, Wait};
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio::sync::{Mutex, oneshot};

use crate::output::{Failure, loss_fields, say};
use crate::{Command, Driver, Reply, WantedLock, millis};

/// Locks that a command has acquired.
#[derive(Debug)]
pub enum Held {
    One(LockGuard),
    Many(LockGuards),
    Leader(Leadership),
}

/// Named grant. It is empty after its release.
pub type Grant = Arc<Mutex<Option<Held>>>;

/// Order to end a block, with an error of its own or without.
pub type End = oneshot::Sender<Option<String>>;

impl Held {
    pub fn guard(&self) -> &LockGuard {
        match self {
            Self::One(guard) => guard,
            Self::Many(guards) => &guards.guards()[0],
            Self::Leader(leadership) => leadership.guard(),
        }
    }

    fn guard_mut(&mut self) -> Result<&mut LockGuard, Failure> {
        match self {
            Self::One(guard) => Ok(guard),
            _ => Err(Failure::usage("only one lock can change its mode")),
        }
    }

    fn check(&self) -> Result<(), Error> {
        match self {
            Self::Many(guards) => guards.check(),
            _ => self.guard().check().map(drop),
        }
    }

    pub async fn release(self) -> Result<(), Error> {
        match self {
            Self::One(guard) => guard.release().await.map(drop),
            Self::Many(guards) => guards.release().await,
            Self::Leader(leadership) => leadership.resign().await,
        }
    }
}

fn options(wanted: &WantedLock) -> Result<AcquireOptions, Failure> {
    let options = match (wanted.mode.as_deref().unwrap_or("exclusive"), wanted.limit) {
        ("exclusive", _) => AcquireOptions::exclusive(),
        ("shared", _) => AcquireOptions::shared(),
        ("upgradeable", _) => AcquireOptions::upgradeable(),
        ("semaphore", Some(limit)) => AcquireOptions::semaphore(limit),
        ("semaphore", None) => AcquireOptions::semaphore_of_any_limit(),
        (mode, _) => return Err(Failure::usage(format!("there is no mode {mode:?}"))),
    };
    Ok(match wanted.permits {
        Some(permits) => options.permits(permits),
        None => options,
    })
}

/// Returns the options of a command.
pub fn options_of(command: &Command) -> Result<AcquireOptions, Failure> {
    let wanted = WantedLock {
        lock: String::new(),
        mode: command.mode.clone(),
        limit: command.limit,
        permits: command.permits,
    };
    let mut options = options(&wanted)?;
    options = match wait_of(command) {
        Wait::Try => options.try_only(),
        Wait::AtMost(time) => options.wait_at_most(time),
        _ => options,
    };
    if let Some(owner) = &command.owner {
        options = options.reentrant(owner);
    }
    if let Some(note) = &command.note {
        options = options.note(note);
    }
    if let Some(ms) = command.min_hold_ms {
        options = options.min_hold(millis(ms));
    }
    if let Some(ms) = command.max_hold_ms {
        options = options.max_hold(millis(ms));
    }
    Ok(options)
}

pub fn wait_of(command: &Command) -> Wait {
    match command.wait_ms {
        Some(0) => Wait::Try,
        Some(ms) => Wait::AtMost(millis(ms)),
        None => Wait::Forever,
    }
}

/// Seconds of `CLOCK_MONOTONIC`.
fn monotonic() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has this clock");
    Duration::from(now).as_secs_f64()
}

impl Driver {
    /// Acquires and releases locks, each worker its own, and counts.
    pub async fn cycle(&self, command: &Command) -> Reply {
        let session = self.client(command)?.session().await?;
        let end = Instant::now() + Duration::from_secs_f64(command.seconds);
        let work = async |worker: usize| {
            let (lock, mut count) = (format!("{}/{worker}", command.lock), 0_u64);
            while Instant::now() < end {
                let guard = session.acquire(&lock, AcquireOptions::exclusive()).await?;
                guard.release().await?;
                count += 1;
            }
            Ok::<_, Error>(count)
        };
        let counts = try_join_all((0..command.workers).map(work)).await?;
        Ok(json!({ "cycles": counts.iter().sum::<u64>() }))
    }

    pub(crate) fn grant(&self, command: &Command) -> Result<Grant, Failure> {
        let found = self.grants.lock().get(&command.r#as).cloned();
        found.ok_or_else(|| Failure::usage(format!("there is no grant {:?}", command.r#as)))
    }

    /// Names a grant, and reports its loss and its release requests.
    pub(crate) fn note(&self, name: &str, held: Held) -> Value {
        let guard = held.guard();
        let answer = json!({ "fencing_token": guard.fencing_token().0, "holder": guard.holder(), "mode": guard.mode().word() });
        let (lost, as_) = (guard.lost(), name.to_owned());
        let asked = guard.release_requested();
        let grant: Grant = Arc::new(Mutex::new(Some(held)));
        self.grants.lock().insert(name.to_owned(), grant);
        tokio::spawn(async move {
            tokio::pin!(asked);
            let mut is_asked = false;
            tokio::pin!(lost);
            loop {
                tokio::select! {
                    loss = &mut lost => {
                        let mut line = loss_fields(&loss);
                        line["event"] = "lost".into();
                        line["as"] = as_.into();
                        return say(&line);
                    }
                    request = &mut asked, if !is_asked => {
                        is_asked = true;
                        say(&json!({ "event": "release_requested", "as": as_, "by": request.by, "reason": request.reason }));
                    }
                }
            }
        });
        answer
    }

    pub(crate) async fn locks(self: &Arc<Self>, command: &Command) -> Reply {
        match command.r#do.as_str() {
            "acquire" => {
                let session = self.client(command)?.session().await?;
                let guard = session.acquire(&command.lock, options_of(command)?).await?;
                Ok(self.note(&command.r#as, Held::One(guard)))
            }
            "acquire_many" => {
                let mut set = LockSet::new();
                for each in &command.locks {
                    set = set.with(&each.lock, options(each)?);
                }
                set = match wait_of(command) {
                    Wait::Try => set.try_only(),
                    Wait::AtMost(time) => set.wait_at_most(time),
                    _ => set,
                };
                let guards = self.client(command)?.session().await?.acquire_all(set).await?;
                let tokens: Vec<u64> = guards
                    .guards()
                    .iter()
                    .map(|guard| guard.fencing_token().0)
                    .collect();
                self.note(&command.r#as, Held::Many(guards));
                Ok(json!({ "fencing_tokens": tokens }))
            }
            "release" => {
                let held = self.grant(command)?.lock().await.take();
                if let Some(held) = held {
                    held.release().await?;
                }
                Ok(json!({}))
            }
            "check" => {
                let grant = self.grant(command)?;
                let held = grant.lock().await;
                Ok(json!({ "valid": held.as_ref().is_some_and(|held| held.check().is_ok()) }))
            }
            "verify" => {
                let grant = self.grant(command)?;
                let held = grant.lock().await;
                let guard = held
                    .as_ref()
                    .map(Held::guard)
                    .ok_or_else(|| Failure::usage("it was released"))?;
                Ok(json!({ "held": guard.verify().await? }))
            }
            "upgrade" | "downgrade" => {
                let grant = self.grant(command)?;
                let mut held = grant.lock().await;
                let guard = held
                    .as_mut()
                    .ok_or_else(|| Failure::usage("it was released"))?
                    .guard_mut()?;
                match (command.r#do.as_str(), command.mode.as_deref()) {
                    ("upgrade", _) => guard.upgrade(wait_of(command)).await?,
                    (_, Some("upgradeable")) => guard.downgrade_to_upgradeable().await?,
                    _ => guard.downgrade().await?,
                }
                Ok(json!({ "fencing_token": guard.fencing_token().0, "mode": guard.mode().word() }))
            }
            "reply_release" => {
                let grant = self.grant(command)?;
                let held = grant.lock().await;
                let guard = held
                    .as_ref()
                    .map(Held::guard)
                    .ok_or_else(|| Failure::usage("it was released"))?;
                guard.answer(&command.answer).await?;
                Ok(json!({}))
            }
            "block" => self.block(command).await,
            "end_block" => {
                let end = self.ends.lock().remove(&command.r#as);
                // A block that was interrupted has ended already.
                let _ = end.map(|end| end.send(command.raise.clone()));
                Ok(json!({}))
            }
            _ => {
                let (grant, as_, every) = (
                    self.grant(command)?,
                    command.r#as.clone(),
                    millis(command.every_ms),
                );
                tokio::spawn(work(grant, as_, every));
                Ok(json!({}))
            }
        }
    }

    /// Runs a body under a lock, in the idiom of the client: it races against the loss, and drops what it would have done.
    async fn block(&self, command: &Command) -> Reply {
        let session = self.client(command)?.session().await?;
        let guard = session.acquire(&command.lock, options_of(command)?).await?;
        let (lost, token) = (guard.lost(), guard.fencing_token().0);
        let (end, mut ended) = oneshot::channel();
        self.ends.lock().insert(command.r#as.clone(), end);
        self.note(&command.r#as, Held::One(guard));
        say(&json!({ "event": "entered", "as": command.r#as, "fencing_token": token }));
        let mut loss: Option<Loss> = None;
        let mut own = None;
        tokio::select! {
            told = lost => {
                say(&json!({ "event": "interrupted", "as": command.r#as, "reason": told.word() }));
                loss = Some(told);
                if command.hold {
                    own = ended.await.unwrap_or_default();
                }
            }
            raised = &mut ended => own = raised.unwrap_or_default(),
        }
        let held = self.grant(command)?.lock().await.take();
        let released = match held {
            Some(held) => held.release().await,
            None => Ok(()),
        };
        match (own, loss) {
            (Some(text), _) => Err(Failure::Usage(text)),
            (None, Some(loss)) => Err(Error::Lost(loss).into()),
            (None, None) => Ok(released.map(|()| json!({}))?),
        }
    }

    pub(crate) async fn guarded_set(&self, command: &Command) -> Reply {
        let grant = self.grant(command)?;
        let held = grant.lock().await;
        let guard = held
            .as_ref()
            .map(Held::guard)
            .ok_or_else(|| Failure::usage("it was released"))?;
        guard
            .write(Transaction::new().set(&command.path, &command.data, None))
            .await?;
        Ok(json!({}))
    }
}

/// Works while the lock is held.
async fn work(grant: Grant, as_: String, every: Duration) {
    loop {
        let held = grant.lock().await;
        let checked_at = monotonic();
        match held
            .as_ref()
            .map_or(Err(Error::Lost(Loss::Released)), Held::check)
        {
            Ok(()) => say(&json!({ "event": "worked", "as": as_, "checked_at": checked_at })),
            Err(error) => {
                let why = match &error {
                    Error::Lost(loss) => loss.word(),
                    _ => "released",
                };
                return say(&json!({ "event": "stopped", "as": as_, "reason": why }));
            }
        }
        drop(held);
        tokio::time::sleep(every).await;
    }
}
