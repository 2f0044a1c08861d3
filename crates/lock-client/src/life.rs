//! What is known of one session's life, and who is told of its end. It sends nothing; `heartbeat.rs` does.

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
use crate::grant::Grant;
use crate::options::{AcquireOptions, Mode};

/// So many losses are kept for grants that may still be on their way: more calls are hardly answered so late at once.
const MAX_GONE: usize = 256;

/// Maximum time for a loss that was found by a question or a refusal to be explained by the session's events, which also say how it
/// happened and by whom.
pub(crate) const TOLD_WITHIN: Duration = Duration::from_millis(500);

/// How sure it is that a session lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// A heartbeat was confirmed lately.
    Sure,
    /// None was for half of the session's time. It lives, but it will be lost unless a server confirms one soon.
    Uncertain,
    /// It is lost, or may be: somebody else may hold its locks. It does not come back.
    Lost(Loss),
}

/// Somebody asks a holder to give its lock up.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Revocation {
    /// Who asks, as far as the cluster knows: an address.
    pub by: String,
    /// Why.
    pub reason: String,
    /// Since when (RFC 3339).
    pub requested_at: String,
}

/// What a heartbeat's answer says of one holder.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    holder: String,
    #[serde(flatten)]
    revocation: Revocation,
}

impl Asked {
    /// Whose it is.
    pub(crate) fn holder(&self) -> &str {
        &self.holder
    }

    /// What is asked.
    pub(crate) fn revocation(&self) -> &Revocation {
        &self.revocation
    }
}

/// How a lock is held just now. All guards of one holder share it: re-entries are granted together, up and down.
#[derive(Debug)]
pub(crate) struct Hold {
    now: Mutex<(Mode, u64)>,
    /// Whose turn it is to change it.
    pub(crate) turns: Arc<tokio::sync::Mutex<()>>,
}

impl Hold {
    fn new(grant: &Grant) -> Self {
        Self {
            now: Mutex::new((grant.mode, grant.fencing_token)),
            turns: Arc::default(),
        }
    }

    /// The mode and the token.
    pub(crate) fn now(&self) -> (Mode, u64) {
        *self.now.lock()
    }

    /// From now on it is held so.
    pub(crate) fn set(&self, mode: Mode, token: u64) {
        *self.now.lock() = (mode, token);
    }
}

/// A guard has been made; what it needs to know.
#[derive(Debug)]
pub(crate) struct Entered {
    /// Which of the session's guards it is.
    pub(crate) number: u64,
    pub(crate) hold: Arc<Hold>,
    /// Tells when it is lost.
    pub(crate) lost: watch::Receiver<Option<Loss>>,
    /// Tells when it is asked for.
    pub(crate) asked: watch::Receiver<Option<Revocation>>,
}

/// One session's life.
#[derive(Debug)]
pub(crate) struct Life {
    /// Id of the session, for the log.
    session: String,
    margin: Margin,
    facts: Mutex<Facts>,
    standing: watch::Sender<Standing>,
    /// The token of the first lock that was granted.
    first_token: watch::Sender<Option<u64>>,
    /// Whether what happens to the session is heard as it happens.
    is_followed: AtomicBool,
    /// Counts the holders in `gone`.
    gone_count: watch::Sender<u64>,
}

#[derive(Debug)]
struct Facts {
    /// When the last confirmed heartbeat was sent.
    confirmed: BootInstant,
    ttl: Duration,
    lost: Option<Loss>,
    /// Guards that live, by a number of their own.
    guards: HashMap<u64, Held>,
    next_guard: u64,
    /// Holders that have lost their locks lately: the grant may still be on its way, or a release.
    gone: VecDeque<(String, Loss)>,
}

#[derive(Debug)]
struct Held {
    lock: String,
    /// The owner that was named.
    owner: Option<String>,
    holder: String,
    since: BootInstant,
    /// When it was told that it is asked for, other than by a heartbeat's answer.
    told: Option<BootInstant>,
    hold: Arc<Hold>,
    lost: watch::Sender<Option<Loss>>,
    asked: watch::Sender<Option<Revocation>>,
}

impl Held {
    /// Whether it was held before that was asked, and is not among those who hold.
    fn is_missing(&self, asked: BootInstant, holders: &[&str]) -> bool {
        self.since < asked && !holders.contains(&self.holder.as_str())
    }

    /// Notifies the guard that it has lost its lock, while the session lives.
    fn lose(&self, session: &str, loss: &Loss) {
        tracing::warn!(session, lock = self.lock, holder = self.holder, why = %loss, "a lock is lost");
        self.lost.send_replace(Some(loss.clone()));
    }

    fn ask(&self, asked: Option<&Revocation>) {
        self.asked.send_if_modified(|known| {
            let news = known.as_ref() != asked;
            *known = asked.cloned();
            news
        });
    }
}

impl Life {
    /// Of a session that was asked for at `sent`.
    pub(crate) fn new(session: &str, sent: BootInstant, ttl: Duration, margin: Margin) -> Self {
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
            facts: Mutex::new(facts),
            standing: watch::Sender::new(Standing::Sure),
            first_token: watch::Sender::new(None),
            is_followed: AtomicBool::new(false),
            gone_count: watch::Sender::new(0),
        }
    }

    /// Until when it surely lives.
    pub(crate) fn valid_until(&self) -> BootInstant {
        let facts = self.facts.lock();
        self.margin.valid_until(facts.confirmed, facts.ttl)
    }

    /// From when on it is uncertain.
    pub(crate) fn doubtful_from(&self) -> BootInstant {
        let facts = self.facts.lock();
        doubtful_from(facts.confirmed, facts.ttl)
    }

    /// A heartbeat that was sent at `sent` is confirmed for `ttl`. What is lost stays lost: its guards have said so.
    pub(crate) fn confirm(&self, sent: BootInstant, ttl: Duration) {
        {
            let mut facts = self.facts.lock();
            if facts.lost.is_some() || sent < facts.confirmed {
                return;
            }
            (facts.confirmed, facts.ttl) = (sent, ttl);
        }
        self.look();
    }

    /// Looks at the clock, and tells what has changed by that.
    pub(crate) fn look(&self) -> Standing {
        let (now, valid_until, doubtful) = (BootInstant::now(), self.valid_until(), self.doubtful_from());
        if now >= valid_until {
            self.lose(Loss::NoHeartbeat);
        }
        let lost = self.facts.lock().lost.clone();
        let standing = match lost {
            Some(loss) => Standing::Lost(loss),
            None if now >= doubtful => Standing::Uncertain,
            None => Standing::Sure,
        };
        self.standing.send_if_modified(|known| {
            let news = *known != standing && !matches!(known, Standing::Lost(_));
            if news {
                *known = standing.clone();
            }
            news
        });
        standing
    }

    /// Why it is lost, as of this very moment: the clock decides, not whether a task has noticed.
    pub(crate) fn loss(&self) -> Option<Loss> {
        match self.look() {
            Standing::Lost(loss) => Some(loss),
            Standing::Sure | Standing::Uncertain => None,
        }
    }

    /// It is lost, unless it was before.
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
        self.standing.send_replace(Standing::Lost(loss.clone()));
        for held in guards.into_values() {
            held.lost.send_replace(Some(loss.clone()));
        }
    }

    /// Tells of every change.
    pub(crate) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Waits until it is lost. It depends on no other task: the one that renews the session may be late, or gone with its runtime.
    pub(crate) async fn lost(&self) -> Loss {
        let mut standing = self.standing();
        loop {
            // The clock decides, and the caller may be the first to run again.
            if let Some(loss) = self.loss() {
                return loss;
            }
            let told = async {
                let lost = standing.wait_for(|standing| matches!(standing, Standing::Lost(_)));
                lost.await.map(drop).expect("the sender lives as long as this");
            };
            tokio::select! {
                () = told => {}
                () = sleep_until(self.valid_until()) => {}
            }
        }
    }

    /// Why one of these holders has lost its lock, whose guards have left: as the session's events say, if they are followed.
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

    /// A lock is held from now on.
    pub(crate) fn enter(&self, grant: &Grant) -> Entered {
        let mut facts = self.facts.lock();
        let gone = facts.gone.iter().find(|(holder, _)| *holder == grant.holder);
        let loss = facts.lost.clone().or_else(|| gone.map(|(_, loss)| loss.clone()));
        let (lost, told) = watch::channel(loss);
        // What others of the same holder know is newer than a grant that was perhaps held up on its way.
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

    /// Whether what happens to the session is heard as it happens.
    pub(crate) fn is_followed(&self) -> bool {
        self.is_followed.load(Ordering::Relaxed)
    }

    /// From now on it is, or is not.
    pub(crate) fn set_followed(&self, is_followed: bool) {
        self.is_followed.store(is_followed, Ordering::Relaxed);
    }

    /// Waits until a lock was granted; its token.
    pub(crate) async fn first_token(&self) -> u64 {
        let mut first = self.first_token.subscribe();
        let first = first.wait_for(Option::is_some).await;
        first
            .expect("the sender lives as long as this")
            .expect("it was waited for")
    }

    /// Who asked at `sent` was told that these are asked to give their locks up and have not answered, and nobody else.
    pub(crate) fn asked(&self, sent: BootInstant, all: &[Asked]) {
        for held in self.facts.lock().guards.values() {
            let asked = all.iter().find(|asked| asked.holder == held.holder);
            // What was told meanwhile is newer.
            if asked.is_none() && held.told.is_some_and(|told| told >= sent) {
                continue;
            }
            held.ask(asked.map(|asked| &asked.revocation));
        }
    }

    /// A holder is asked to give its lock up.
    pub(crate) fn is_asked(&self, holder: &str, revocation: &Revocation) {
        let mut facts = self.facts.lock();
        for held in facts.guards.values_mut().filter(|held| held.holder == holder) {
            held.told = Some(BootInstant::now());
            held.ask(Some(revocation));
        }
    }

    /// It is not held any more, by its holder's own will.
    pub(crate) fn leave(&self, guard: u64) {
        self.facts.lock().guards.remove(&guard);
    }

    /// A holder has lost its lock; so have all guards of it, and those that come later.
    pub(crate) fn lose_holder(&self, holder: &str, loss: &Loss) {
        {
            let mut facts = self.facts.lock();
            facts.guards.retain(|_, held| {
                let stays = held.holder != holder;
                if !stays {
                    held.lose(&self.session, loss);
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

    /// At position `zxid` the session had these contenders, holding or waiting, and no others. Guards of others that were granted
    /// before have lost their locks.
    pub(crate) fn stands_at(&self, zxid: u64, holders: &[&str]) {
        self.facts.lock().guards.retain(|_, held| {
            let stays = held.hold.now().1 > zxid || holders.contains(&held.holder.as_str());
            if !stays {
                held.lose(&self.session, &Loss::TakenAway);
            }
            stays
        });
    }

    /// Whether an acquire would wait for a guard of its own owner.
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

    /// Whether any lock is held.
    pub(crate) fn holds_any(&self) -> bool {
        !self.facts.lock().guards.is_empty()
    }

    /// Whether a guard has lost its lock by that: see [`Life::holds_only`].
    pub(crate) fn misses_any(&self, asked: BootInstant, holders: &[&str]) -> bool {
        let facts = self.facts.lock();
        facts.guards.values().any(|held| held.is_missing(asked, holders))
    }

    /// The session was asked at `asked` which locks it holds, and these are all. Guards of others have lost theirs.
    pub(crate) fn holds_only(&self, asked: BootInstant, holders: &[&str]) {
        let mut facts = self.facts.lock();
        facts.guards.retain(|_, held| {
            let stays = !held.is_missing(asked, holders);
            if !stays {
                held.lose(&self.session, &Loss::TakenAway);
            }
            stays
        });
    }
}

/// Sleeps on the clock of the caller's runtime, which stands still while the machine is suspended. So whoever wakes looks at the other
/// clock; and after a suspend the task that renews the session is the one that wakes in time. Without a runtime only that task does.
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
        )
    }

    fn grant(holder: &str) -> Grant {
        Grant {
            lock: "job".to_owned(),
            mode: Mode::Exclusive,
            holder: holder.to_owned(),
            fencing_token: 7,
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
        // Sent before, and answered later than the other.
        life.confirm(earlier, Duration::from_secs(60));
        assert_eq!(life.valid_until(), after);
    }

    #[test]
    fn a_guard_that_the_cluster_does_not_know_has_lost_its_lock() {
        let life = life(60_000);
        let (kept, broken) = (life.enter(&grant("kept")).lost, life.enter(&grant("broken")).lost);
        let Entered {
            number,
            lost: given_back,
            ..
        } = life.enter(&grant("given back"));
        life.leave(number);
        let asked = BootInstant::now();
        let new = life
            .enter(&grant("granted while the question was on its way"))
            .lost;
        life.holds_only(asked, &["kept"]);
        assert_eq!(*broken.borrow(), Some(Loss::TakenAway));
        for guard in [kept, new, given_back] {
            assert_eq!(*guard.borrow(), None);
        }
        assert_eq!(life.loss(), None);
    }

    #[test]
    fn what_is_told_of_a_holder_reaches_its_guards_and_those_that_come_later() {
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
    fn how_things_stand_says_nothing_of_what_was_granted_later() {
        let life = life(60_000);
        let at = |holder, token| Grant {
            fencing_token: token,
            ..grant(holder)
        };
        let (kept, gone, new) = (
            life.enter(&at("kept", 5)),
            life.enter(&at("gone", 5)),
            life.enter(&at("new", 6)),
        );
        life.stands_at(5, &["kept"]);
        assert_eq!(*gone.lost.borrow(), Some(Loss::TakenAway));
        for guard in [kept, new] {
            assert_eq!(*guard.lost.borrow(), None);
        }
    }

    #[test]
    fn a_heartbeat_from_before_does_not_take_a_request_back() {
        let life = life(60_000);
        let guard = life.enter(&grant("a"));
        let revocation = Revocation {
            by: "x".into(),
            reason: "y".into(),
            requested_at: "z".into(),
        };
        let sent = BootInstant::now();
        life.is_asked("a", &revocation);
        life.asked(sent, &[]);
        assert_eq!(*guard.asked.borrow(), Some(revocation));
        while BootInstant::now() == sent {}
        life.asked(BootInstant::now() + Duration::from_secs(1), &[]);
        assert_eq!(*guard.asked.borrow(), None);
    }

    #[test]
    fn guards_of_one_holder_share_what_is_granted_and_asked_of_it() {
        let life = life(60_000);
        let (outer, other) = (life.enter(&grant("a")), life.enter(&grant("b")));
        outer.hold.set(Mode::Shared, 7);
        let text = r#"[{"lock": "job", "holder": "a", "by": "x", "reason": "y", "requested_at": "z"}]"#;
        let asked: Vec<Asked> = serde_json::from_str(text).unwrap();
        life.asked(BootInstant::now(), &asked);
        let inner = life.enter(&grant("a"));
        assert_eq!(
            (inner.hold.now(), other.hold.now()),
            ((Mode::Shared, 7), (Mode::Exclusive, 7))
        );
        for asked in [&outer.asked, &inner.asked] {
            assert_eq!(asked.borrow().as_ref().map(|asked| &*asked.reason), Some("y"));
        }
        assert_eq!(*other.asked.borrow(), None);
        life.asked(BootInstant::now(), &[]);
        assert_eq!(*outer.asked.borrow(), None);
    }
}
