//! Machine: a clock, a disk, and at times a node. The node has a runtime of its own, whose clock is paused
//! and advances only when this machine advances it. The runtime holds the node's memory, and the memory is
//! lost with it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lock_api::locks::Locks;
use lock_node::simulation::{self, DiskTiming, DiskWork, Host, Line, Place, ReplicationHost};
use lock_node::{Node, NodeConfig};
use parking_lot::Mutex;
use raft_log::sim_disk::SimDisk;
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use znode_store::{Event as StoreEvent, Request, SessionId, Store, Zxid};

use crate::clients::{self, ClientId, ClientRequest, OpId};
use crate::device::Device;
use crate::dice::Dice;
use crate::invariants::Ledger;
use crate::log_prefix;
use crate::network::{self, Shared};
use crate::plan::Plan;
use crate::time::{MILLI, Micros};

/// Number of times that the runtime is polled for remaining work. Each time it runs until it is idle, and a
/// task that yields continues in the next round. A task that yields more often continues in the next
/// millisecond.
const ROUNDS: usize = 4;

/// Start of the wall clocks: a day in 2026.
pub const EPOCH_MS: u64 = 1_780_000_000_000;

/// Machine as the simulation sees it, with or without a running node.
pub struct Machine {
    index: usize,
    network: Shared,
    ledger: Rc<RefCell<Ledger>>,
    config: NodeConfig,
    device: Device,
    host: Rc<SimulatedHost>,
    process: Option<Process>,
    boot_count: u64,
    /// Older copy of the disk that is going to replace it.
    image: Option<Image>,
    /// Set while the disk is such a copy.
    rolled_back: Option<RolledBack>,
}

/// Copy of a machine's disk.
struct Image {
    disk: SimDisk,
    /// Start number of the data directory when the copy was made.
    start: u64,
    /// End of the log when the copy was made.
    last: u64,
}

/// State of a machine that runs on an older copy of its disk.
struct RolledBack {
    /// Disk before the replacement; `None` if it is lost.
    newest: Option<SimDisk>,
    /// Time of the replacement.
    since: Micros,
    /// The node was rejected, and has exited.
    refused: bool,
}

/// Running process.
struct Process {
    runtime: Runtime,
    base: Instant,
    /// Start of the process, and the milliseconds that its clock has counted since.
    began: Micros,
    passed_ms: u64,
    /// Rate of its clock, in thousandths.
    rate: u64,
    /// Time that passed without being counted.
    frozen: Micros,
    paused_at: Option<Micros>,
    /// Held by each unanswered request to the leader for a handover.
    moving: Arc<()>,
    state: Arc<Mutex<State>>,
    requests: BTreeMap<(ClientId, OpId), AbortHandle>,
    /// The disk was made to fail, so the process may end.
    may_fail: bool,
    /// The process was asked to stop.
    stops: bool,
}

/// State that a process reports.
#[derive(Default)]
struct State {
    node: Option<(Node, Locks)>,
    ended: Option<String>,
    stopped: bool,
}

/// Kind of a process's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// SIGKILL: what it wrote is in the kernel's cache and survives.
    Killed,
    /// The machine loses power, and with it unsynced writes; the number selects which ones.
    PowerCut(u64),
}

/// Interface of a machine to its node.
struct SimulatedHost {
    index: usize,
    removals_per_entry: Option<usize>,
    network: Shared,
    ledger: Rc<RefCell<Ledger>>,
    dice: RefCell<Dice>,
    /// Offset of the wall clock in milliseconds.
    wall_ahead: Cell<i64>,
    /// Range of the time that the log waits for the disk.
    log_takes: Cell<(Micros, Micros)>,
}

impl DiskTiming for SimulatedHost {
    fn disk_takes(&self, work: DiskWork) -> Duration {
        let (least, most) = match work {
            DiskWork::Log => self.log_takes.get(),
            DiskWork::Other => (0, 2 * MILLI),
        };
        Duration::from_micros(self.dice.borrow_mut().between(least..most + 1))
    }
}

impl ReplicationHost for SimulatedHost {
    fn wall_clock_ms(&self) -> u64 {
        let now = EPOCH_MS + self.network.lock().agenda.now() / MILLI;
        now.saturating_add_signed(self.wall_ahead.get())
    }

    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Line>> {
        let to = address.trim_start_matches("machine-").split(':').next();
        let to: Option<usize> = to.and_then(|number| number.parse().ok());
        let Some(to) = to else {
            let unknown = io::Error::other(format!("unknown machine {address}"));
            return std::future::ready(Err(unknown)).boxed();
        };
        let answered = network::call(&self.network, self.index, to - 1);
        async move {
            match answered.await {
                Ok(line) => line,
                Err(_) => Err(io::ErrorKind::ConnectionReset.into()),
            }
        }
        .boxed()
    }

    fn voted(&self, term: u64, candidate: u64, committed: bool) {
        let mut ledger = self.ledger.borrow_mut();
        ledger.voted(self.index, term, candidate, committed);
    }

    fn appended(&self, at: Place, payload: &[u8], before: Option<Place>) {
        self.ledger.borrow_mut().appended(self.index, at, payload, before);
    }

    fn applied(&self, at: Place, payload: &[u8]) {
        self.ledger.borrow_mut().applied(self.index, at, payload);
        let node = self.index as u64;
        self.network.lock().agenda.note(&[node, at.term, at.index]);
    }
}

impl Host for SimulatedHost {
    fn removals_per_entry(&self) -> Option<usize> {
        self.removals_per_entry
    }

    fn heartbeat_sent(&self, session: SessionId) {
        let now = self.network.lock().agenda.now();
        self.ledger.borrow_mut().prompt.note_activity(session, now);
    }

    fn note_activity(&self, zxid: Zxid, session: SessionId) {
        let now = self.network.lock().agenda.now();
        self.ledger.borrow_mut().prompt.note_request(session, zxid, now);
    }

    fn command_applied(&self, at: Place, zxid: Zxid, events: &[StoreEvent], store: &Store) {
        let now = self.network.lock().agenda.now();
        let mut ledger = self.ledger.borrow_mut();
        ledger.command_applied(self.index, now, at, zxid, events, store);
    }

    fn replaced(&self, at: Place, store: &Store) {
        self.ledger.borrow_mut().replaced(self.index, at, store);
    }
}

impl Machine {
    /// Creates a machine that is off, with an empty disk.
    pub fn new(index: usize, plan: &Plan, network: Shared, ledger: Rc<RefCell<Ledger>>, dice: Dice) -> Self {
        let host = Rc::new(SimulatedHost {
            index,
            removals_per_entry: plan.removals_per_entry,
            network: network.clone(),
            ledger: ledger.clone(),
            dice: RefCell::new(dice),
            wall_ahead: Cell::new(0),
            log_takes: Cell::new(HEALTHY_LOG),
        });
        Self {
            index,
            network,
            ledger,
            config: plan.config(index),
            device: Device::default(),
            host,
            process: None,
            boot_count: 0,
            image: None,
            rolled_back: None,
        }
    }

    fn now(&self) -> Micros {
        self.network.lock().agenda.now()
    }

    /// Returns whether a process runs, paused or not.
    pub fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// Returns the number of processes started so far.
    pub fn boot_count(&self) -> u64 {
        self.boot_count
    }

    /// Returns whether a process runs and is not paused.
    pub fn is_running(&self) -> bool {
        self.process
            .as_ref()
            .is_some_and(|process| process.paused_at.is_none())
    }

    /// Returns the disk.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the node, if it has started.
    pub fn node(&self) -> Option<Node> {
        let state = self.process.as_ref()?.state.lock();
        state.node.as_ref().map(|(node, _)| node.clone())
    }

    /// Allows the process to fail because its disk does.
    pub fn expect_failure(&mut self) {
        if let Some(process) = &mut self.process {
            process.may_fail = true;
        }
    }

    /// Sets the range of the time that the log waits for the disk.
    pub fn set_log_takes(&mut self, takes: (Micros, Micros)) {
        self.host.log_takes.set(takes);
    }

    /// Sets the offset of the wall clock.
    pub fn move_wall_clock(&mut self, by_ms: i64) {
        self.host.wall_ahead.set(by_ms);
    }

    /// Starts a node whose clock has this rate, in thousandths.
    pub fn boot(&mut self, rate: u64) {
        assert!(self.process.is_none(), "one process at a time");
        self.boot_count += 1;
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            // Runs until the runtime is idle.
            .event_interval(u32::MAX)
            .build()
            .expect("a runtime without threads and I/O cannot fail to start");
        let listening = self.network.lock().listen(self.index);
        let (config, device) = (self.config.clone(), Arc::new(self.device.clone()));
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        let base = {
            let _entered = runtime.enter();
            Instant::now()
        };
        runtime.spawn(async move {
            match Node::start_simulated(config, listening, device).await {
                Ok(node) => {
                    shared.lock().node = Some((node.clone(), Locks::new(node.clone())));
                    let reason = node.failed().await;
                    shared.lock().ended = Some(reason);
                }
                Err(error) => shared.lock().ended = Some(format!("the node did not start: {error}")),
            }
        });
        self.process = Some(Process {
            runtime,
            base,
            began: self.now(),
            passed_ms: 0,
            rate,
            frozen: 0,
            paused_at: None,
            moving: Arc::default(),
            state,
            requests: BTreeMap::new(),
            may_fail: false,
            stops: false,
        });
        self.ledger.borrow_mut().booted(self.index);
        self.settle();
    }

    /// Ends the process.
    pub fn end(&mut self, how: End) {
        let Some(process) = self.process.take() else {
            return;
        };
        let power = matches!(how, End::Killed);
        self.network.lock().vanish(self.index, power);
        let mixture = match how {
            End::Killed => AS_IT_IS,
            End::PowerCut(mixture) => mixture,
        };
        let left = self.device.left(mixture);
        let was_full = self.device.is_full();
        drop(process);
        self.device = Device::new(left);
        self.device.set_full(was_full);
    }

    /// Pauses the process, like a stopped process or virtual machine.
    pub fn pause(&mut self) {
        let now = self.now();
        if let Some(process) = &mut self.process {
            process.paused_at.get_or_insert(now);
        }
    }

    /// Continues the process; the flag says whether its clock ran in the meantime.
    pub fn resume(&mut self, clock_went_on: bool) {
        let now = self.now();
        let Some(process) = &mut self.process else { return };
        let Some(since) = process.paused_at.take() else {
            return;
        };
        if clock_went_on {
            // The clock jumps: all timers that were due in between fire late.
            let due_ms = process.due_ms(now);
            let jump = Duration::from_millis(due_ms - process.passed_ms);
            process.passed_ms = due_ms;
            self.run(async move { tokio::time::advance(jump).await });
        } else {
            process.frozen += now - since;
            // By the node's own clock, what it had in hand looks younger than it is.
            self.ledger.borrow_mut().passed(now - since, false);
        }
        self.settle();
    }

    /// Runs the node until it waits for a clock or for another event.
    pub fn settle(&mut self) {
        if self.is_running() {
            self.run(async {
                for _ in 0..ROUNDS {
                    tokio::task::yield_now().await;
                }
            });
        }
    }

    /// Advances the machine's time.
    pub fn tick(&mut self) {
        let now = self.now();
        let Some(process) = self
            .process
            .as_mut()
            .filter(|process| process.paused_at.is_none())
        else {
            return;
        };
        let due_ms = process.due_ms(now);
        if due_ms > process.passed_ms {
            process.passed_ms = due_ms;
            let until = process.base + Duration::from_millis(due_ms);
            self.run(async move { tokio::time::sleep_until(until).await });
        }
    }

    fn run(&self, until: impl Future<Output = ()>) {
        let Some(process) = &self.process else { return };
        let before = simulation::enter(Some(self.host.clone()));
        log_prefix::set_machine(Some(self.index));
        process.runtime.block_on(until);
        log_prefix::set_machine(None);
        simulation::enter(before);
    }

    /// Delivers a client's request. Without a process there is no response; a paused process keeps it in its
    /// buffers.
    pub fn request(&mut self, client: ClientId, op: OpId, ask: ClientRequest) {
        let Some(process) = &mut self.process else { return };
        let (state, network, index) = (process.state.clone(), self.network.clone(), self.index);
        let task = process.runtime.spawn(async move {
            let node = state.lock().node.clone();
            let answer = match node {
                Some((node, locks)) => clients::perform(&node, &locks, ask, &network).await,
                None => clients::ClientResponse::Unavailable,
            };
            clients::answer(&network, index, client, op, answer);
        });
        process.requests.retain(|_, task| !task.is_finished());
        process.requests.insert((client, op), task.abort_handle());
        self.settle();
    }

    /// Breaks a client's connection; its task is notified at once, as in an HTTP server.
    pub fn disconnect(&mut self, client: ClientId, op: OpId) {
        let Some(process) = &mut self.process else { return };
        if let Some(task) = process.requests.remove(&(client, op)) {
            task.abort();
            self.settle();
        }
    }

    /// Returns whether the process and its disk are healthy.
    pub fn is_healthy(&self) -> bool {
        let fails = self.process.as_ref().is_none_or(|process| process.may_fail);
        self.is_running()
            && !fails
            && self.rolled_back.is_none()
            && !self.device.is_full()
            && self.host.log_takes.get() == HEALTHY_LOG
    }

    /// Returns whether the process was asked to stop.
    pub fn is_stopping(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.stops)
    }

    /// Copies the disk: as it is, or as a power cut would leave it. The latter is also the content of a disk
    /// that reports every later sync as done without doing it. Returns whether a copy exists now.
    pub fn take_image(&mut self, mixture: u64) -> bool {
        let Some(node) = self.node().filter(|_| !self.device.is_cut()) else {
            return false;
        };
        self.image = Some(Image {
            disk: self.device.left(mixture),
            start: node.knows_start_of(self.id()),
            last: node.log_end(),
        });
        true
    }

    /// Returns the start number and the end of the log when the copy was made.
    pub fn image(&self) -> Option<(u64, u64)> {
        self.image.as_ref().map(|image| (image.start, image.last))
    }

    /// Returns the node's id.
    pub fn id(&self) -> u64 {
        self.config.raft.node_id
    }

    /// Ends the process, and replaces the disk by the copy; the disk is kept or lost.
    pub fn roll_back(&mut self, keep: bool) {
        let Some(image) = self.image.take() else { return };
        self.end(End::Killed);
        let newest = std::mem::replace(&mut self.device, Device::new(image.disk));
        self.rolled_back = Some(RolledBack {
            newest: keep.then(|| newest.disk().clone()),
            since: self.now(),
            refused: false,
        });
        self.ledger.borrow_mut().rolled_back(self.index, true);
    }

    /// Returns whether the disk is an older copy.
    pub fn is_rolled_back(&self) -> bool {
        self.rolled_back.is_some()
    }

    /// Returns since when the disk is an older copy, if the newest one is lost and the node has not been
    /// rejected yet.
    pub fn expects_refusal_since(&self) -> Option<Micros> {
        let old = self.rolled_back.as_ref()?;
        (!old.refused && old.newest.is_none()).then_some(old.since)
    }

    /// Returns whether the node was rejected; it is not started again with this disk.
    pub fn is_refused(&self) -> bool {
        self.rolled_back.as_ref().is_some_and(|old| old.refused)
    }

    /// Returns whether the disk is an older copy and the newest one will come back.
    pub fn regains_newest_disk(&self) -> bool {
        self.rolled_back.as_ref().is_some_and(|old| old.newest.is_some())
    }

    /// Returns whether no disk is left with which the node could rejoin.
    pub fn is_lost(&self) -> bool {
        let old = self.rolled_back.as_ref();
        old.is_some_and(|old| old.refused && old.newest.is_none())
    }

    /// Records that the node was rejected because of its disk.
    pub fn set_refused(&mut self) {
        self.end(End::Killed);
        if let Some(old) = &mut self.rolled_back {
            old.refused = true;
        }
    }

    /// Puts the newest disk back into a machine whose node was rejected. Returns whether there was one.
    pub fn put_newest_back(&mut self) -> bool {
        let newest = self.rolled_back.as_mut().filter(|old| old.refused);
        let Some(newest) = newest.and_then(|old| old.newest.take()) else {
            return false;
        };
        self.device = Device::new(newest);
        self.rolled_back = None;
        self.ledger.borrow_mut().rolled_back(self.index, false);
        true
    }

    /// Makes the node ask the leader for a handover.
    pub fn move_leader(&mut self) {
        let (Some(process), Some(node)) = (&self.process, self.node()) else {
            return;
        };
        let moving = process.moving.clone();
        process.runtime.spawn(async move {
            let _moving = moving;
            let moved = node.move_leader(None).await;
            tracing::info!(?moved, "leadership handover requested");
        });
        self.settle();
    }

    /// Proposes a request at the node. The outcome is logged and not awaited.
    pub fn propose(&mut self, request: Request) {
        let (Some(process), Some(node)) = (&self.process, self.node()) else {
            return;
        };
        process.runtime.spawn(async move {
            let outcome = node.propose(request).await;
            tracing::info!(?outcome, "request proposed");
        });
        self.settle();
    }

    /// Returns whether a request for a handover is pending.
    pub fn moves_leader(&self) -> bool {
        self.process
            .as_ref()
            .is_some_and(|process| Arc::strong_count(&process.moving) > 1)
    }

    /// Shuts the node down gracefully. The process ends afterwards.
    pub fn stop(&mut self) {
        let Some(process) = &mut self.process else { return };
        process.stops = true;
        let state = process.state.clone();
        process.runtime.spawn(async move {
            let node = state.lock().node.clone();
            if let Some((node, locks)) = node {
                locks.close().await;
                node.stop().await;
            }
            state.lock().stopped = true;
        });
        self.settle();
    }

    /// Returns the reason why the process has to end, and whether that is unexpected.
    pub fn ended(&self) -> Option<(String, bool)> {
        let process = self.process.as_ref()?;
        if self.device.is_cut() {
            return Some(("the power was cut".to_owned(), false));
        }
        if process.state.lock().stopped {
            return Some(("the node was stopped".to_owned(), false));
        }
        let reason = process.state.lock().ended.clone()?;
        let surprising = !process.may_fail || reason.contains("panicked");
        Some((reason, surprising))
    }
}

impl Process {
    /// Returns the number of milliseconds that its clock should have counted.
    fn due_ms(&self, now: Micros) -> u64 {
        let lived = now - self.began - self.frozen;
        (lived * self.rate / 1_000_000).max(self.passed_ms)
    }
}

/// Number of the power cut that keeps everything written.
pub const AS_IT_IS: u64 = 1;

/// Range of the time that a healthy disk takes for the log.
pub const HEALTHY_LOG: (Micros, Micros) = (0, 2 * MILLI);
