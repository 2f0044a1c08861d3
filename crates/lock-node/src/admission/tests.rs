//! Admission permits are taken and returned, each kind from its own share.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

use znode_store::{Command, Identities, Identity, Op, SessionId, ZPath};

use super::*;

fn admission(max_outstanding: usize, max_outstanding_bytes: usize) -> Arc<Admission> {
    Arc::new(Admission::new(AdmissionConfig {
        max_outstanding,
        max_outstanding_bytes,
        ..AdmissionConfig::default()
    }))
}

/// Returns a request of a caller of its own, so that no caller reaches its share.
fn request(command: Command) -> Request {
    static CALLERS: AtomicU32 = AtomicU32::new(0);
    let address = Ipv4Addr::from_bits(CALLERS.fetch_add(1, Ordering::Relaxed));
    Request {
        caller: Identities::new([Identity::Ip(address.into())]),
        ..Request::anonymous(command)
    }
}

fn new(bytes: usize) -> Request {
    let path = ZPath::parse("/a").unwrap();
    let data = vec![0; bytes].into();
    request(Command::Write(Op::Set {
        path,
        data,
        version: -1,
    }))
}

fn keep() -> Request {
    let session = SessionId(1);
    request(Command::CloseSession { session })
}

#[tokio::test]
async fn new_work_cannot_take_the_permits_of_work_that_keeps() {
    let admission = admission(2, 1_000_000);
    let places: Vec<AdmissionPermit> = (0..2).map(|_| admission.permit(&new(0)).unwrap()).collect();
    assert_eq!(admission.permit(&new(0)).unwrap_err(), Busy { outstanding: 2 });
    assert!(!admission.has_room(Work::New));
    let kept: Vec<AdmissionPermit> = (0..2 * MAINTENANCE_PERMITS_PER_NEW)
        .map(|_| admission.permit(&keep()).unwrap())
        .collect();
    assert!(admission.permit(&keep()).is_err(), "nothing is without bounds");
    let own = Request::internal(Command::CloseSession {
        session: SessionId(1),
    });
    let own: Vec<AdmissionPermit> = (0..10).map(|_| admission.permit(&own).unwrap()).collect();
    let counts = admission.counts();
    assert_eq!(
        (counts.new, counts.kept, counts.refused),
        (2, 2 * MAINTENANCE_PERMITS_PER_NEW, [1, 1])
    );
    drop((places, own));
    assert!(admission.has_room(Work::New));
    drop(kept);
    let counts = admission.counts();
    assert_eq!((counts.new, counts.kept, counts.bytes), (0, 0, 0));
}

#[tokio::test]
async fn bytes_are_bounded_too_and_what_is_large_passes_alone() {
    let admission = admission(100, 10_000);
    let large = admission.permit(&new(20_000)).unwrap();
    assert!(admission.permit(&new(0)).is_err());
    assert!(admission.permit(&keep()).is_ok());
    drop(large);
    let places: Vec<AdmissionPermit> = (0..2).map(|_| admission.permit(&new(5_000)).unwrap()).collect();
    assert!(!admission.has_room(Work::New));
    assert!(admission.permit(&new(0)).is_err());
    drop(places);
    assert!(admission.permit(&new(0)).is_ok());
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_room_are_woken_even_if_others_do_not_use_theirs() {
    let admission = admission(1, 1_000_000);
    let requests: [(fn() -> Request, Work); 2] = [(|| new(0), Work::New), (keep, Work::Keep)];
    for (request, work) in requests {
        let mut places = Vec::new();
        while let Ok(place) = admission.permit(&request()) {
            places.push(place);
        }
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let admission = admission.clone();
                tokio::spawn(async move { admission.room(work, &Identities::none()).await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        drop(places.pop());
        for waiter in waiters {
            waiter.await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_cluster_takes_less_in() {
    let most = 4 * LEAST_OUTSTANDING;
    let admission = admission(most, usize::MAX);
    let take_all = || std::iter::from_fn(|| admission.permit(&new(0)).ok());
    let mut in_flight: VecDeque<AdmissionPermit> = take_all().collect();
    assert_eq!(in_flight.len(), most);
    for _ in 0..2 * most {
        tokio::time::advance(Duration::from_millis(3)).await;
        in_flight.pop_front().unwrap().record_applied();
        in_flight.extend(take_all());
    }
    assert_eq!(admission.counts().limit, LEAST_OUTSTANDING);
    let beyond = in_flight.len() - LEAST_OUTSTANDING;
    assert!(beyond <= LEAST_OUTSTANDING / 2, "{beyond} beyond the limit");
    for _ in 0..2_000 {
        tokio::time::advance(Duration::from_millis(1)).await;
        drop(in_flight.pop_front());
        admission.permit(&new(0)).unwrap().record_applied();
    }
    assert_eq!(admission.counts().limit, most);
}

#[tokio::test(start_paused = true)]
async fn caller_with_few_permits_gets_one_while_others_exceed_the_limit() {
    let most = 8 * LEAST_OUTSTANDING;
    let admission = admission(most, usize::MAX);
    let (flooder, other) = (new(0), new(0));
    let take_all = |request: &Request| -> Vec<AdmissionPermit> {
        std::iter::from_fn(|| admission.permit(request).ok()).collect()
    };
    let mut flood = take_all(&flooder);
    while admission.counts().limit > LEAST_OUTSTANDING {
        tokio::time::advance(Duration::from_millis(50)).await;
        flood.pop().unwrap().record_applied();
    }
    assert!(
        flood.len() > 2 * LEAST_OUTSTANDING,
        "{} are in flight",
        flood.len()
    );
    assert!(admission.permit(&flooder).is_err());
    assert_eq!(take_all(&other).len(), FEW_PERMITS);
    // All callers together get half of the limit.
    let others: Vec<AdmissionPermit> = std::iter::from_fn(|| admission.permit(&new(0)).ok()).collect();
    assert_eq!(others.len(), LEAST_OUTSTANDING / 2);
    assert!(!admission.has_room(Work::New));
}

#[tokio::test]
async fn bounds_that_are_changed_hold_from_then_on() {
    let admission = admission(1, 1_000_000);
    let bounds = |max_outstanding| AdmissionConfig {
        max_outstanding,
        max_outstanding_bytes: 1_000_000,
        ..AdmissionConfig::default()
    };
    let _first = admission.permit(&new(0)).unwrap();
    // A waiter is notified that there is room.
    let waiting = tokio::spawn({
        let admission = admission.clone();
        async move { admission.room(Work::New, &Identities::none()).await }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    admission.reconfigure(bounds(3));
    waiting.await.unwrap();
    let _second = admission.permit(&new(0)).unwrap();
    let _third = admission.permit(&new(0)).unwrap();
    assert!(admission.permit(&new(0)).is_err());
    // The limit is below the permits in use: holders keep theirs, and no permit is handed out.
    admission.reconfigure(bounds(2));
    assert_eq!(admission.counts().new, 3);
    assert!(!admission.has_room(Work::New));
}

#[tokio::test(start_paused = true)]
async fn one_caller_leaves_permits_to_others() {
    let most = 4 * LEAST_OUTSTANDING;
    let admission = admission(most, usize::MAX);
    let (flooder, other) = (new(0), new(0));
    let take_all = |request: &Request| -> Vec<AdmissionPermit> {
        std::iter::from_fn(|| admission.permit(request).ok()).collect()
    };
    let mut flood = take_all(&flooder);
    assert_eq!(flood.len(), most / 2 + most / 4);
    assert!(admission.has_room(Work::New) && !admission.has_room_for(Work::New, &flooder.caller));
    let waiter = tokio::spawn({
        let (admission, caller) = (admission.clone(), flooder.caller.clone());
        async move { admission.room(Work::New, &caller).await }
    });
    tokio::time::sleep(10 * SHARE_POLL_INTERVAL).await;
    assert!(!waiter.is_finished());
    let others = take_all(&other);
    assert_eq!(others.len(), most / 4);
    assert!(!admission.has_room(Work::New));
    // A permit of its share is free again.
    drop(flood.pop());
    waiter.await.unwrap();
    assert!(admission.permit(&flooder).is_ok());
    drop((flood, others));
    assert_eq!(admission.counts().new, 0);
    assert_eq!(take_all(&other).len(), most / 2 + most / 4);
}

#[tokio::test]
async fn answers_of_a_caller_beyond_its_pace_wait_and_those_of_the_operator_do_not() {
    let admission = admission(1, 1);
    let stranger = || Caller::Network(None);
    let operator = || Caller::Principal(Principal::Operator);
    let long = Duration::from_secs(10);
    assert!(admission.long_request_wait(operator(), long).is_zero());
    assert!(!admission.long_request_wait(stranger(), long).is_zero());
    for _ in 0..100_000 {
        assert!(admission.refusal_wait(operator()).is_zero());
    }
    assert!(
        (0..100_000).any(|_| !admission.refusal_wait(stranger()).is_zero()),
        "refusals have a pace"
    );
    assert_eq!(admission.counts().answers_delayed, 2);
}

/// Returns the seconds of a wait.
async fn passed(wait: Option<LargeWriteWait>) -> u64 {
    let began = Instant::now();
    wait.expect("there are no tokens").passed().await;
    began.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn large_write_that_is_given_up_does_not_delay_the_next_one() {
    let admission = Arc::new(Admission::new(AdmissionConfig {
        large_writes: PaceBounds {
            per_second: 100,
            at_once: 0,
        },
        ..AdmissionConfig::default()
    }));
    let writer = Caller::Principal(Principal::Certificate("CN=writer".into()));
    // Each takes a second.
    let write = || admission.large_write_wait(writer.clone(), 100 * 1_024);
    assert_eq!(passed(write()).await, 1);
    // More than the maximum wait.
    let given_up: Vec<_> = (0..20).map(|_| write()).collect();
    drop(given_up);
    let (first, second) = (write(), write());
    assert_eq!(passed(first).await, 1);
    assert_eq!(
        passed(write()).await,
        2,
        "those that have passed and that wait count"
    );
    drop(second);
}
