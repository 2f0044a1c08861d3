//! One call of `acquire`, from the first try to its end: under one request id, at one server after the other. However
//! it ends without a lock in its caller's hands, it takes back what it may stand for in the cluster.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use crate::encode::{self, millis};
use crate::error::{Error, Loss};
use crate::grant::Grant;
use crate::http::Call;
use crate::options::{AcquireOptions, LockSet, Mode, Wait};
use crate::servers::{Pauses, Verdict, read, request_id};
use crate::session_core::Core;

/// What a call is about.
#[derive(Clone)]
enum What {
    /// This lock.
    One(String),
    /// Those that its body names.
    Many,
    /// This lock, which is held already.
    Upgrade(String),
}

impl What {
    fn path(&self) -> String {
        match self {
            Self::One(lock) => format!("/v1/locks/{}/acquire", encode::segment(lock)),
            Self::Many => "/v1/multilock/acquire".to_owned(),
            Self::Upgrade(lock) => format!("/v1/locks/{}/upgrade", encode::segment(lock)),
        }
    }

    /// The grants of an answer, in the order in which they were asked for.
    fn grants(&self, body: &[u8]) -> Result<Vec<Grant>, Error> {
        #[derive(Deserialize)]
        struct Granted {
            holders: Vec<Grant>,
        }
        match self {
            Self::One(_) | Self::Upgrade(_) => Ok(vec![read(body)?]),
            Self::Many => Ok(read::<Granted>(body)?.holders),
        }
    }

    /// Takes back what was granted to a caller that has gone.
    async fn undo(&self, core: &Core, grants: &[Grant]) -> Result<(), Error> {
        match (self, grants) {
            (Self::Upgrade(_), [grant]) => downgrade(core, grant, Mode::Upgradeable).await.map(drop),
            (_, [grant]) => release(core, grant, &request_id()).await.map(drop),
            _ => release_many(core, grants, &request_id()).await,
        }
    }
}

/// One call.
pub(crate) struct Acquire {
    core: Arc<Core>,
    request: Request,
    give_up_at: Option<Instant>,
    /// Tries that were left without an answer. Their connections stay open to the end: a server that finds its caller
    /// gone would take it out of the queue, perhaps before the next try has taken its place.
    unanswered: Vec<Try>,
    /// Whether the cluster may have heard of it.
    in_doubt: bool,
    /// Whoever comes next has to wait until this call is over, and taken back.
    turn: Option<OwnedMutexGuard<()>>,
}

/// What is sent, again and again.
#[derive(Clone)]
struct Request {
    what: What,
    wishes: Map<String, Value>,
    /// When the wait is over; for a call that may wait.
    until: Option<Instant>,
    wait: Wait,
    /// How often it was sent.
    sent: u16,
}

/// One try at one server. While it lives the session is renewed there, too.
struct Try {
    core: Arc<Core>,
    server: usize,
    verdict: Pin<Box<dyn Future<Output = Verdict> + Send>>,
}

impl Try {
    fn new(core: &Arc<Core>, server: usize, call: Call) -> Self {
        core.waits[server].fetch_add(1, Ordering::Relaxed);
        let servers = core.servers.clone();
        Self {
            core: core.clone(),
            server,
            verdict: Box::pin(async move { servers.send(server, &call).await }),
        }
    }
}

impl Drop for Try {
    fn drop(&mut self) {
        self.core.waits[self.server].fetch_sub(1, Ordering::Relaxed);
    }
}

impl Request {
    /// The next copy of it, and its number. It waits for what is left of the time.
    fn next(&mut self) -> Call {
        let wait_ms = match (self.wait, self.until) {
            (Wait::Try, _) => Value::from(0),
            (Wait::Forever, None) => Value::Null,
            (_, until) => {
                let left = until.map_or(Duration::ZERO, |until| {
                    until.saturating_duration_since(Instant::now())
                });
                millis(left).into()
            }
        };
        self.wishes.insert("wait_ms".to_owned(), wait_ms);
        self.wishes.insert("retry".to_owned(), self.sent.into());
        self.sent = self.sent.saturating_add(1);
        Call::with(
            Method::POST,
            self.what.path(),
            &Value::Object(self.wishes.clone()),
        )
    }
}

impl Acquire {
    /// For one lock.
    pub(crate) fn one(core: Arc<Core>, lock: &str, options: AcquireOptions) -> Self {
        Self::new(
            core,
            What::One(lock.to_owned()),
            options.wishes,
            options.wait,
            None,
        )
    }

    /// For several.
    pub(crate) fn many(core: Arc<Core>, set: LockSet) -> Self {
        let mut wishes = set.wishes;
        wishes.insert("locks".to_owned(), set.locks.into());
        Self::new(core, What::Many, wishes, set.wait, None)
    }

    /// To hold alone what is held as upgradeable. `turn` is given back when the call is over.
    pub(crate) fn upgrade(core: Arc<Core>, held: &Grant, wait: Wait, turn: OwnedMutexGuard<()>) -> Self {
        let wishes = Map::from_iter([("holder".to_owned(), held.holder.clone().into())]);
        let what = What::Upgrade(held.lock.clone());
        Self::new(core, what, wishes, wait.bounded(), Some(turn))
    }

    fn new(
        core: Arc<Core>,
        what: What,
        mut wishes: Map<String, Value>,
        wait: Wait,
        turn: Option<OwnedMutexGuard<()>>,
    ) -> Self {
        wishes.insert("session".to_owned(), core.id.clone().into());
        wishes.insert("request_id".to_owned(), request_id().into());
        let (now, patience) = (Instant::now(), core.servers.patience.total);
        let (until, give_up_at) = match wait {
            Wait::Try => (None, Some(now + patience)),
            Wait::AtMost(time) => (Some(now + time), Some(now + time + patience)),
            // As long as the session lives.
            Wait::Forever => (None, None),
        };
        Self {
            core,
            request: Request {
                what,
                wishes,
                until,
                wait,
                sent: 0,
            },
            give_up_at,
            unanswered: Vec::new(),
            in_doubt: false,
            turn,
        }
    }

    /// Goes on until there is a definite answer, or no hope of one.
    pub(crate) async fn run(mut self) -> Result<Vec<Grant>, Error> {
        let mut pauses = Pauses::new();
        loop {
            if let Some(loss) = self.core.life.loss() {
                return Err(Error::Lost(loss));
            }
            let why = match self.attempt().await {
                Ok(Verdict::Done(body)) => {
                    let grants = self.request.what.grants(&body)?;
                    self.settle();
                    // A session that is lost holds nothing, whatever was granted to it.
                    return match self.core.life.loss() {
                        None => Ok(grants),
                        Some(loss) => Err(Error::Lost(loss)),
                    };
                }
                // Who calls may have had the right when an earlier try was carried out, and has lost it since.
                Ok(Verdict::Refused(refusal)) if self.in_doubt && refusal.is_of_the_caller() => {
                    return Err(Error::Unknown(refusal.detail));
                }
                Ok(Verdict::Refused(refusal)) => {
                    self.settle();
                    return Err(self.core.refused(refusal.into()));
                }
                Ok(Verdict::NotDone(why) | Verdict::InDoubt(why)) => why,
                Ok(Verdict::Stopped) => return Err(Error::Stopped),
                Err(loss) => return Err(Error::Lost(loss)),
            };
            let pause = pauses.next();
            if self.give_up_at.is_some_and(|at| Instant::now() + pause >= at) {
                return Err(match self.in_doubt {
                    true => Error::Unknown(why),
                    false => Error::Unavailable(why),
                });
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// One try: until it is answered, the server is silent, or the session is lost.
    async fn attempt(&mut self) -> Result<Verdict, Loss> {
        let servers = self.core.servers.clone();
        let server = servers.current();
        let mut suspicions = servers.suspicions(server);
        let give_up_at = self.give_up_at;
        let is_over = async {
            match give_up_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let doubted_before = std::mem::replace(&mut self.in_doubt, true);
        // From now on, dropped or not, the cluster may hear of it.
        let call = self.request.next();
        self.unanswered.push(Try::new(&self.core, server, call));
        let current = self.unanswered.last_mut().expect("it was just pushed");
        let verdict = tokio::select! {
            biased;
            verdict = &mut current.verdict => verdict,
            loss = self.core.life.lost() => return Err(loss),
            // The session's heartbeats go to the servers at which it waits, so a silence is noticed however long the
            // wait is. An error means that the servers are gone, which lives as long as the session.
            _ = suspicions.changed() => {
                servers.turn_away(server);
                return Ok(Verdict::InDoubt("the server is silent".to_owned()));
            }
            () = is_over => return Ok(Verdict::InDoubt("no server has answered in time".to_owned())),
        };
        self.unanswered.pop();
        match &verdict {
            Verdict::NotDone(_) => {
                self.in_doubt = doubted_before;
                servers.turn_away(server);
            }
            Verdict::InDoubt(_) => servers.turn_away(server),
            Verdict::Stopped => {}
            Verdict::Refused(_) => self.in_doubt = doubted_before,
            Verdict::Done(_) => {}
        }
        Ok(verdict)
    }

    /// The cluster has given its answer: there is nothing to take back.
    fn settle(&mut self) {
        self.in_doubt = false;
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if !self.in_doubt || self.core.life.loss().is_some() {
            return;
        }
        let (core, request) = (self.core.clone(), self.request.clone());
        let kept = (std::mem::take(&mut self.unanswered), self.turn.take());
        self.core
            .in_background("withdrawing a cancelled acquire", async move {
                take_back(&core, request).await;
                drop(kept);
            });
    }
}

/// Ends a call whose caller has gone. The same request, sent once more, stands in its place, wherever the earlier copies
/// have come to; as it does not wait, it is answered at once that its time is over, or that it holds what is then released.
async fn take_back(core: &Core, mut request: Request) {
    request.wait = Wait::Try;
    let mut pauses = Pauses::new();
    while core.life.loss().is_none() {
        let (server, call) = (core.servers.current(), request.next());
        let verdict =
            tokio::time::timeout(core.servers.patience.answer, core.servers.send(server, &call)).await;
        match verdict {
            Ok(Verdict::Done(body)) => {
                let undone = match request.what.grants(&body) {
                    Ok(grants) => request.what.undo(core, &grants).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = undone {
                    let path = request.what.path();
                    tracing::warn!(path, %error, "a grant that nobody waited for was not given back");
                }
                return;
            }
            Ok(Verdict::Refused(_) | Verdict::Stopped) => return,
            Ok(Verdict::NotDone(_) | Verdict::InDoubt(_)) | Err(_) => core.servers.turn_away(server),
        }
        tokio::time::sleep(pauses.next()).await;
    }
}

/// Gives one hold back, and tries for as long as the session surely lives; once, if it does not. Returns how many holds are
/// left. However often it is called with one `request_id`, it gives back one hold.
pub(crate) async fn release(core: &Core, grant: &Grant, request_id: &str) -> Result<u32, Error> {
    #[derive(Deserialize)]
    struct Released {
        holds: u32,
    }
    let body = json!({ "session": core.id, "holder": grant.holder, "request_id": request_id });
    let path = format!("/v1/locks/{}/release", encode::segment(&grant.lock));
    let released: Released = while_it_lives(core, &Call::with(Method::POST, path, &body)).await?;
    Ok(released.holds)
}

/// Likewise, one hold of each.
pub(crate) async fn release_many(core: &Core, grants: &[Grant], request_id: &str) -> Result<(), Error> {
    #[derive(Deserialize)]
    struct Answer {
        released: Vec<Released>,
    }
    #[derive(Deserialize)]
    struct Released {
        holds: Option<u32>,
    }
    let holders = grants
        .iter()
        .map(|grant| json!({ "lock": grant.lock, "holder": grant.holder }));
    let holders: Vec<Value> = holders.collect();
    let body = json!({ "session": core.id, "holders": holders, "request_id": request_id });
    let call = Call::with(Method::POST, "/v1/multilock/release".to_owned(), &body);
    let answer: Answer = while_it_lives(core, &call).await?;
    // What was not held any more is passed over, so that the others are given back.
    match answer.released.iter().all(|released| released.holds.is_some()) {
        true => Ok(()),
        false => Err(Error::Lost(Loss::TakenAway)),
    }
}

/// Goes on with fewer rights.
pub(crate) async fn downgrade(core: &Core, grant: &Grant, to: Mode) -> Result<Grant, Error> {
    let mode = match to {
        Mode::Upgradeable => "upgradeable",
        Mode::Shared | Mode::Exclusive | Mode::Semaphore => "shared",
    };
    let body =
        json!({ "session": core.id, "holder": grant.holder, "mode": mode, "request_id": request_id() });
    let path = format!("/v1/locks/{}/downgrade", encode::segment(&grant.lock));
    while_it_lives(core, &Call::with(Method::POST, path, &body)).await
}

/// Sends what concerns a hold, for as long as the session surely lives; once, if it does not.
async fn while_it_lives<T: serde::de::DeserializeOwned>(core: &Core, call: &Call) -> Result<T, Error> {
    let left = match core.life.loss() {
        None => core.ttl,
        Some(_) => Duration::ZERO,
    };
    let answered = core
        .servers
        .call_within(call, left, core.servers.patience.answer)
        .await;
    read(&answered.map_err(|error| core.refused(error))?)
}
