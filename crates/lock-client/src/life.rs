//! Life of one session: its deadline, its state, and the locks of its guards. It sends no requests; `heartbeat.rs` does.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::clock::BootInstant;
use crate::deadline::{Margin, doubtful_from};
use crate::error::Loss;
use crate::fencing_token::FencingToken;
use crate::grant::Grant;
use crate::options::{AcquireOptions, Mode};
use crate::stats::Counts;

/// Maximum number of remembered losses, for grants and releases that are still on their way. More calls are never that late at once.
const MAX_GONE: usize = 256;

/// Maximum time to wait for the event that explains a loss, after an answer has shown the loss without its reason.
pub(crate) const TOLD_WITHIN: Duration = Duration::from_millis(500);

/// State of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionState {
    /// A heartbeat was confirmed recently.
    Confirmed,
    /// No heartbeat was confirmed for half of the TTL. The session lives, but will be lost unless a server confirms one soon.
    Uncertain,
    /// The session is lost, or may be: other sessions may hold its locks. This state is final.
    Lost(Loss),
}

/// Request of another caller that a holder release its lock.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ReleaseRequest {
    /// Identity of the caller, as far as the cluster knows it: an address.
    pub by: String,
    /// Reason that it gave.
    pub reason: String,
    /// Time of the request (RFC 3339).
    pub requested_at: String,
}

/// Release request in the answer to a heartbeat.
#[derive(Debug, Deserialize)]
pub(crate) struct RequestedRelease {
    holder: String,
    #[serde(flatten)]
    request: ReleaseRequest,
}

impl RequestedRelease {
    /// Returns the contender whose lock is requested.
    pub(crate) fn holder(&self) -> &str {
        &self.holder
    }

    /// Returns the request.
    pub(crate) fn release_request(&self) -> &ReleaseRequest {
        &self.request
    }
}

/// Current mode and fencing token of a holder. All guards of one holder share it, because the cluster grants and changes re-entered
/// holds together.
#[derive(Debug)]
pub(crate) struct Hold {
    now: Mutex<(Mode, FencingToken)>,
    /// Serializes upgrades and downgrades.
    pub(crate) turns: Arc<tokio::sync::Mutex<()>>,
}

impl Hold {
    fn new(grant: &Grant) -> Self {
        Self {
            now: Mutex::new((grant.mode, grant.fencing_token)),
            turns: Arc::default(),
        }
    }

    /// Returns the mode and the fencing token.
    pub(crate) fn now(&self) -> (Mode, FencingToken) {
        *self.now.lock()
    }

    /// Records the mode and the fencing token.
    pub(crate) fn set(&self, mode: Mode, token: FencingToken) {
        *self.now.lock() = (mode, token);
    }
}

/// State of a new guard.
#[derive(Debug)]
pub(crate) struct Entered {
    /// Number among the session's guards.
    pub(crate) number: u64,
    pub(crate) hold: Arc<Hold>,
    /// Notifies of the loss.
    pub(crate) lost: watch::Receiver<Option<Loss>>,
    /// Notifies of release requests.
    pub(crate) asked: watch::Receiver<Option<ReleaseRequest>>,
}

/// Life of one session.
#[derive(Debug)]
pub(crate) struct Life {
    /// Id of the session, for the log.
    session: String,
    margin: Margin,
    counts: Arc<Counts>,
    facts: Mutex<Facts>,
    state: watch::Sender<SessionState>,
    /// Fencing token of the first lock that was granted.
    first_token: watch::Sender<Option<FencingToken>>,
    /// `true` while the event stream is open.
    is_followed: AtomicBool,
    /// Number of entries ever added to `gone`.
    gone_count: watch::Sender<u64>,
}

#[derive(Debug)]
struct Facts {
    /// Time at which the last confirmed heartbeat was sent.
    confirmed: BootInstant,
    ttl: Duration,
    lost: Option<Loss>,
    /// Live guards, by number.
    guards: HashMap<u64, Held>,
    next_guard: u64,
    /// Holders that have lost their locks recently: a grant or a release of theirs may still be on its way.
    gone: VecDeque<(String, Loss)>,
}

#[derive(Debug)]
struct Held {
    lock: String,
    /// Owner that the call named.
    owner: Option<String>,
    holder: String,
    since: BootInstant,
    /// Time of a release request that arrived otherwise than with a heartbeat.
    told: Option<BootInstant>,
    hold: Arc<Hold>,
    lost: watch::Sender<Option<Loss>>,
    asked: watch::Sender<Option<ReleaseRequest>>,
}

impl Held {
    /// Returns whether the lock was granted before the question of `asked`, and is missing in the answer.
    fn is_missing(&self, asked: BootInstant, holders: &[&str]) -> bool {
        self.since < asked && !holders.contains(&self.holder.as_str())
    }

    /// Notifies the guard that it has lost its lock, while the session lives.
    fn lose(&self, life: &Life, loss: &Loss) {
        life.counts.add_losses(loss, 1);
        let session = &life.session;
        tracing::warn!(session, lock = self.lock, holder = self.holder, why = %loss, "a lock is lost");
        self.lost.send_replace(Some(loss.clone()));
    }

    fn ask(&self, asked: Option<&ReleaseRequest>) {
        self.asked.send_if_modified(|known| {
            let news = known.as_ref() != asked;
            *known = asked.cloned();
            news
        });
    }
}

impl Life {
    /// Life of a session whose first request was sent at `sent`.
    pub(crate) fn new(
        session: &str,
        sent: BootInstant,
        ttl: Duration,
        margin: Margin,
        counts: Arc<Counts>,
    ) -> Self {
        let facts = Facts {
            confirmed: sent,
            ttl,
            lost: None,
            guards: HashMap::new(),
            next_guard: 0,
            gone: VecDeque::new(),
        };
        Self {
            session: session.to_owned(),
            margin,
            counts,
            facts: Mutex::new(facts),
            state: watch::Sender::new(SessionState::Confirmed),
            first_token: watch::Sender::new(None),
            is_followed: AtomicBool::new(false),
            gone_count: watch::Sender::new(0),
        }
    }

    /// Returns the end of the time in which the session surely lives.
    pub(crate) fn valid_until(&self) -> BootInstant {
        let facts = self.facts.lock();
        self.margin.valid_until(facts.confirmed, facts.ttl)
    }

    /// Returns the moment from which the session is uncertain.
    pub(crate) fn doubtful_from(&self) -> BootInstant {
        let facts = self.facts.lock();
        doubtful_from(facts.confirmed, facts.ttl)
    }

    /// Records a confirmed heartbeat that was sent at `sent`. A lost session stays lost, because its guards have reported it.
    pub(crate) fn confirm(&self, sent: BootInstant, ttl: Duration) {
        {
            let mut facts = self.facts.lock();
            if facts.lost.is_some() || sent < facts.confirmed {
                return;
            }
            (facts.confirmed, facts.ttl) = (sent, ttl);
        }
        self.refresh();
    }

    /// Reads the clock, and reports a changed state.
    pub(crate) fn refresh(&self) -> SessionState {
        let (now, valid_until, doubtful) = (BootInstant::now(), self.valid_until(), self.doubtful_from());
        if now >= valid_until {
            self.lose(Loss::NoHeartbeat);
        }
        let lost = self.facts.lock().lost.clone();
        let state = match lost {
            Some(loss) => SessionState::Lost(loss),
            None if now >= doubtful => SessionState::Uncertain,
            None => SessionState::Confirmed,
        };
        self.state.send_if_modified(|known| {
            let news = *known != state && !matches!(known, SessionState::Lost(_));
            if news {
                *known = state.clone();
            }
            news
        });
        state
    }

    /// Returns why the session is lost, as of this moment. The clock decides, whether or not a task has noticed.
    pub(crate) fn loss(&self) -> Option<Loss> {
        match self.refresh() {
            SessionState::Lost(loss) => Some(loss),
            SessionState::Confirmed | SessionState::Uncertain => None,
        }
    }

    /// Marks the session as lost, unless it is lost already.
    pub(crate) fn lose(&self, loss: Loss) {
        let guards = {
            let mut facts = self.facts.lock();
            if facts.lost.is_some() {
                return;
            }
            facts.lost = Some(loss.clone());
            std::mem::take(&mut facts.guards)
        };
        if !loss.is_own_will() {
            let locks: Vec<_> = guards.values().map(|held| held.lock.as_str()).collect();
            tracing::warn!(session = self.session, why = %loss, ?locks, "a session is lost, with all its locks");
        }
        self.counts.add_losses(&loss, guards.len());
        self.state.send_replace(SessionState::Lost(loss.clone()));
        for held in guards.into_values() {
            held.lost.send_replace(Some(loss.clone()));
        }
    }

    /// Returns a receiver of state changes.
    pub(crate) fn state(&self) -> watch::Receiver<SessionState> {
        self.state.subscribe()
    }

    /// Waits until the session is lost. Depends on no other task, because the heartbeat task may be late, or gone with its runtime.
    pub(crate) async fn lost(&self) -> Loss {
        let mut state = self.state();
        loop {
            // The clock decides, and this caller may be the first to run after a pause.
            if let Some(loss) = self.loss() {
                return loss;
            }
            let told = async {
                let lost = state.wait_for(|state| matches!(state, SessionState::Lost(_)));
                lost.await.map(drop).expect("the sender lives as long as this");
            };
            tokio::select! {
                () = told => {}
                () = sleep_until(self.valid_until()) => {}
            }
        }
    }

    /// Returns why one of these holders, whose guards were released, has lost its lock, according to the event stream.
    pub(crate) async fn why_gone<'h>(&self, holders: impl IntoIterator<Item = &'h str>) -> Loss {
        let holders: Vec<_> = holders.into_iter().collect();
        let known = || {
            let facts = self.facts.lock();
            let gone = facts
                .gone
                .iter()
                .find(|(name, _)| holders.contains(&name.as_str()));
            gone.map(|(_, loss)| loss.clone())
        };
        let told = async {
            let mut count = self.gone_count.subscribe();
            loop {
                if let Some(loss) = known() {
                    return loss;
                }
                count.changed().await.expect("the sender lives as long as this");
            }
        };
        let patience = if self.is_followed() {
            TOLD_WITHIN
        } else {
            Duration::ZERO
        };
        tokio::time::timeout(patience, told)
            .await
            .unwrap_or(Loss::TakenAway)
    }

    /// Adds a guard for a granted lock.
    pub(crate) fn enter(&self, grant: &Grant) -> Entered {
        let mut facts = self.facts.lock();
        let gone = facts.gone.iter().find(|(holder, _)| *holder == grant.holder);
        let loss = facts.lost.clone().or_else(|| gone.map(|(_, loss)| loss.clone()));
        let (lost, told) = watch::channel(loss);
        // The state of other guards of the holder is newer than a grant that may have been delayed.
        let same = facts.guards.values().find(|held| held.holder == grant.holder);
        let (hold, asked) = match same {
            Some(held) => (held.hold.clone(), held.asked.borrow().clone()),
            None => (Arc::new(Hold::new(grant)), None),
        };
        let (asked, is_asked) = watch::channel(asked);
        let number = facts.next_guard;
        facts.next_guard += 1;
        let held = Held {
            lock: grant.lock.clone(),
            owner: grant.owner.clone(),
            holder: grant.holder.clone(),
            since: BootInstant::now(),
            told: None,
            hold: hold.clone(),
            lost,
            asked,
        };
        facts.guards.insert(number, held);
        self.first_token
            .send_if_modified(|first| first.replace(first.unwrap_or(grant.fencing_token)).is_none());
        Entered {
            number,
            hold,
            lost: told,
            asked: is_asked,
        }
    }

    /// Returns whether the event stream is open.
    pub(crate) fn is_followed(&self) -> bool {
        self.is_followed.load(Ordering::Relaxed)
    }

    /// Records whether the event stream is open.
    pub(crate) fn set_followed(&self, is_followed: bool) {
        self.is_followed.store(is_followed, Ordering::Relaxed);
    }

    /// Waits for the first grant. Returns its fencing token.
    pub(crate) async fn first_token(&self) -> FencingToken {
        let mut first = self.first_token.subscribe();
        let first = first.wait_for(Option::is_some).await;
        first
            .expect("the sender lives as long as this")
            .expect("it was waited for")
    }

    /// Applies the release requests in the answer to a heartbeat that was sent at `sent`: these holders have an unanswered one, and no
    /// others.
    pub(crate) fn note_release_requests(&self, sent: BootInstant, all: &[RequestedRelease]) {
        for held in self.facts.lock().guards.values() {
            let asked = all.iter().find(|asked| asked.holder == held.holder);
            // A request that arrived meanwhile is newer.
            if asked.is_none() && held.told.is_some_and(|told| told >= sent) {
                continue;
            }
            held.ask(asked.map(|asked| &asked.request));
        }
    }

    /// Records a release request.
    pub(crate) fn release_is_requested(&self, holder: &str, request: &ReleaseRequest) {
        let mut facts = self.facts.lock();
        for held in facts.guards.values_mut().filter(|held| held.holder == holder) {
            held.told = Some(BootInstant::now());
            held.ask(Some(request));
        }
    }

    /// Removes a guard whose lock is released.
    pub(crate) fn leave(&self, guard: u64) {
        self.facts.lock().guards.remove(&guard);
    }

    /// Records that a holder has lost its lock. All its guards lose it, and guards of delayed grants too.
    pub(crate) fn lose_holder(&self, holder: &str, loss: &Loss) {
        {
            let mut facts = self.facts.lock();
            facts.guards.retain(|_, held| {
                let stays = held.holder != holder;
                if !stays {
                    held.lose(self, loss);
                }
                stays
            });
            facts.gone.push_back((holder.to_owned(), loss.clone()));
            if facts.gone.len() > MAX_GONE {
                facts.gone.pop_front();
            }
        }
        self.gone_count.send_modify(|count| *count += 1);
    }

    /// Applies the state at log position `zxid`, at which the session had exactly these contenders. Guards of others that were granted
    /// before have lost their locks.
    pub(crate) fn holds_at(&self, zxid: u64, holders: &[&str]) {
        self.facts.lock().guards.retain(|_, held| {
            let stays = held.hold.now().1.0 > zxid || holders.contains(&held.holder.as_str());
            if !stays {
                held.lose(self, &Loss::TakenAway);
            }
            stays
        });
    }

    /// Returns whether an acquire would wait for a guard of its own owner.
    pub(crate) fn would_wait_for_itself(&self, lock: &str, options: &AcquireOptions) -> bool {
        let Some(owner) = options.waiting_owner() else {
            return false;
        };
        let facts = self.facts.lock();
        let mut own = facts
            .guards
            .values()
            .filter(|held| held.lock == lock && held.owner.as_deref() == Some(owner));
        own.any(|held| options.excludes(held.hold.now().0))
    }

    /// Returns whether there are guards.
    pub(crate) fn holds_any(&self) -> bool {
        !self.facts.lock().guards.is_empty()
    }

    /// Returns whether [`Life::holds_only`] would find a lost lock.
    pub(crate) fn misses_any(&self, asked: BootInstant, holders: &[&str]) -> bool {
        let facts = self.facts.lock();
        facts.guards.values().any(|held| held.is_missing(asked, holders))
    }

    /// Applies the answer to the question of `asked`: the session holds exactly these. Guards of others have lost their locks.
    pub(crate) fn holds_only(&self, asked: BootInstant, holders: &[&str]) {
        let mut facts = self.facts.lock();
        facts.guards.retain(|_, held| {
            let stays = !held.is_missing(asked, holders);
            if !stays {
                held.lose(self, &Loss::TakenAway);
            }
            stays
        });
    }
}

/// Sleeps on the clock of the caller's runtime, which does not count suspend: check the other clock afterwards. After a suspend the
/// heartbeat task wakes in time. Without a runtime only that task reports the loss.
async fn sleep_until(at: BootInstant) {
    match Handle::try_current() {
        Ok(_) => tokio::time::sleep(at - BootInstant::now()).await,
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(ttl_ms: u64) -> Life {
        let margin = Margin {
            clock_rate_per_mille: 0,
            notice: Duration::ZERO,
        };
        Life::new(
            "session",
            BootInstant::now(),
            Duration::from_millis(ttl_ms),
            margin,
            Arc::default(),
        )
    }

    fn grant(holder: &str) -> Grant {
        Grant {
            lock: "job".to_owned(),
            mode: Mode::Exclusive,
            holder: holder.to_owned(),
            fencing_token: FencingToken(7),
            holds: 1,
            permits: 1,
            owner: None,
        }
    }

    #[test]
    fn the_clock_alone_ends_it_and_nothing_brings_it_back() {
        let sent = BootInstant::now();
        let life = life(1);
        let guard = life.enter(&grant("a")).lost;
        while !life.valid_until().has_passed() {}
        assert_eq!(life.loss(), Some(Loss::NoHeartbeat));
        assert_eq!(*guard.borrow(), Some(Loss::NoHeartbeat));
        life.confirm(sent + Duration::from_secs(1), Duration::from_secs(60));
        life.lose(Loss::Expired);
        assert_eq!(life.loss(), Some(Loss::NoHeartbeat));
        let late = life.enter(&grant("b")).lost;
        assert_eq!(*late.borrow(), Some(Loss::NoHeartbeat));
    }

    #[test]
    fn an_older_confirmation_shortens_nothing() {
        let life = life(60_000);
        let earlier = BootInstant::now();
        let before = life.valid_until();
        while BootInstant::now() == earlier {}
        let now = BootInstant::now();
        life.confirm(now, Duration::from_secs(60));
        let after = life.valid_until();
        assert!(after >= before);
        // Sent earlier, and answered later.
        life.confirm(earlier, Duration::from_secs(60));
        assert_eq!(life.valid_until(), after);
    }

    #[test]
    fn a_guard_that_the_cluster_does_not_know_has_lost_its_lock() {
        let life = life(60_000);
        let (kept, broken) = (life.enter(&grant("kept")).lost, life.enter(&grant("broken")).lost);
        let Entered {
            number,
            lost: released,
            ..
        } = life.enter(&grant("released"));
        life.leave(number);
        let asked = BootInstant::now();
        let new = life
            .enter(&grant("granted while the question was on its way"))
            .lost;
        life.holds_only(asked, &["kept"]);
        assert_eq!(*broken.borrow(), Some(Loss::TakenAway));
        for guard in [kept, new, released] {
            assert_eq!(*guard.borrow(), None);
        }
        assert_eq!(life.loss(), None);
    }

    #[test]
    fn loss_of_a_holder_reaches_its_guards_and_late_grants() {
        let broken = Loss::Broken {
            by: Some("ip:1.2.3.4".into()),
            reason: "stuck".into(),
        };
        let life = life(60_000);
        let (outer, inner, other) = (
            life.enter(&grant("a")),
            life.enter(&grant("a")),
            life.enter(&grant("b")),
        );
        life.lose_holder("a", &broken);
        life.lose_holder("late", &broken);
        let late = life.enter(&grant("late"));
        for lost in [outer.lost, inner.lost, late.lost] {
            assert_eq!(*lost.borrow(), Some(broken.clone()));
        }
        assert_eq!(*other.lost.borrow(), None);
        for number in 0..=MAX_GONE {
            life.lose_holder(&number.to_string(), &broken);
        }
        assert_eq!(
            *life.enter(&grant("late")).lost.borrow(),
            None,
            "memory is bounded"
        );
    }

    #[test]
    fn state_event_does_not_concern_later_grants() {
        let life = life(60_000);
        let at = |holder, token| Grant {
            fencing_token: FencingToken(token),
            ..grant(holder)
        };
        let (kept, gone, new) = (
            life.enter(&at("kept", 5)),
            life.enter(&at("gone", 5)),
            life.enter(&at("new", 6)),
        );
        life.holds_at(5, &["kept"]);
        assert_eq!(*gone.lost.borrow(), Some(Loss::TakenAway));
        for guard in [kept, new] {
            assert_eq!(*guard.lost.borrow(), None);
        }
    }

    #[test]
    fn a_heartbeat_from_before_does_not_take_a_request_back() {
        let life = life(60_000);
        let guard = life.enter(&grant("a"));
        let request = ReleaseRequest {
            by: "x".into(),
            reason: "y".into(),
            requested_at: "z".into(),
        };
        let sent = BootInstant::now();
        life.release_is_requested("a", &request);
        life.note_release_requests(sent, &[]);
        assert_eq!(*guard.asked.borrow(), Some(request));
        while BootInstant::now() == sent {}
        life.note_release_requests(BootInstant::now() + Duration::from_secs(1), &[]);
        assert_eq!(*guard.asked.borrow(), None);
    }

    #[test]
    fn guards_of_one_holder_share_what_is_granted_and_asked_of_it() {
        let life = life(60_000);
        let (outer, other) = (life.enter(&grant("a")), life.enter(&grant("b")));
        outer.hold.set(Mode::Shared, FencingToken(7));
        let text = r#"[{"lock": "job", "holder": "a", "by": "x", "reason": "y", "requested_at": "z"}]"#;
        let asked: Vec<RequestedRelease> = serde_json::from_str(text).unwrap();
        life.note_release_requests(BootInstant::now(), &asked);
        let inner = life.enter(&grant("a"));
        assert_eq!(
            (inner.hold.now(), other.hold.now()),
            (
                (Mode::Shared, FencingToken(7)),
                (Mode::Exclusive, FencingToken(7))
            )
        );
        for asked in [&outer.asked, &inner.asked] {
            assert_eq!(asked.borrow().as_ref().map(|asked| &*asked.reason), Some("y"));
        }
        assert_eq!(*other.asked.borrow(), None);
        life.note_release_requests(BootInstant::now(), &[]);
        assert_eq!(*outer.asked.borrow(), None);
    }
}
