//! Tests of the lock service on a real node: one member, its own disk, 127.0.0.1. No test sleeps; each waits for its
//! conditions by watches.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_node::{MemberAddress, NodeConfig, WatchKind};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use znode_store::{Identities, LockMode, LockView, Op, Refusal, Store};

use super::*;

/// Timeout of all waits; a test that reaches it has failed.
const LONG: Duration = Duration::from_secs(60);

struct World {
    node: Node,
    locks: Locks,
    /// Removed at the end.
    _dir: TempDir,
}

impl World {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = MemberAddress {
            peer: listener.local_addr().unwrap().to_string(),
            http: String::new(),
        };
        let dir = TempDir::new().unwrap();
        let config = NodeConfig::new(1, "locks", BTreeMap::from([(1, address)]), dir.path());
        let node = Node::start_on(config, listener).await.unwrap();
        let ready = async {
            while node.not_ready().is_some() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(LONG, ready).await.expect("it leads alone");
        Self {
            locks: Locks::new(node.clone()),
            node,
            _dir: dir,
        }
    }

    async fn session(&self) -> SessionId {
        self.node
            .open_session(Some(LONG), "", "", None)
            .await
            .unwrap()
            .session
    }

    /// Waits in the background.
    fn waiting(
        &self,
        session: SessionId,
        wish: LockWish,
        wait: WaitFor,
    ) -> JoinHandle<Result<Grant, LockError>> {
        let locks = self.locks.clone();
        tokio::spawn(async move { locks.acquire(session, wish, wait, None).await })
    }

    async fn held(&self, session: SessionId, name: &str) -> Grant {
        self.locks
            .acquire(session, exclusive(name), WaitFor::Try, None)
            .await
            .unwrap()
    }

    async fn release(&self, session: SessionId, grant: &Grant) -> Result<u32, LockError> {
        self.locks
            .release(session, grant.lock.clone(), grant.holder.clone(), None)
            .await
    }

    /// Waits until the state of a lock fulfils a condition.
    async fn until(&self, name: &str, mut what: impl FnMut(&Store, Option<&LockView>) -> bool) {
        let lock = lock(name);
        loop {
            let (done, change) = self
                .node
                .read_and_watch(
                    lock.znode(),
                    WatchKind::PersistentRecursive,
                    Identities::none(),
                    |store| what(store, store.lock(&lock).as_ref()),
                )
                .unwrap();
            if done {
                return;
            }
            tokio::time::timeout(LONG, change.fired())
                .await
                .expect("the state never comes to be as it should");
        }
    }

    async fn until_waiters(&self, name: &str, count: usize) {
        self.until(name, |_, view| view.is_some_and(|view| view.queue.len() == count))
            .await;
    }

    async fn until_free(&self, name: &str) {
        self.until(name, |_, view| {
            view.is_none_or(|view| view.holders.is_empty() && view.queue.is_empty())
        })
        .await;
    }

    /// Waits until `count` calls are left, including those that are being cleaned up.
    async fn until_calls(&self, count: usize) {
        let over = u32::try_from(MAX_CALLS - count).unwrap();
        let over = tokio::time::timeout(LONG, self.locks.shared.call_permits.acquire_many(over)).await;
        drop(over.expect("some calls are never over").unwrap());
    }

    async fn stop(self) {
        self.node.stop().await;
    }
}

fn lock(name: &str) -> LockName {
    LockName::parse(name).unwrap()
}

fn wish(name: &str, mode: LockMode) -> LockWish {
    LockWish {
        lock: lock(name),
        mode,
        permits: 1,
        owner: "".into(),
        reentrant: true,
        note: "".into(),
        address: "".into(),
        lock_delay_ms: 0,
        names: Default::default(),
    }
}

fn exclusive(name: &str) -> LockWish {
    wish(name, LockMode::Exclusive)
}

fn refused<T: std::fmt::Debug>(result: Result<T, LockError>) -> Refusal {
    match result {
        Err(LockError::Refused(refusal)) => refusal,
        other => panic!("this should have been refused: {other:?}"),
    }
}

#[tokio::test]
async fn failed_try_reports_the_holder() {
    let world = World::new().await;
    let (a, b) = (world.session().await, world.session().await);
    let grant = world.held(a, "job").await;
    let busy = refused(world.locks.acquire(b, exclusive("job"), WaitFor::Try, None).await);
    assert_eq!(
        busy,
        Refusal::LockBusy {
            lock: lock("job"),
            holders: vec![grant.holder.clone()]
        }
    );
    assert_eq!(world.release(a, &grant).await, Ok(0));
    let not_holder = Refusal::NotHolder {
        lock: lock("job"),
        holder: grant.holder.clone(),
    };
    assert_eq!(refused(world.release(a, &grant).await), not_holder);
    let next = world.held(b, "job").await;
    assert!(next.fencing_token > grant.fencing_token);
    world.stop().await;
}

#[tokio::test]
async fn no_time_to_wait_is_a_try() {
    let world = World::new().await;
    let (a, b) = (world.session().await, world.session().await);
    world.held(a, "job").await;
    let wait = WaitFor::For(Duration::ZERO);
    assert!(matches!(
        refused(world.locks.acquire(b, exclusive("job"), wait, None).await),
        Refusal::LockBusy { .. }
    ));
    // A deadline beyond the clock's range.
    let free = world
        .locks
        .acquire(b, exclusive("free"), WaitFor::For(Duration::MAX), None)
        .await;
    assert_eq!(free.unwrap().lock, lock("free"));
    world.stop().await;
}

#[tokio::test]
async fn a_hundred_waiters_are_let_in_one_by_one_in_the_order_of_their_arrival() {
    let world = World::new().await;
    let first = world.session().await;
    let mut holder = (first, world.held(first, "job").await);
    let mut waiters = std::collections::VecDeque::new();
    for count in 1..=100 {
        let session = world.session().await;
        waiters.push_back((
            session,
            world.waiting(session, exclusive("job"), WaitFor::Forever),
        ));
        world.until_waiters("job", count).await;
    }
    while let Some((session, waiter)) = waiters.pop_front() {
        world.release(holder.0, &holder.1).await.unwrap();
        let grant = waiter.await.unwrap().unwrap();
        assert!(grant.fencing_token > holder.1.fencing_token);
        assert!(waiters.iter().all(|(_, other)| !other.is_finished()));
        holder = (session, grant);
    }
    world.stop().await;
}

#[tokio::test]
async fn a_waiter_that_times_out_leaves_the_queue() {
    let world = World::new().await;
    let (a, b) = (world.session().await, world.session().await);
    let grant = world.held(a, "job").await;
    let wait = WaitFor::For(Duration::from_millis(50));
    let started = Instant::now();
    let timeout = refused(world.locks.acquire(b, exclusive("job"), wait, None).await);
    assert_eq!(timeout, Refusal::LockTimeout(lock("job")));
    assert!(started.elapsed() >= Duration::from_millis(50));
    assert_eq!(world.locks.get(&lock("job"), 9).unwrap().0.queue, []);
    assert_eq!(world.release(a, &grant).await, Ok(0));
    world.until_free("job").await;
    world.stop().await;
}

#[tokio::test]
async fn a_caller_that_goes_away_while_it_waits_leaves_the_queue() {
    let world = World::new().await;
    let (a, b, c) = (
        world.session().await,
        world.session().await,
        world.session().await,
    );
    let grant = world.held(a, "job").await;
    let gone = world.waiting(b, exclusive("job"), WaitFor::Forever);
    world.until_waiters("job", 1).await;
    let stays = world.waiting(c, exclusive("job"), WaitFor::For(LONG));
    world.until_waiters("job", 2).await;
    gone.abort();
    world.until_waiters("job", 1).await;
    world.release(a, &grant).await.unwrap();
    let next = stays.await.unwrap().unwrap();
    world.release(c, &next).await.unwrap();
    world.until_free("job").await;
    world.stop().await;
}

#[tokio::test]
async fn a_caller_that_goes_away_before_the_outcome_leaves_nothing_behind() {
    let world = World::new().await;
    let (a, b) = (world.session().await, world.session().await);
    let before = world.node.read(Store::zxid);
    for wait in [WaitFor::Try, WaitFor::Forever] {
        let mut call = Box::pin(world.locks.acquire(a, exclusive("job"), wait, None));
        // The call is proposed once it was polled, and cannot have an outcome yet.
        assert!(futures_util::poll!(&mut call).is_pending());
        drop(call);
    }
    // Both were proposed, and both were withdrawn.
    world.until_calls(0).await;
    assert_eq!(world.node.read(Store::zxid).0, before.0 + 4);
    assert_eq!(world.locks.list("", None, 10).unwrap().locks, []);
    world.held(b, "job").await;
    world.stop().await;
}

#[tokio::test]
async fn the_end_of_the_session_ends_the_wait() {
    let world = World::new().await;
    let (a, b) = (world.session().await, world.session().await);
    let grant = world.held(a, "job").await;
    let waiter = world.waiting(b, exclusive("job"), WaitFor::Forever);
    world.until_waiters("job", 1).await;
    let close = Request {
        session: None,
        request_id: None,
        caller: Identities::none(),
        command: Command::CloseSession { session: b },
    };
    world.node.propose(close).await.unwrap().outcome.unwrap();
    assert_eq!(refused(waiter.await.unwrap()), Refusal::SessionEnded(b));
    let late = world
        .locks
        .acquire(b, exclusive("job"), WaitFor::Forever, None)
        .await;
    assert_eq!(refused(late), Refusal::SessionEnded(b));
    assert_eq!(world.release(a, &grant).await, Ok(0));
    world.stop().await;
}

#[tokio::test]
async fn an_operator_breaks_holders_and_waiters() {
    let world = World::new().await;
    let (a, b, c) = (
        world.session().await,
        world.session().await,
        world.session().await,
    );
    let grant = world.held(a, "job").await;
    let broken = world.waiting(b, exclusive("job"), WaitFor::Forever);
    world.until_waiters("job", 1).await;
    let lucky = world.waiting(c, exclusive("job"), WaitFor::Forever);
    world.until_waiters("job", 2).await;
    let waiter = world.locks.get(&lock("job"), 9).unwrap().0.queue[0]
        .holder
        .clone();
    world
        .locks
        .break_holder(lock("job"), waiter.clone(), "10.0.0.7", "too late", None)
        .await
        .unwrap();
    let expected = Refusal::Broken {
        lock: lock("job"),
        holder: waiter,
        by: "10.0.0.7".into(),
        reason: "too late".into(),
    };
    assert_eq!(refused(broken.await.unwrap()), expected);
    world
        .locks
        .break_holder(lock("job"), grant.holder.clone(), "10.0.0.7", "hangs", None)
        .await
        .unwrap();
    let next = lucky.await.unwrap().unwrap();
    assert!(
        !world
            .locks
            .check(&lock("job"), grant.fencing_token)
            .await
            .unwrap()
    );
    assert!(world.locks.check(&lock("job"), next.fencing_token).await.unwrap());
    assert!(
        !world
            .locks
            .check(&lock("none"), next.fencing_token)
            .await
            .unwrap()
    );
    let no_lock = world
        .locks
        .break_holder(lock("none"), grant.holder, "10.0.0.7", "hangs", None)
        .await;
    assert_eq!(refused(no_lock), Refusal::NoLock(lock("none")));
    world.stop().await;
}

/// Cause for which a caller loses its contender.
#[derive(Debug, Clone, Copy)]
enum Loss {
    Break,
    Delete,
    Release,
    EndOfSession,
}

async fn lose(world: &World, session: SessionId, contender: &ContenderRef, loss: Loss) {
    let ContenderRef { lock, holder } = contender.clone();
    let change = match loss {
        Loss::Break => {
            let broken = world.locks.break_holder(lock, holder, "10.0.0.7", "hangs", None);
            return broken.await.unwrap();
        }
        Loss::Release => {
            assert_eq!(world.locks.release(session, lock, holder, None).await, Ok(0));
            return;
        }
        Loss::Delete => Command::Write(Op::Delete {
            path: lock.znode().join(&holder).unwrap(),
            version: -1,
        }),
        Loss::EndOfSession => Command::CloseSession { session },
    };
    let request = Request {
        session: None,
        request_id: None,
        caller: Identities::none(),
        command: change,
    };
    world.node.propose(request).await.unwrap().outcome.unwrap();
}

#[derive(Debug, Clone)]
struct ContenderRef {
    lock: LockName,
    holder: HolderId,
}

#[tokio::test]
async fn call_for_several_locks_ends_when_it_loses_one_contender() {
    let world = World::new().await;
    let blocker = world.session().await;
    let names = ["early", "held", "late"];
    // The contender is granted already, or waits itself, or is behind the one that the call waits for.
    for (at, loss) in [
        (0, Loss::Break),
        (0, Loss::Delete),
        (0, Loss::Release),
        (0, Loss::EndOfSession),
        (1, Loss::Break),
        (2, Loss::Break),
        (2, Loss::Delete),
        (2, Loss::Release),
    ] {
        let case = format!("{loss:?} of {}", names[at]);
        let caller = world.session().await;
        let held = world.held(blocker, "held").await;
        let (locks, wishes) = (world.locks.clone(), names.map(exclusive).to_vec());
        let call = tokio::spawn(async move {
            locks
                .acquire_many(caller, wishes, WaitFor::Forever, None, 0)
                .await
        });
        world.until_waiters("held", 1).await;
        let (view, _) = world.locks.get(&lock(names[at]), 9).unwrap();
        let holder = match view.holders.first().filter(|holder| holder.session == caller) {
            Some(holder) => holder.holder.clone(),
            None => view.queue[0].holder.clone(),
        };
        let contender = ContenderRef {
            lock: lock(names[at]),
            holder,
        };
        lose(&world, caller, &contender, loss).await;
        let ended = tokio::time::timeout(LONG, call).await;
        let ended = refused(
            ended
                .unwrap_or_else(|_| panic!("{case}: it goes on waiting"))
                .unwrap(),
        );
        let ContenderRef { lock, holder } = contender;
        let expected = match loss {
            Loss::Break => Refusal::Broken {
                lock,
                holder,
                by: "10.0.0.7".into(),
                reason: "hangs".into(),
            },
            Loss::Delete | Loss::Release => Refusal::NotHolder { lock, holder },
            Loss::EndOfSession => Refusal::SessionEnded(caller),
        };
        assert_eq!(ended, expected, "{case}");
        // A caller with an answer finds everything cleaned up.
        for name in names {
            let view = world.locks.get(&LockName::parse(name).unwrap(), 9);
            let left = view.map_or(0, |(view, _)| view.holders.len() + view.queue.len());
            assert_eq!(left, usize::from(name == "held"), "{case}: {name}");
        }
        world.release(blocker, &held).await.unwrap();
    }
    world.stop().await;
}

#[tokio::test]
async fn a_repeated_request_has_the_effect_of_one() {
    let world = World::new().await;
    let (a, b) = (world.session().await, world.session().await);
    let id = |text| Some(RequestId::parse(text).unwrap());
    let held = world.held(a, "job").await;
    let waiting = || {
        let locks = world.locks.clone();
        tokio::spawn(async move {
            locks
                .acquire(b, exclusive("job"), WaitFor::Forever, id("r"))
                .await
        })
    };
    // The first caller is lost, the second one takes over its contender, and the clean-up of the first does not
    // withdraw it.
    let first = waiting();
    world.until_waiters("job", 1).await;
    let before = world.node.read(Store::zxid);
    let second = waiting();
    world.until("job", |store, _| store.zxid() > before).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    world.until_calls(1).await;
    assert_eq!(world.node.read(Store::zxid).0, before.0 + 2);
    world.until_waiters("job", 1).await;
    world.release(a, &held).await.unwrap();
    let grant = second.await.unwrap().unwrap();
    assert_eq!(grant.holds, 1);
    // Also when it holds, and when it has released.
    let again = || {
        world
            .locks
            .acquire(b, exclusive("job"), WaitFor::Forever, id("r"))
    };
    assert_eq!(again().await, Ok(grant.clone()));
    let release = || world.locks.release(b, lock("job"), grant.holder.clone(), id("s"));
    assert_eq!(release().await, Ok(0));
    assert_eq!(release().await, Ok(0));
    assert_eq!(again().await, Ok(grant.clone()));
    world.until_free("job").await;
    world.stop().await;
}

#[tokio::test]
async fn a_repeated_request_that_has_no_time_left_ends_the_wait() {
    let world = World::new().await;
    let (a, b) = (world.session().await, world.session().await);
    let id = |text: String| Some(RequestId::parse(&text).unwrap());
    let held = world.held(a, "job").await;
    let call = |wait, text: String| {
        let locks = world.locks.clone();
        tokio::spawn(async move { locks.acquire(b, exclusive("job"), wait, id(text)).await })
    };
    // The repetition times out at once, for all callers; it never waits as the first call does.
    for none in [WaitFor::Try, WaitFor::For(Duration::ZERO)] {
        let text = format!("{none:?}").replace(['(', ')'], "-");
        let (first, again) = (call(WaitFor::Forever, text.clone()), text.clone());
        world.until_waiters("job", 1).await;
        for wait in [none, WaitFor::Forever] {
            let ended = tokio::time::timeout(LONG, call(wait, again.clone())).await;
            let ended = ended.expect("it waits without end").unwrap();
            assert_eq!(refused(ended), Refusal::LockTimeout(lock("job")));
        }
        assert_eq!(refused(first.await.unwrap()), Refusal::LockTimeout(lock("job")));
        world.until_waiters("job", 0).await;
    }
    // The grant is the answer if it came before the timeout.
    let first = call(WaitFor::Forever, "fast".to_owned());
    world.until_waiters("job", 1).await;
    world.release(a, &held).await.unwrap();
    let grant = first.await.unwrap().unwrap();
    let again = call(WaitFor::Try, "fast".to_owned()).await.unwrap();
    assert_eq!(again, Ok(grant));
    world.stop().await;
}

#[tokio::test]
async fn shared_and_semaphores() {
    let world = World::new().await;
    let sessions = [
        world.session().await,
        world.session().await,
        world.session().await,
    ];
    let pool = wish("pool", LockMode::Semaphore { limit: 2 });
    for session in &sessions[..2] {
        let shared = wish("book", LockMode::Shared);
        world
            .locks
            .acquire(*session, shared, WaitFor::Try, None)
            .await
            .unwrap();
        world
            .locks
            .acquire(*session, pool.clone(), WaitFor::Try, None)
            .await
            .unwrap();
    }
    let third = world.locks.acquire(sessions[2], pool, WaitFor::Try, None).await;
    assert!(matches!(refused(third), Refusal::LockBusy { holders, .. } if holders.len() == 2));
    let other = wish("pool", LockMode::Semaphore { limit: 3 });
    assert!(matches!(
        refused(
            world
                .locks
                .acquire(sessions[2], other, WaitFor::Forever, None)
                .await
        ),
        Refusal::ModeConflict { .. }
    ));
    let names: Vec<_> = world
        .locks
        .list("", None, 10)
        .unwrap()
        .locks
        .into_iter()
        .map(|summary| summary.lock)
        .collect();
    assert_eq!(names, [lock("book"), lock("pool")]);
    world.stop().await;
}

/// Grace that is longer than any test.
const EVER: Duration = Duration::from_secs(3600);

/// Waits under the request id `w`, as the first or a later copy, and keeps its contender for `grace`.
fn kept(
    world: &World,
    session: SessionId,
    retry: u16,
    grace: Duration,
) -> JoinHandle<Result<Grant, LockError>> {
    let locks = world.locks.clone().with_disconnect_grace(grace);
    let id = Some(RequestId::parse("w").unwrap());
    tokio::spawn(async move {
        locks
            .acquire_again(session, exclusive("job"), WaitFor::Forever, id, retry)
            .await
    })
}

/// Cuts the caller's connection.
async fn cut(call: JoinHandle<Result<Grant, LockError>>) {
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn a_caller_that_was_cut_off_finds_its_place_again() {
    let world = World::new().await;
    let (a, b, c) = (
        world.session().await,
        world.session().await,
        world.session().await,
    );
    let grant = world.held(a, "job").await;
    let first = kept(&world, b, 0, EVER);
    world.until_waiters("job", 1).await;
    let other = world.waiting(c, exclusive("job"), WaitFor::Forever);
    world.until_waiters("job", 2).await;
    cut(first).await;
    // Calls without a grace are cleaned up by now.
    world.session().await;
    let again = kept(&world, b, 1, EVER);
    world.release(a, &grant).await.unwrap();
    let grant = again.await.unwrap().unwrap();
    // The clean-up of the disconnected call does not withdraw the grant.
    world.until_calls(1).await;
    assert_eq!(world.release(b, &grant).await, Ok(0));
    let last = other.await.unwrap().unwrap();
    world.release(c, &last).await.unwrap();
    world.until_free("job").await;
    world.stop().await;
}

#[tokio::test]
async fn a_caller_that_does_not_come_back_leaves_the_queue_after_the_grace() {
    let world = World::new().await;
    let (a, b) = (world.session().await, world.session().await);
    world.held(a, "job").await;
    let call = kept(&world, b, 0, Duration::from_millis(50));
    world.until_waiters("job", 1).await;
    cut(call).await;
    world.until_waiters("job", 0).await;

    // Without a request id, with which the caller could return, the clean-up is immediate.
    let locks = world.locks.clone().with_disconnect_grace(EVER);
    let call = tokio::spawn(async move { locks.acquire(b, exclusive("job"), WaitFor::Forever, None).await });
    world.until_waiters("job", 1).await;
    cut(call).await;
    world.until_waiters("job", 0).await;

    // The grace ends with the maximum wait of the call.
    let locks = world.locks.clone().with_disconnect_grace(EVER);
    let (wait, id) = (
        WaitFor::For(Duration::from_secs(1)),
        RequestId::parse("short").unwrap(),
    );
    let call = tokio::spawn(async move { locks.acquire(b, exclusive("job"), wait, Some(id)).await });
    world.until_waiters("job", 1).await;
    cut(call).await;
    world.until_waiters("job", 0).await;

    // A caller that may not wait any more gets no grace.
    let locks = world.locks.clone().with_disconnect_grace(EVER);
    let id = Some(RequestId::parse("dismissed").unwrap());
    let begun = locks.begin_acquire(
        b,
        exclusive("job"),
        HoldBounds::default(),
        WaitFor::Forever,
        id,
        0,
    );
    let Started::Queued(queued) = begun.await.unwrap() else {
        panic!("the lock is held");
    };
    let dismissal = Refusal::SessionRequired;
    let dismissed = queued.granted_unless(std::future::ready(dismissal.clone())).await;
    assert_eq!(dismissed, Err(dismissal.into()));
    world.until_waiters("job", 0).await;
    world.stop().await;
}

#[tokio::test]
async fn a_lock_granted_to_a_cut_off_caller_is_released_after_the_granted_grace() {
    let world = World::new().await;
    let (a, b, c) = (
        world.session().await,
        world.session().await,
        world.session().await,
    );
    let grant = world.held(a, "job").await;
    let call = kept(&world, b, 0, EVER);
    world.until_waiters("job", 1).await;
    let other = world.waiting(c, exclusive("job"), WaitFor::Forever);
    world.until_waiters("job", 2).await;
    cut(call).await;
    let released = Instant::now();
    world.release(a, &grant).await.unwrap();
    let holder = |store: &Store| store.lock(&lock("job")).unwrap().holders[0].session;
    assert_eq!(world.node.read(holder), b);
    let grant = other.await.unwrap().unwrap();
    assert!(released.elapsed() >= GRANTED_GRACE);

    // A repetition within the grace gets the lock.
    let call = kept(&world, b, 1, EVER);
    world.until_waiters("job", 1).await;
    cut(call).await;
    world.release(c, &grant).await.unwrap();
    let grant = kept(&world, b, 2, EVER).await.unwrap().unwrap();
    world.until_calls(0).await;
    assert_eq!(world.release(b, &grant).await, Ok(0));
    world.until_free("job").await;
    world.stop().await;
}

#[tokio::test]
async fn several_locks_and_upgrades_are_kept_likewise() {
    let world = World::new().await;
    let (a, b) = (world.session().await, world.session().await);
    let id = |text: &str| Some(RequestId::parse(text).unwrap());
    let locks = world.locks.clone().with_disconnect_grace(EVER);
    let grant = world.held(a, "held").await;
    let many = |retry: u16| {
        let (locks, wishes) = (locks.clone(), vec![exclusive("held"), exclusive("held, too")]);
        let id = id("many");
        tokio::spawn(async move { locks.acquire_many(b, wishes, WaitFor::Forever, id, retry).await })
    };
    let also = world.held(a, "held, too").await;
    let first = many(0);
    world.until_waiters("held, too", 1).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let other = world.waiting(a, exclusive("other"), WaitFor::Forever);
    other.await.unwrap().unwrap();
    let again = many(1);
    for held in [&grant, &also] {
        world.release(a, held).await.unwrap();
    }
    let grants = again.await.unwrap().unwrap();
    world.until_calls(0).await;
    for grant in &grants {
        assert_eq!(world.release(b, grant).await, Ok(0));
    }

    let acquire = async |session, mode| {
        let wish = wish("book", mode);
        world
            .locks
            .acquire(session, wish, WaitFor::Try, None)
            .await
            .unwrap()
    };
    let reader = acquire(a, LockMode::Shared).await;
    let upgradeable = acquire(b, LockMode::Upgradeable).await;
    let upgrade = |retry: u16| {
        let (locks, holder) = (locks.clone(), upgradeable.holder.clone());
        let id = id("upgrade");
        tokio::spawn(async move {
            locks
                .upgrade(b, lock("book"), holder, WaitFor::Forever, id, retry)
                .await
        })
    };
    let upgrading = |store: &Store, _: Option<&LockView>| {
        matches!(
            store.contender_state(&lock("book"), &upgradeable.holder),
            Some(znode_store::ContenderState::Upgrades(_))
        )
    };
    let first = upgrade(0);
    world.until("book", upgrading).await;
    cut(first).await;
    let again = upgrade(1);
    assert!(world.node.read(|store| upgrading(store, None)));
    world.release(a, &reader).await.unwrap();
    let alone = again.await.unwrap().unwrap();
    world.until_calls(0).await;
    assert_eq!(alone.mode, LockMode::Exclusive);
    let standing = world
        .node
        .read(|store| store.contender_state(&lock("book"), &alone.holder));
    assert_eq!(standing, Some(znode_store::ContenderState::Holds(alone)));
    world.stop().await;
}

#[tokio::test]
async fn stopping_node_keeps_no_contenders() {
    let world = World::new().await;
    let (a, b) = (world.session().await, world.session().await);
    world.held(a, "job").await;
    let call = kept(&world, b, 0, EVER);
    world.until_waiters("job", 1).await;
    cut(call).await;
    tokio::time::timeout(LONG, world.locks.close())
        .await
        .expect("it waits for a caller that is gone");
    assert_eq!(world.locks.get(&lock("job"), 9).unwrap().0.queue, []);
    world.stop().await;
}

#[tokio::test]
async fn close_ends_waiting_calls() {
    let world = World::new().await;
    let (a, b, c) = (
        world.session().await,
        world.session().await,
        world.session().await,
    );
    world.held(a, "job").await;
    let plain = world.waiting(b, exclusive("job"), WaitFor::Forever);
    world.until_waiters("job", 1).await;
    let locks = world.locks.clone();
    let id = Some(RequestId::parse("r").unwrap());
    let repeatable =
        tokio::spawn(async move { locks.acquire(c, exclusive("job"), WaitFor::Forever, id).await });
    world.until_waiters("job", 2).await;
    world.locks.close().await;
    assert!(matches!(plain.await.unwrap(), Err(LockError::Unavailable(_))));
    assert!(matches!(
        repeatable.await.unwrap(),
        Err(LockError::OutcomeUnknown(_))
    ));
    let queue = world.locks.get(&lock("job"), 9).unwrap().0.queue;
    assert_eq!(queue.iter().map(|waiter| waiter.session).collect::<Vec<_>>(), [c]);
    let late = world.locks.acquire(b, exclusive("job"), WaitFor::Try, None).await;
    assert!(matches!(late, Err(LockError::Unavailable(_))));
    world.stop().await;
}

#[tokio::test]
async fn stopping_node_ends_all_waits() {
    let world = World::new().await;
    let (a, b) = (world.session().await, world.session().await);
    world.held(a, "job").await;
    let waiter = world.waiting(b, exclusive("job"), WaitFor::Forever);
    world.until_waiters("job", 1).await;
    world.node.stop().await;
    assert!(matches!(waiter.await.unwrap(), Err(LockError::OutcomeUnknown(_))));
    let late = world.locks.acquire(b, exclusive("job"), WaitFor::Try, None).await;
    assert!(matches!(late, Err(LockError::Unavailable(_))));
}

/// Proposes a call whose caller never receives the outcome.
async fn orphan(world: &World, session: SessionId, attempt: AttemptId) {
    let wish = exclusive("job");
    let acquire = LockCommand::Acquire {
        wish,
        guid: 1,
        attempt,
        wait: true,
    };
    world
        .locks
        .shared
        .propose(Identities::none(), Some(session), None, acquire)
        .await
        .unwrap();
}

fn tidy_up(world: &World, session: SessionId, attempt: AttemptId) -> JoinHandle<()> {
    let abandoned = clean_up::Abandoned {
        shared: world.locks.shared.clone(),
        session,
        kind: CallKind::Acquire(vec![lock("job")]),
        attempt,
        kept_until: Instant::now(),
    };
    tokio::spawn(abandoned.clean_up(call::Stage::Unknown))
}

#[tokio::test]
async fn a_call_of_unknown_outcome_is_found_and_taken_back() {
    let world = World::new().await;
    let (a, b) = (world.session().await, world.session().await);
    // Granted, and waiting.
    orphan(&world, a, AttemptId(1)).await;
    orphan(&world, b, AttemptId(2)).await;
    tidy_up(&world, b, AttemptId(2)).await.unwrap();
    world.until_waiters("job", 0).await;
    tidy_up(&world, a, AttemptId(1)).await.unwrap();
    world.until_free("job").await;
    // The contender appears only during the search, and a contender of another attempt is not mistaken for it.
    let looking = tidy_up(&world, a, AttemptId(4));
    orphan(&world, a, AttemptId(3)).await;
    orphan(&world, a, AttemptId(4)).await;
    looking.await.unwrap();
    let holds: Vec<u32> = world
        .locks
        .get(&lock("job"), 9)
        .unwrap()
        .0
        .holders
        .iter()
        .map(|holder| holder.holds)
        .collect();
    assert_eq!(holds, [1]);
    world.stop().await;
}

#[tokio::test]
async fn with_its_session_a_call_is_looked_for_no_more() {
    let world = World::new().await;
    let a = world.session().await;
    let looking = tidy_up(&world, a, AttemptId(1));
    let close = Request {
        session: None,
        request_id: None,
        caller: Identities::none(),
        command: Command::CloseSession { session: a },
    };
    orphan(&world, a, AttemptId(2)).await;
    world.node.propose(close).await.unwrap().outcome.unwrap();
    tokio::time::timeout(LONG, looking)
        .await
        .expect("it goes on looking")
        .unwrap();
    world.stop().await;
}
