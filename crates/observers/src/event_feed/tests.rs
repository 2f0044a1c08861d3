use znode_store::{Acl, ContenderEnd, Hold, LockMode, ZnodeEvent};

use super::*;

const SESSION: SessionId = SessionId(7);

fn hold(lock: &str, holder: &str) -> Arc<Hold> {
    Arc::new(Hold {
        lock: LockName::parse(lock).unwrap(),
        holder: holder.into(),
        session: SESSION,
        session_name: "".into(),
        mode: LockMode::Exclusive,
        permits: 1,
        fencing_token: Zxid(1),
        owner: "".into(),
        note: "".into(),
        address: "".into(),
        since_ms: Some(1),
    })
}

fn created(path: &str) -> Event {
    Event::Znode(ZnodeEvent {
        kind: ZnodeEventKind::Created,
        path: ZPath::parse(path).unwrap(),
        acl: Acl::open(),
    })
}

fn began(lock: &str) -> Event {
    Event::HoldBegan(hold(lock, "x-0000000001"))
}

fn locks(happenings: &Happenings) -> Vec<String> {
    let lock = |happening: &Happening| happening.what.lock().unwrap().to_string();
    happenings.latest.iter().map(lock).collect()
}

fn all(recent: &Recent, after: Option<EventPosition>, count: usize) -> Happenings {
    recent.after(after, count, |_| true)
}

#[test]
fn who_is_let_in_at_once_has_not_waited() {
    let recent = Recent::new();
    recent.happened(Zxid(1), 5, &[created("/locks/a/x-0000000001"), began("a")]);
    recent.happened(Zxid(2), 6, &[created("/locks/a/x-0000000002")]);
    // No contenders, all of them.
    for path in ["/locks/a", "/locks/a/b", "/elsewhere/x-0000000003", "/locks"] {
        recent.happened(Zxid(3), 7, &[created(path)]);
    }
    let told = all(&recent, None, 10);
    let what: Vec<_> = told.latest.iter().map(|it| (it.time_ms, &it.what)).collect();
    assert!(matches!(
        what[..],
        [
            (
                5,
                Happened::ToSession {
                    event: SessionEvent::Granted(_),
                    ..
                }
            ),
            (6, Happened::Queued { .. })
        ]
    ));
    assert_eq!(locks(&told), ["a", "a"]);
}

#[test]
fn the_end_of_a_hold_is_told_once() {
    let recent = Recent::new();
    let over = hold("a", "x-0000000001");
    recent.happened(
        Zxid(1),
        5,
        &[
            Event::HoldEnded {
                hold: over.clone(),
                how: ContenderEnd::Released,
                by: None,
            },
            Event::ContenderEnded {
                session: SESSION,
                lock: over.lock.clone(),
                holder: over.holder.to_string(),
                how: ContenderEnd::Released,
            },
        ],
    );
    assert_eq!(all(&recent, None, 10).latest.len(), 1);
}

#[test]
fn the_latest_are_told_and_that_there_were_others() {
    let recent = Recent::new();
    for zxid in 1..=4 {
        recent.happened(Zxid(zxid), 5, &[began(&format!("a{zxid}"))]);
    }
    let two = all(&recent, None, 2);
    assert_eq!((locks(&two), two.more), (vec!["a3".into(), "a4".into()], true));
    let rest = all(&recent, Some(EventPosition::all_of(Zxid(2))), 2);
    assert_eq!((locks(&rest), rest.more), (vec!["a3".into(), "a4".into()], false));
    let chosen = recent.after(None, 2, |it| it.at < EventPosition::all_of(Zxid(1)));
    assert_eq!((locks(&chosen), chosen.more), (vec!["a1".into()], false));
}

#[test]
fn what_is_not_known_any_more_is_not_left_out_in_silence() {
    let recent = Recent::new();
    for zxid in 1..=(MAX_HAPPENINGS as u64 + 2) {
        recent.happened(Zxid(zxid), 5, &[began("a")]);
    }
    assert!(all(&recent, Some(EventPosition::all_of(Zxid(1))), usize::MAX).more);
    let rest = all(&recent, Some(EventPosition::all_of(Zxid(2))), usize::MAX);
    assert_eq!((rest.latest.len(), rest.more), (MAX_HAPPENINGS, false));
    recent.state_replaced(Zxid(9_000));
    let after = all(&recent, Some(EventPosition::all_of(Zxid(8_999))), 10);
    assert_eq!((after.latest.len(), after.more), (0, true));
}

#[test]
fn only_so_many_look_on() {
    let recent = Recent::new();
    let mut onlookers: Vec<_> = (0..MAX_ONLOOKERS).map(|_| recent.look_on().unwrap()).collect();
    assert_eq!(recent.look_on().unwrap_err(), TooManyOnlookers);
    onlookers.pop();
    assert!(recent.look_on().is_ok());
    assert!(!onlookers[0].has_changed().unwrap());
    recent.happened(Zxid(1), 5, &[began("a")]);
    assert!(onlookers[0].has_changed().unwrap());
}
