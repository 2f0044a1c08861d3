//! A machine: a clock, a disk, and at times a node. The node has a runtime of its own, whose clock stands still unless
//! this machine says that time has passed; what the runtime holds is what is in memory, and is gone with it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lock_api::locks::Locks;
use parking_lot::Mutex;
use raft_log::sim_disk::SimDisk;
use raft_node::simulation::{self, DiskTiming, DiskWork, Host, Line, Place};
use raft_node::{Node, NodeConfig};
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use znode_store::{Event as StoreEvent, Request, SessionId, Store, Zxid};

use crate::agenda::{MILLI, Micros};
use crate::clients::{self, Ask, ClientId, OpId};
use crate::device::Device;
use crate::dice::Dice;
use crate::invariants::Ledger;
use crate::log_prefix;
use crate::network::{self, Shared};

/// So often the runtime is asked whether something is left to do: each time it runs until nothing is, and what yields
/// in between goes on in the next round. What yields more often goes on in the next millisecond.
const ROUNDS: usize = 4;

/// What wall clocks start from: a day in 2026.
pub const EPOCH_MS: u64 = 1_780_000_000_000;

/// What the world knows of a machine whatever runs on it.
pub struct Machine {
    index: usize,
    network: Shared,
    ledger: Rc<RefCell<Ledger>>,
    config: NodeConfig,
    device: Device,
    host: Rc<Computer>,
    life: Option<Life>,
    lives: u64,
    /// An older copy of the disk, which is to come in place of it.
    image: Option<Image>,
    /// The disk is such a copy.
    rolled_back: Option<RolledBack>,
}

/// A copy of a machine's disk.
struct Image {
    disk: SimDisk,
    /// The start of the data directory in which it was taken.
    start: u64,
    /// The end of the log then.
    last: u64,
}

/// What is known of a machine that has an older copy of its disk.
struct RolledBack {
    /// The disk that it had before. None if it is lost.
    newest: Option<SimDisk>,
    /// When the copy came.
    since: Micros,
    /// Whether the node was refused, and has ended.
    refused: bool,
}

/// A running process.
struct Life {
    runtime: Runtime,
    base: Instant,
    /// When it began, and how many milliseconds its clock has counted since.
    began: Micros,
    passed_ms: u64,
    /// How fast its clock is, in thousandths.
    rate: u64,
    /// Time that passed without being counted.
    frozen: Micros,
    paused_at: Option<Micros>,
    /// Held by each request to the leader to hand over that is not answered.
    moving: Arc<()>,
    state: Arc<Mutex<State>>,
    requests: BTreeMap<(ClientId, OpId), AbortHandle>,
    /// Sessions whose heartbeats wait until the process goes on.
    unheard: Vec<SessionId>,
    /// Its disk was made to fail, so it may end.
    may_fail: bool,
    /// It was asked to stop.
    stops: bool,
}

/// What a process tells.
#[derive(Default)]
struct State {
    node: Option<(Node, Locks)>,
    ended: Option<String>,
    stopped: bool,
}

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// SIGKILL: what it wrote is in the kernel's hands.
    Killed,
    /// The machine loses power, and with it what was not synced: some of it, by this number.
    PowerCut(u64),
}

/// What a node is told by its machine.
struct Computer {
    index: usize,
    network: Shared,
    ledger: Rc<RefCell<Ledger>>,
    dice: RefCell<Dice>,
    /// How much the wall clock is ahead, in milliseconds.
    wall_ahead: Cell<i64>,
    /// How long the log waits for the disk, from and to.
    log_takes: Cell<(Micros, Micros)>,
}

impl DiskTiming for Computer {
    fn disk_takes(&self, work: DiskWork) -> Duration {
        let (least, most) = match work {
            DiskWork::Log => self.log_takes.get(),
            DiskWork::Other => (0, 2 * MILLI),
        };
        Duration::from_micros(self.dice.borrow_mut().between(least..most + 1))
    }
}

impl Host for Computer {
    fn wall_clock_ms(&self) -> u64 {
        let now = EPOCH_MS + self.network.lock().agenda.now() / MILLI;
        now.saturating_add_signed(self.wall_ahead.get())
    }

    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Line>> {
        let to = address.trim_start_matches("machine-").split(':').next();
        let to: Option<usize> = to.and_then(|number| number.parse().ok());
        let Some(to) = to else {
            let unknown = io::Error::other(format!("there is no machine {address}"));
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

    fn heard(&self, zxid: Zxid, session: SessionId) {
        let now = self.network.lock().agenda.now();
        self.ledger.borrow_mut().prompt.asked(session, zxid, now);
    }

    fn carried_out(&self, at: Place, zxid: Zxid, events: &[StoreEvent], store: &Store) {
        let now = self.network.lock().agenda.now();
        let mut ledger = self.ledger.borrow_mut();
        ledger.carried_out(self.index, now, at, zxid, events, store);
    }

    fn applied(&self, at: Place, payload: &[u8]) {
        self.ledger.borrow_mut().applied(self.index, at, payload);
        let node = self.index as u64;
        self.network.lock().agenda.note(&[node, at.term, at.index]);
    }

    fn replaced(&self, at: Place, store: &Store) {
        self.ledger.borrow_mut().replaced(self.index, at, store);
    }
}

impl Machine {
    /// A machine that is off, with an empty disk.
    pub fn new(
        index: usize,
        config: NodeConfig,
        network: Shared,
        ledger: Rc<RefCell<Ledger>>,
        dice: Dice,
    ) -> Self {
        let host = Rc::new(Computer {
            index,
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
            config,
            device: Device::default(),
            host,
            life: None,
            lives: 0,
            image: None,
            rolled_back: None,
        }
    }

    fn now(&self) -> Micros {
        self.network.lock().agenda.now()
    }

    /// Whether a process runs, paused or not.
    pub fn is_up(&self) -> bool {
        self.life.is_some()
    }

    /// How many processes were started.
    pub fn lives(&self) -> u64 {
        self.lives
    }

    /// Whether a process runs and is not paused.
    pub fn is_running(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.paused_at.is_none())
    }

    /// The disk.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The node, if it has started.
    pub fn node(&self) -> Option<Node> {
        let state = self.life.as_ref()?.state.lock();
        state.node.as_ref().map(|(node, _)| node.clone())
    }

    /// Lets the process fail for once: its disk does.
    pub fn expect_failure(&mut self) {
        if let Some(life) = &mut self.life {
            life.may_fail = true;
        }
    }

    /// Sets how long the log waits for the disk.
    pub fn set_log_takes(&mut self, takes: (Micros, Micros)) {
        self.host.log_takes.set(takes);
    }

    /// Moves the wall clock.
    pub fn move_wall_clock(&mut self, by_ms: i64) {
        self.host.wall_ahead.set(by_ms);
    }

    /// Starts a node. Its clock has this rate, in thousandths.
    pub fn boot(&mut self, rate: u64) {
        assert!(self.life.is_none(), "one process at a time");
        self.lives += 1;
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            // Until there is nothing left to do.
            .event_interval(u32::MAX)
            .build()
            .expect("a runtime without threads and without I/O needs nothing");
        let listening = self.network.lock().listen(self.index);
        let (config, device) = (self.config.clone(), Arc::new(self.device.clone()));
        let state = Arc::new(Mutex::new(State::default()));
        let told = state.clone();
        let base = {
            let _entered = runtime.enter();
            Instant::now()
        };
        runtime.spawn(async move {
            match Node::start_simulated(config, listening, device).await {
                Ok(node) => {
                    told.lock().node = Some((node.clone(), Locks::new(node.clone())));
                    let reason = node.failed().await;
                    told.lock().ended = Some(reason);
                }
                Err(error) => told.lock().ended = Some(format!("it did not start: {error}")),
            }
        });
        self.life = Some(Life {
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
            unheard: Vec::new(),
            may_fail: false,
            stops: false,
        });
        self.ledger.borrow_mut().booted(self.index);
        self.settle();
    }

    /// Ends the process.
    pub fn end(&mut self, how: End) {
        let Some(life) = self.life.take() else { return };
        let power = matches!(how, End::Killed);
        self.network.lock().vanish(self.index, power);
        let mixture = match how {
            End::Killed => AS_IT_IS,
            End::PowerCut(mixture) => mixture,
        };
        let left = self.device.left(mixture);
        let was_full = self.device.is_full();
        drop(life);
        self.device = Device::new(left);
        self.device.set_full(was_full);
    }

    /// Stands still: as a process that is stopped, or a virtual machine.
    pub fn pause(&mut self) {
        let now = self.now();
        if let Some(life) = &mut self.life {
            life.paused_at.get_or_insert(now);
        }
    }

    /// Goes on. Its clock has gone on meanwhile, or has stood still with it.
    pub fn resume(&mut self, clock_went_on: bool) {
        let now = self.now();
        let Some(life) = &mut self.life else { return };
        let Some(since) = life.paused_at.take() else {
            return;
        };
        let mut ledger = self.ledger.borrow_mut();
        for session in std::mem::take(&mut life.unheard) {
            ledger.prompt.heard(session, now);
        }
        drop(ledger);
        if clock_went_on {
            // All at once: what was due in between is late.
            let due_ms = life.due_ms(now);
            let jump = Duration::from_millis(due_ms - life.passed_ms);
            life.passed_ms = due_ms;
            self.run(async move { tokio::time::advance(jump).await });
        } else {
            life.frozen += now - since;
            // What it had in hand looks younger by its clock than it is.
            self.ledger.borrow_mut().prompt.passed(now - since, false);
        }
        self.settle();
    }

    /// Lets the node do what there is to do, until it waits for a clock or for somebody else.
    pub fn settle(&mut self) {
        if self.is_running() {
            self.run(async {
                for _ in 0..ROUNDS {
                    tokio::task::yield_now().await;
                }
            });
        }
    }

    /// Lets the machine's time go on.
    pub fn tick(&mut self) {
        let now = self.now();
        let Some(life) = self.life.as_mut().filter(|life| life.paused_at.is_none()) else {
            return;
        };
        let due_ms = life.due_ms(now);
        if due_ms > life.passed_ms {
            life.passed_ms = due_ms;
            let until = life.base + Duration::from_millis(due_ms);
            self.run(async move { tokio::time::sleep_until(until).await });
        }
    }

    fn run(&self, until: impl Future<Output = ()>) {
        let Some(life) = &self.life else { return };
        let before = simulation::enter(Some(self.host.clone()));
        log_prefix::set_machine(Some(self.index));
        life.runtime.block_on(until);
        log_prefix::set_machine(None);
        simulation::enter(before);
    }

    /// A client's request arrives. If no process runs nobody answers; one that is paused has it in its buffers.
    pub fn request(&mut self, client: ClientId, op: OpId, ask: Ask) {
        let now = self.now();
        let Some(life) = &mut self.life else { return };
        if let Ask::Heartbeat(session) = ask {
            match life.paused_at {
                Some(_) => life.unheard.push(session),
                None => self.ledger.borrow_mut().prompt.heard(session, now),
            }
        }
        let (state, network, index) = (life.state.clone(), self.network.clone(), self.index);
        let task = life.runtime.spawn(async move {
            let node = state.lock().node.clone();
            let answer = match node {
                Some((node, locks)) => clients::perform(&node, &locks, ask, &network).await,
                None => clients::Answer::Unavailable,
            };
            clients::answer(&network, index, client, op, answer);
        });
        life.requests.retain(|_, task| !task.is_finished());
        life.requests.insert((client, op), task.abort_handle());
        self.settle();
    }

    /// A client's connection breaks: whoever serves it is told at once, as an HTTP server is.
    pub fn hang_up(&mut self, client: ClientId, op: OpId) {
        let Some(life) = &mut self.life else { return };
        if let Some(task) = life.requests.remove(&(client, op)) {
            task.abort();
            self.settle();
        }
    }

    /// Whether the process and its disk are as they should be.
    pub fn is_well(&self) -> bool {
        let fails = self.life.as_ref().is_none_or(|life| life.may_fail);
        self.is_running()
            && !fails
            && self.rolled_back.is_none()
            && !self.device.is_full()
            && self.host.log_takes.get() == HEALTHY_LOG
    }

    /// Whether the process was asked to stop.
    pub fn is_stopping(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.stops)
    }

    /// Keeps a copy of the disk: as it is, or as one of those that a power cut would leave. The second is also what a disk
    /// has that reports every later sync as done and forgets it. Says whether there is a copy now.
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

    /// The start in which the copy was taken, and the end of the log then.
    pub fn image(&self) -> Option<(u64, u64)> {
        self.image.as_ref().map(|image| (image.start, image.last))
    }

    /// The node's id.
    pub fn id(&self) -> u64 {
        self.config.node_id
    }

    /// Ends the process, and puts the copy in place of the disk, which is kept or lost.
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

    /// Whether the disk is an older copy.
    pub fn is_rolled_back(&self) -> bool {
        self.rolled_back.is_some()
    }

    /// Since when the disk is an older copy because of which the node was not refused yet, if the newest one is lost.
    pub fn expects_refusal_since(&self) -> Option<Micros> {
        let old = self.rolled_back.as_ref()?;
        (!old.refused && old.newest.is_none()).then_some(old.since)
    }

    /// Whether the node was refused, and nobody starts it again with this disk.
    pub fn is_refused(&self) -> bool {
        self.rolled_back.as_ref().is_some_and(|old| old.refused)
    }

    /// Returns whether the disk is an older copy and the newest one will come back.
    pub fn gets_newest_back(&self) -> bool {
        self.rolled_back.as_ref().is_some_and(|old| old.newest.is_some())
    }

    /// Whether there is no disk with which the node could take part again.
    pub fn is_lost(&self) -> bool {
        let old = self.rolled_back.as_ref();
        old.is_some_and(|old| old.refused && old.newest.is_none())
    }

    /// The node was refused because of its disk.
    pub fn set_refused(&mut self) {
        self.end(End::Killed);
        if let Some(old) = &mut self.rolled_back {
            old.refused = true;
        }
    }

    /// Puts the newest disk back into a machine whose node was refused. Says whether there was one.
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

    /// Has the node ask the leader to hand over.
    pub fn move_leader(&mut self) {
        let (Some(life), Some(node)) = (&self.life, self.node()) else {
            return;
        };
        let moving = life.moving.clone();
        life.runtime.spawn(async move {
            let _moving = moving;
            let moved = node.move_leader(None).await;
            tracing::info!(?moved, "the leader was asked to hand over");
        });
        self.settle();
    }

    /// Proposes a request at the node. The outcome is logged and not waited for.
    pub fn propose(&mut self, request: Request) {
        let (Some(life), Some(node)) = (&self.life, self.node()) else {
            return;
        };
        life.runtime.spawn(async move {
            let outcome = node.propose(request).await;
            tracing::info!(?outcome, "a request was proposed");
        });
        self.settle();
    }

    /// Whether it has asked the leader to hand over, and is not answered yet.
    pub fn moves_leader(&self) -> bool {
        self.life
            .as_ref()
            .is_some_and(|life| Arc::strong_count(&life.moving) > 1)
    }

    /// Stops the node in order. The process ends when it has.
    pub fn stop(&mut self) {
        let Some(life) = &mut self.life else { return };
        life.stops = true;
        let state = life.state.clone();
        life.runtime.spawn(async move {
            let node = state.lock().node.clone();
            if let Some((node, locks)) = node {
                locks.close().await;
                node.stop().await;
            }
            state.lock().stopped = true;
        });
        self.settle();
    }

    /// Why the process is to end, and whether that is a surprise.
    pub fn ended(&self) -> Option<(String, bool)> {
        let life = self.life.as_ref()?;
        if self.device.is_cut() {
            return Some(("the power was cut".to_owned(), false));
        }
        if life.state.lock().stopped {
            return Some(("it was stopped".to_owned(), false));
        }
        let reason = life.state.lock().ended.clone()?;
        let surprising = !life.may_fail || reason.contains("panicked");
        Some((reason, surprising))
    }
}

impl Life {
    /// How many milliseconds its clock should have counted.
    fn due_ms(&self, now: Micros) -> u64 {
        let lived = now - self.began - self.frozen;
        (lived * self.rate / 1_000_000).max(self.passed_ms)
    }
}

/// What a power cut leaves by this number: all that was written.
pub const AS_IT_IS: u64 = 1;

/// How long a disk takes for the log, if all is well.
pub const HEALTHY_LOG: (Micros, Micros) = (0, 2 * MILLI);
