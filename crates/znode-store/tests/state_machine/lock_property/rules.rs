//! Rules about the views of all locks before and after a step.

use std::collections::{BTreeMap, BTreeSet};

use znode_store::{
    Command, ContenderEnd, ContenderState, ContenderView, Event, Grant, Hold, HolderId, LockCommand,
    LockCounts, LockMode, LockName, LockView, Outcome, Reply, SessionFate, Store, Zxid,
};

use super::steps::LOCKS;

/// All locks that there are.
pub type Views = BTreeMap<LockName, LockView>;

pub fn views(store: &Store) -> Views {
    let locks = LOCKS.map(|lock| LockName::parse(lock).expect("the name is legal"));
    let views: Views = locks
        .into_iter()
        .filter_map(|lock| Some((lock.clone(), store.lock(&lock)?)))
        .collect();
    let used = views.values().filter(|view| !all(view).is_empty());
    let counted = LockCounts {
        locks: used.count(),
        holders: views.values().map(|view| view.holders.len()).sum(),
        waiters: views.values().map(|view| view.queue.len()).sum(),
    };
    assert_eq!(store.lock_counts(), counted, "what is counted is what there is");
    assert_eq!(
        store.lock_counts_below("", None, usize::MAX),
        (counted, None),
        "and what a look at all of them counts"
    );
    views
}

pub fn alive(views: &Views, holder: &str) -> bool {
    views.values().any(|view| {
        view.holders
            .iter()
            .chain(&view.queue)
            .any(|other| other.holder == holder)
    })
}

/// A contender by its lock and name. No step deletes a lock and creates it again, so it is the same before and after.
pub type Key = (LockName, HolderId);

pub fn keys<'v>(
    views: &'v Views,
    of: impl Fn(&'v LockView) -> Vec<&'v ContenderView> + 'v,
) -> impl Iterator<Item = Key> + 'v {
    views
        .iter()
        .flat_map(move |(lock, view)| of(view).into_iter().map(|who| (lock.clone(), who.holder.clone())))
}

pub fn all(view: &LockView) -> Vec<&ContenderView> {
    view.holders.iter().chain(&view.queue).collect()
}

/// A hold by its lock, its contender and its token: an upgrade ends one and begins another.
pub type HoldKey = (LockName, HolderId, Zxid);

/// Checks that holds begin and end exactly in the events, with the description that the state had during the hold.
pub fn check_holds(before: &Views, after: &Views, events: &[Event]) {
    let holding = |views: &Views| -> BTreeMap<HoldKey, ContenderView> {
        let holders = views.iter().flat_map(|(lock, view)| {
            let named = |who: &ContenderView| (lock.clone(), who.holder.clone(), who.fencing_token);
            view.holders.iter().map(move |who| (named(who), who.clone()))
        });
        holders.collect()
    };
    let (held, hold) = (holding(before), holding(after));
    let (mut began, mut ended) = (BTreeMap::new(), BTreeMap::new());
    for event in events {
        match event {
            Event::HoldBegan(hold) => {
                assert!(began.insert(key_of(hold), hold).is_none(), "told twice: {hold}")
            }
            Event::HoldEnded { hold, .. } => {
                assert!(ended.insert(key_of(hold), hold).is_none(), "told twice: {hold}");
            }
            _ => {}
        }
    }
    assert!(
        began
            .keys()
            .eq(hold.keys().filter(|key| !held.contains_key(*key))),
        "events of beginnings"
    );
    assert!(
        ended
            .keys()
            .eq(held.keys().filter(|key| !hold.contains_key(*key))),
        "events of ends"
    );
    for (views, told) in [(&hold, &began), (&held, &ended)] {
        for (key, hold) in told {
            let view = &views[key];
            let texts = |texts: [&str; 3]| texts.map(str::to_owned);
            assert_eq!(
                (hold.session, hold.mode, hold.permits),
                (view.session, view.mode, view.permits)
            );
            assert_eq!(
                texts([&*hold.owner, &*hold.note, hold.address.as_str()]),
                texts([&*view.owner, &*view.note, view.address.as_str()])
            );
            assert!(
                hold.since_ms
                    .is_none_or(|since_ms| since_ms == view.since_ms || view.address.as_str().is_empty())
            );
        }
    }
}

pub fn key_of(hold: &Hold) -> HoldKey {
    (hold.lock.clone(), hold.holder.to_string(), hold.fencing_token)
}

/// Checks that exactly the granted waiters and the ended contenders have events, an end before the grants that it allows.
pub fn check_events(before: &Views, after: &Views, events: &[Event], store: &Store) {
    let waited: BTreeSet<Key> = keys(before, |view| view.queue.iter().collect()).collect();
    let hold: BTreeSet<Key> = keys(after, |view| view.holders.iter().collect()).collect();
    let mut expected: Vec<Key> = waited.intersection(&hold).cloned().collect();
    let mut granted = Vec::new();
    for event in events {
        if let Event::Granted { session, grant } = event {
            granted.push((grant.lock.clone(), grant.holder.clone()));
            assert_eq!(
                store.contender_state(&grant.lock, &grant.holder),
                Some(ContenderState::Holds(grant.clone()))
            );
            let view = &after[&grant.lock];
            assert!(
                view.holders
                    .iter()
                    .any(|holder| holder.holder == grant.holder && holder.session == *session)
            );
        }
    }
    granted.sort();
    expected.sort();
    assert_eq!(granted, expected, "events of grants");

    check_holds(before, after, events);
    for (lock, view) in after {
        let holds = store.holds_of(lock);
        assert!(
            holds
                .iter()
                .map(|hold| (&*hold.holder, hold.fencing_token))
                .eq(view
                    .holders
                    .iter()
                    .map(|holder| (&*holder.holder, holder.fencing_token)))
        );
        for event in events {
            if let Event::HoldBegan(began) = event
                && began.lock == *lock
            {
                let hold = holds
                    .iter()
                    .find(|hold| hold.holder == began.holder)
                    .expect("it holds");
                let since_ms = hold.since_ms.or(began.since_ms);
                assert_eq!(
                    Hold {
                        since_ms,
                        ..Hold::clone(hold)
                    },
                    **began
                );
            }
        }
    }

    let were: BTreeSet<Key> = keys(before, all).collect();
    let are: BTreeSet<Key> = keys(after, all).collect();
    let mut gone: Vec<_> = were.difference(&are).cloned().collect();
    let mut ended = Vec::new();
    for (at, event) in events.iter().enumerate() {
        if let Event::ContenderEnded { lock, holder, .. } = event {
            ended.push((lock.clone(), holder.clone()));
            let granted_before = events[..at].iter().any(
                |event| matches!(event, Event::Granted { grant: Grant { lock: of, .. }, .. } if of == lock),
            );
            assert!(
                !granted_before,
                "the event of a grant is before that of the end that made it possible"
            );
        }
    }
    gone.sort();
    ended.sort();
    assert_eq!(ended, gone, "events of ends");
}

/// The holders of a lock get along with each other, however they came to it; and nobody gets in who should not.
pub fn check_holders(before: &Views, after: &Views) {
    for (lock, view) in after {
        let count = |mode| view.holders.iter().filter(|holder| holder.mode == mode).count();
        let permits = |view: &LockView| -> u32 { view.holders.iter().map(|holder| holder.permits).sum() };
        let (alone, upgradeable) = (count(LockMode::Exclusive), count(LockMode::Upgradeable));
        let plain = alone + upgradeable + count(LockMode::Shared);
        assert!(plain == 0 || plain == view.holders.len(), "{view:?}");
        assert!(alone == 0 || view.holders.len() == 1, "{view:?}");
        assert!(upgradeable <= 1, "{view:?}");
        let was = before.get(lock);
        if let Some(LockMode::Semaphore { limit }) = view.mode {
            // After the limit was lowered the use goes down, and never up, until it is below.
            let used = was.map_or(0, permits);
            assert!(permits(view) <= limit.max(used), "{view:?}");
        }
        let upgrading = |view: &LockView| {
            view.holders
                .iter()
                .any(|holder| holder.upgrading_since_ms.is_some())
        };
        let shut = |view: &LockView| view.draining || view.closed.is_some();
        if let Some(was) = was
            && (shut(was) && shut(view) || upgrading(was) && upgrading(view))
        {
            let held: BTreeSet<&str> = was.holders.iter().map(|holder| &*holder.holder).collect();
            assert!(
                view.holders.iter().all(|holder| held.contains(&*holder.holder)),
                "{view:?}"
            );
        }
        // An upgrade waits for somebody, or for the lock to be opened.
        assert!(
            !upgrading(view) || view.holders.len() > 1 || view.closed.is_some(),
            "{view:?}"
        );
    }
}

/// A lock is closed when, and only when, a holder with a lock-delay is lost with its session.
pub fn check_closed(before: &Views, after: &Views, events: &[Event]) {
    let lost: BTreeSet<(&LockName, &str)> = events
        .iter()
        .filter_map(|event| match event {
            Event::ContenderEnded {
                lock,
                holder,
                how: ContenderEnd::SessionExpired,
                ..
            } => Some((lock, &**holder)),
            _ => None,
        })
        .collect();
    for (lock, view) in after {
        // What was closed stays so while the znode is gone, which the views do not show.
        let was = before.get(lock);
        if was.is_none() && view.closed.is_some() {
            continue;
        }
        let mut held = was.into_iter().flat_map(|view| &view.holders);
        let unclean = held.any(|holder| holder.lock_delay_ms > 0 && lost.contains(&(lock, &*holder.holder)));
        let was_closed = was.is_some_and(|view| view.closed.is_some());
        let opened = events
            .iter()
            .any(|event| matches!(event, Event::LockOpened(opened) if opened == lock));
        assert_eq!(
            view.closed.is_some(),
            unclean || was_closed && !opened,
            "{view:?}"
        );
    }
}

/// Checks that the release requests of sessions are exactly those without an answer.
pub fn check_asked(after: &Views, store: &Store) {
    let asked = |view: &ContenderView| view.revoke.as_ref().is_some_and(|revoke| revoke.answer.is_none());
    let expected: BTreeSet<Key> = keys(after, all)
        .zip(after.values().flat_map(all))
        .filter(|(_, view)| asked(view))
        .map(|(key, _)| key)
        .collect();
    let sessions = store.sessions().into_iter();
    let told: BTreeSet<Key> = sessions
        .flat_map(|view| store.revocations(view.session))
        .map(|(lock, holder, _)| (lock, holder))
        .collect();
    assert_eq!(told, expected);
}

/// Checks that a holder that still exists still holds.
pub fn check_nothing_taken_back(before: &Views, after: &Views) {
    let held: BTreeSet<Key> = keys(before, |view| view.holders.iter().collect()).collect();
    let waits: BTreeSet<Key> = keys(after, |view| view.queue.iter().collect()).collect();
    assert_eq!(held.intersection(&waits).next(), None);
}

/// Checks that no contender is overtaken: the remaining ones keep their order, and newcomers follow them.
pub fn check_order(before: &Views, after: &Views) {
    let order: Vec<Key> = keys(after, all).collect();
    let left = keys(before, all).filter(|key| order.contains(key));
    let still: Vec<Key> = left.collect();
    for lock in after.keys() {
        let of = |key: &&Key| key.0 == *lock;
        let still: Vec<&Key> = still.iter().filter(of).collect();
        let order: Vec<&Key> = order.iter().filter(of).collect();
        assert_eq!(order[..still.len()], still);
    }
}

/// Only sessions that live have contenders.
pub fn check_sessions(after: &Views, store: &Store) {
    for contender in after.values().flat_map(all) {
        assert_eq!(store.session_fate(contender.session), SessionFate::Live);
    }
    for view in store.sessions() {
        let of_session = store.contenders_of(view.session);
        let expected = after
            .values()
            .flat_map(all)
            .filter(|contender| contender.session == view.session);
        assert_eq!(of_session.len(), expected.count());
        for (lock, holder, holds) in of_session {
            let standing = store.contender_state(&lock, &holder).expect("it was listed");
            assert_eq!(holds, !matches!(standing, ContenderState::Waits(_)));
        }
    }
}

/// Checks that the answer of an acquire is true, unless it repeats an old one.
pub fn check_reply(command: &Command, outcome: &Outcome, store: &Store, may_repeat: bool) {
    if let Command::Lock(LockCommand::Acquire { wait: false, .. }) = command
        && !may_repeat
    {
        assert!(!matches!(outcome, Ok(Reply::Queued(_))), "a try was queued");
    }
    // It holds, and waits to be the only one.
    if let Command::Lock(LockCommand::Upgrade { .. }) = command
        && let Ok(Reply::Queued(place)) = outcome
    {
        let standing = store.contender_state(&place.lock, &place.holder);
        assert!(
            matches!(standing, Some(ContenderState::Upgrades(_))),
            "{standing:?}"
        );
        return;
    }
    match outcome {
        // A call that enters once more while another one upgrades.
        Ok(Reply::Granted(grant))
            if matches!(
                store.contender_state(&grant.lock, &grant.holder),
                Some(ContenderState::Upgrades(_))
            ) =>
        {
            assert_eq!(grant.mode, LockMode::Upgradeable);
        }
        Ok(Reply::Granted(grant)) if !may_repeat => {
            assert_eq!(
                store.contender_state(&grant.lock, &grant.holder),
                Some(ContenderState::Holds(grant.clone()))
            );
            assert!(store.is_held_with(&grant.lock, grant.fencing_token));
        }
        Ok(Reply::Queued(place)) => {
            assert_eq!(
                store.contender_state(&place.lock, &place.holder),
                Some(ContenderState::Waits(place.clone()))
            );
        }
        _ => {}
    }
}
