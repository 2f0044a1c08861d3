//! One acquire call, from the first attempt to its end: under one request id, at one server after the other. If it ends without a
//! lock for its caller, it withdraws from the queue and releases a late grant.

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
use crate::http::ApiRequest;
use crate::options::{AcquireOptions, LockSet, Mode, Wait};
use crate::servers::{Outcome, Pauses, read, request_id};
use crate::session_core::Core;

/// Locks of a call.
#[derive(Clone)]
enum Target {
    /// One lock.
    One(String),
    /// The locks in the request body.
    Many,
    /// One lock, which the session holds already.
    Upgrade(String),
}

impl Target {
    fn path(&self) -> String {
        match self {
            Self::One(lock) => format!("/v1/locks/{}/acquire", encode::segment(lock)),
            Self::Many => "/v1/multilock/acquire".to_owned(),
            Self::Upgrade(lock) => format!("/v1/locks/{}/upgrade", encode::segment(lock)),
        }
    }

    /// Returns the grants of an answer, in the order of the request.
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

    /// Releases grants whose caller has been dropped.
    async fn undo(&self, core: &Core, grants: &[Grant]) -> Result<(), Error> {
        match (self, grants) {
            (Self::Upgrade(_), [grant]) => downgrade(core, grant, Mode::Upgradeable).await.map(drop),
            (_, [grant]) => release(core, grant, &request_id()).await.map(drop),
            _ => release_many(core, grants, &request_id()).await,
        }
    }
}

/// One acquire call.
pub(crate) struct Acquire {
    core: Arc<Core>,
    request: Request,
    give_up_at: Option<Instant>,
    /// Attempts without an answer. Their connections stay open until the call ends: a server that sees a closed connection withdraws the
    /// contender, perhaps before the next attempt has taken its place.
    unanswered: Vec<Try>,
    /// `true` if the cluster may have received the call.
    in_doubt: bool,
    /// Blocks the next upgrade or downgrade until this call is over and withdrawn.
    turn: Option<OwnedMutexGuard<()>>,
}

/// Request of all attempts.
#[derive(Clone)]
struct Request {
    what: Target,
    parameters: Map<String, Value>,
    /// End of a bounded wait.
    until: Option<Instant>,
    wait: Wait,
    /// Number of attempts so far.
    sent: u16,
}

/// Attempt at one server. While it exists the session is renewed at that server too.
struct Try {
    core: Arc<Core>,
    server: usize,
    outcome: Pin<Box<dyn Future<Output = Outcome> + Send>>,
}

impl Try {
    fn new(core: &Arc<Core>, server: usize, call: ApiRequest) -> Self {
        core.waits[server].fetch_add(1, Ordering::Relaxed);
        let servers = core.servers.clone();
        Self {
            core: core.clone(),
            server,
            outcome: Box::pin(async move { servers.send(server, &call).await }),
        }
    }
}

impl Drop for Try {
    fn drop(&mut self) {
        self.core.waits[self.server].fetch_sub(1, Ordering::Relaxed);
    }
}

impl Request {
    /// Returns the next copy, with its number. It waits for the remaining time.
    fn next(&mut self) -> ApiRequest {
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
        self.parameters.insert("wait_ms".to_owned(), wait_ms);
        self.parameters.insert("retry".to_owned(), self.sent.into());
        self.sent = self.sent.saturating_add(1);
        ApiRequest::with(
            Method::POST,
            self.what.path(),
            &Value::Object(self.parameters.clone()),
        )
    }
}

impl Acquire {
    /// Call for one lock.
    pub(crate) fn one(core: Arc<Core>, lock: &str, options: AcquireOptions) -> Self {
        Self::new(
            core,
            Target::One(lock.to_owned()),
            options.parameters,
            options.wait,
            None,
        )
    }

    /// Call for several locks.
    pub(crate) fn many(core: Arc<Core>, set: LockSet) -> Self {
        let mut parameters = set.parameters;
        parameters.insert("locks".to_owned(), set.locks.into());
        Self::new(core, Target::Many, parameters, set.wait, None)
    }

    /// Call that makes an upgradeable hold exclusive. `turn` is released when the call is over.
    pub(crate) fn upgrade(core: Arc<Core>, held: &Grant, wait: Wait, turn: OwnedMutexGuard<()>) -> Self {
        let parameters = Map::from_iter([("holder".to_owned(), held.holder.clone().into())]);
        let what = Target::Upgrade(held.lock.clone());
        Self::new(core, what, parameters, wait.bounded(), Some(turn))
    }

    fn new(
        core: Arc<Core>,
        what: Target,
        mut parameters: Map<String, Value>,
        wait: Wait,
        turn: Option<OwnedMutexGuard<()>>,
    ) -> Self {
        parameters.insert("session".to_owned(), core.id.clone().into());
        parameters.insert("request_id".to_owned(), request_id().into());
        let (now, patience) = (Instant::now(), core.servers.patience.total);
        let (until, give_up_at) = match wait {
            Wait::Try => (None, Some(now + patience)),
            Wait::AtMost(time) => (Some(now + time), Some(now + time + patience)),
            // Until the session ends.
            Wait::Forever => (None, None),
        };
        Self {
            core,
            request: Request {
                what,
                parameters,
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

    /// Runs the call until there is a definite answer, or the time is over.
    pub(crate) async fn run(mut self) -> Result<Vec<Grant>, Error> {
        let mut pauses = Pauses::new();
        loop {
            if let Some(loss) = self.core.life.loss() {
                return Err(Error::Lost(loss));
            }
            let why = match self.attempt().await {
                Ok(Outcome::Executed(body)) => {
                    let grants = self.request.what.grants(&body)?;
                    self.settle();
                    // A session that is lost holds nothing, whatever the cluster granted.
                    return match self.core.life.loss() {
                        None => Ok(grants),
                        Some(loss) => Err(Error::Lost(loss)),
                    };
                }
                // The caller may have had the right when an earlier attempt was executed, and may have lost it since.
                Ok(Outcome::Refused(refusal)) if self.in_doubt && refusal.is_of_the_caller() => {
                    return Err(Error::Unknown(refusal.detail));
                }
                Ok(Outcome::Refused(refusal)) => {
                    self.settle();
                    return Err(self.core.refused(refusal.into()));
                }
                Ok(Outcome::NotExecuted(why) | Outcome::Uncertain(why)) => why,
                Ok(Outcome::Stopped) => return Err(Error::Stopped),
                Err(loss) => return Err(Error::Lost(loss)),
            };
            let pause = self.core.servers.pause(&mut pauses);
            if self.give_up_at.is_some_and(|at| Instant::now() + pause >= at) {
                return Err(match self.in_doubt {
                    true => Error::Unknown(why),
                    false => Error::Unavailable(why),
                });
            }
            self.core.servers.pause_before_retry(pause).await;
        }
    }

    /// Makes one attempt: until the server answers or is suspected, or the session is lost.
    async fn attempt(&mut self) -> Result<Outcome, Loss> {
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
        // The cluster may receive the call from now on, even if this future is dropped.
        let call = self.request.next();
        self.unanswered.push(Try::new(&self.core, server, call));
        let current = self.unanswered.last_mut().expect("it was just pushed");
        let outcome = tokio::select! {
            biased;
            outcome = &mut current.outcome => outcome,
            loss = self.core.life.lost() => return Err(loss),
            // Heartbeats go to every server at which the session waits, so a server without answers is suspected however long the wait
            // is. An error means that the servers are gone, and they live as long as the session.
            _ = suspicions.changed() => {
                servers.turn_away(server);
                return Ok(Outcome::Uncertain("the server is silent".to_owned()));
            }
            () = is_over => return Ok(Outcome::Uncertain("no server has answered in time".to_owned())),
        };
        self.unanswered.pop();
        match &outcome {
            Outcome::NotExecuted(_) => {
                self.in_doubt = doubted_before;
                servers.turn_away(server);
            }
            Outcome::Uncertain(_) => servers.turn_away(server),
            Outcome::Stopped => {}
            Outcome::Refused(_) => self.in_doubt = doubted_before,
            Outcome::Executed(_) => {}
        }
        Ok(outcome)
    }

    /// Records that the answer is definite: there is nothing to withdraw.
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

/// Withdraws a call whose caller was dropped. The same request is sent once more without a wait. The cluster answers it in place
/// of the earlier copies: either the wait is over, or there is a grant, which is released.
async fn take_back(core: &Core, mut request: Request) {
    request.wait = Wait::Try;
    let mut pauses = Pauses::new();
    while core.life.loss().is_none() {
        let (server, call) = (core.servers.current(), request.next());
        let outcome =
            tokio::time::timeout(core.servers.patience.answer, core.servers.send(server, &call)).await;
        match outcome {
            Ok(Outcome::Executed(body)) => {
                let undone = match request.what.grants(&body) {
                    Ok(grants) => request.what.undo(core, &grants).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = undone {
                    let path = request.what.path();
                    tracing::warn!(path, %error, "the client could not release a grant of a cancelled call");
                }
                return;
            }
            Ok(Outcome::Refused(_) | Outcome::Stopped) => return,
            Ok(Outcome::NotExecuted(_) | Outcome::Uncertain(_)) | Err(_) => core.servers.turn_away(server),
        }
        tokio::time::sleep(core.servers.pause(&mut pauses)).await;
    }
}

/// Releases one hold. Retries while the session surely lives; sends once otherwise. Returns the number of holds that are left.
/// Calls with the same `request_id` release one hold in total.
pub(crate) async fn release(core: &Core, grant: &Grant, request_id: &str) -> Result<u32, Error> {
    #[derive(Deserialize)]
    struct Released {
        holds: u32,
    }
    let body = json!({ "session": core.id, "holder": grant.holder, "request_id": request_id });
    let path = format!("/v1/locks/{}/release", encode::segment(&grant.lock));
    let released: Released = while_it_lives(core, &ApiRequest::with(Method::POST, path, &body)).await?;
    Ok(released.holds)
}

/// Releases one hold of each lock.
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
    let call = ApiRequest::with(Method::POST, "/v1/multilock/release".to_owned(), &body);
    let answer: Answer = while_it_lives(core, &call).await?;
    // The cluster skips holds that are lost, so that the others are released.
    match answer.released.iter().all(|released| released.holds.is_some()) {
        true => Ok(()),
        false => Err(Error::Lost(Loss::TakenAway)),
    }
}

/// Downgrades a hold.
pub(crate) async fn downgrade(core: &Core, grant: &Grant, to: Mode) -> Result<Grant, Error> {
    let body = json!({ "session": core.id, "holder": grant.holder, "mode": to, "request_id": request_id() });
    let path = format!("/v1/locks/{}/downgrade", encode::segment(&grant.lock));
    while_it_lives(core, &ApiRequest::with(Method::POST, path, &body)).await
}

/// Sends a request about a hold. Retries while the session surely lives; sends once otherwise.
async fn while_it_lives<T: serde::de::DeserializeOwned>(core: &Core, call: &ApiRequest) -> Result<T, Error> {
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
