//! The network between machines: connections that keep the order of what is sent, as TCP's do, over links that are slow, that
//! lose (a connection stalls for a retransmission, or breaks), and that may be cut in either direction alone.
//!
//! What is under way on a link when it is cut waits there, as in the sender's buffers, and comes when the link is whole again;
//! or the connection breaks, and each side learns of that when it can be reached. Connections are independent of each other, so
//! what is sent on two of them arrives in any order.

mod pipe;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use parking_lot::Mutex;
use raft_node::simulation::Line;
use tokio::sync::{mpsc, oneshot};

use self::pipe::{Reader, Writer};
use crate::agenda::{Agenda, Event, MILLI, Micros};
use crate::dice::Dice;

/// A connection.
pub type ConnId = u64;

/// Clients are about as far away as the machines are from each other.
const CLIENT_DELAY: (Micros, Micros) = (100, 900);

/// So much may be under way in one direction of a connection, read or not: then the writer waits.
const WINDOW_BYTES: usize = 512 * 1024;

/// How long a lost segment takes to be sent again: TCP's shortest time.
const RETRANSMISSION: Micros = 200 * MILLI;

/// After a link was cut, TCP tries again at growing distances: a connection goes on so much later at most.
const LONGEST_RETRY: u64 = 1_000 * MILLI;

/// With more connections than this it is looked whether some are over. All machines together have some fifty.
const KEPT_CONNECTIONS: usize = 200;

/// What arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet {
    /// A call.
    Call,
    /// The call was taken.
    Taken,
    /// Nobody listens.
    Refused,
    /// The next bytes, or the end, in one direction.
    Parcel(usize),
    /// One end learns that the connection is broken.
    Reset(usize),
}

impl Packet {
    pub(crate) fn kind(self) -> u64 {
        match self {
            Self::Call => 0,
            Self::Taken => 1,
            Self::Refused => 2,
            Self::Parcel(way) => 3 + way as u64,
            Self::Reset(end) => 5 + end as u64,
        }
    }
}

enum Parcel {
    Bytes(Bytes),
    End,
}

/// One direction of a connection: from the end of the same number to the other.
#[derive(Default)]
struct Way {
    /// Under way: an event is on the agenda for each.
    under_way: VecDeque<Parcel>,
    /// Held up by a cut, older than all that is under way.
    held: VecDeque<Parcel>,
    arrived: VecDeque<Bytes>,
    ended: bool,
    /// Bytes that were sent and not read yet.
    unread: usize,
    /// When the last one of what is under way arrives.
    last: Micros,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

struct Conn {
    ends: [usize; 2],
    ways: [Way; 2],
    broken: [bool; 2],
    /// The process at that end is gone: nobody hears what comes there.
    dead: [bool; 2],
    /// The process at that end has closed it, and may still have written something before.
    deaf: [bool; 2],
    /// Halves that are held by somebody, at both ends together.
    halves: u8,
    call: Option<oneshot::Sender<io::Result<Line>>>,
}

/// One direction between two machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Nothing comes through.
    pub cut: bool,
    /// How long a packet takes, from and to.
    pub delay: (Micros, Micros),
    /// How many of a thousand packets are lost and sent again.
    pub loss: u64,
    /// How many of ten thousand packets break their connection.
    pub breaks: u64,
}

impl Link {
    /// Whether it is as it should be.
    pub fn is_healthy(&self) -> bool {
        *self == HEALTHY
    }
}

/// A link as it should be: some tenths of a millisecond.
pub const HEALTHY: Link = Link {
    cut: false,
    delay: (100, 600),
    loss: 0,
    breaks: 0,
};

/// What of a machine the network sees.
#[derive(Default)]
struct Site {
    /// Its kernel answers, also when no process does.
    powered: bool,
    listener: Option<mpsc::UnboundedSender<(String, Line)>>,
}

/// All of it, and the agenda on which its packets are.
pub struct Network {
    /// What happens when.
    pub agenda: Agenda,
    links: Vec<Vec<Link>>,
    sites: Vec<Site>,
    conns: BTreeMap<ConnId, Conn>,
    next_conn: ConnId,
    dice: Dice,
    /// Which machines no client reaches.
    clients_cut_off: Vec<bool>,
    /// How many of a thousand requests and answers of clients are lost.
    pub client_loss: u64,
    /// How many of a thousand requests come twice.
    pub client_copies: u64,
}

/// The network, for all that are on it.
pub type Shared = Arc<Mutex<Network>>;

/// Whom an arrival concerns, and whom to wake before that machine goes on. To be woken when the network is not locked.
#[must_use]
#[derive(Default)]
pub struct Arrival {
    /// The machine.
    pub machine: Option<usize>,
    /// Tasks.
    pub wake: Vec<Waker>,
    /// Nobody took it. To be dropped when the network is not locked.
    pub unwanted: Option<Line>,
}

impl Network {
    /// A healthy network of machines that are off.
    pub fn new(machines: usize, dice: Dice) -> Self {
        Self {
            agenda: Agenda::default(),
            links: vec![vec![HEALTHY; machines]; machines],
            sites: (0..machines).map(|_| Site::default()).collect(),
            conns: BTreeMap::new(),
            next_conn: 1,
            dice,
            clients_cut_off: vec![false; machines],
            client_loss: 0,
            client_copies: 0,
        }
    }

    /// The link from one machine to another, to look at.
    pub fn link(&self, from: usize, to: usize) -> &Link {
        &self.links[from][to]
    }

    /// Changes a link. What waited because it was cut is on its way again, if it is not any more.
    pub fn set_link(&mut self, from: usize, to: usize, link: Link) {
        let healed = self.links[from][to].cut && !link.cut;
        self.links[from][to] = link;
        if !healed {
            return;
        }
        let conns = self.conns.iter_mut();
        let concerned = conns.filter_map(|(id, conn)| {
            let way = (0..2).find(|way| conn.ends[*way] == from && conn.ends[1 - way] == to)?;
            Some((*id, way, &mut conn.ways[way]))
        });
        for (id, way, held) in concerned {
            let retry = self.dice.between(0..LONGEST_RETRY);
            for parcel in std::mem::take(&mut held.held).into_iter().rev() {
                held.under_way.push_front(parcel);
                self.agenda.after(retry, Event::Network(id, Packet::Parcel(way)));
            }
            held.last = held.last.max(self.agenda.now() + retry);
        }
    }

    /// Whether clients reach a machine.
    pub fn clients_cut_off(&self, machine: usize) -> bool {
        self.clients_cut_off[machine]
    }

    /// Cuts clients off from a machine, or ends that.
    pub fn cut_clients_off(&mut self, machine: usize, cut: bool) {
        self.clients_cut_off[machine] = cut;
    }

    /// Whether this request or answer of a client is lost.
    pub fn loses_of_client(&mut self) -> bool {
        self.client_loss > 0 && self.dice.chance(self.client_loss)
    }

    /// Whether this request comes twice.
    pub fn copies_of_client(&mut self) -> bool {
        self.client_copies > 0 && self.dice.chance(self.client_copies)
    }

    /// How long a request or an answer takes.
    pub fn client_delay(&mut self) -> Micros {
        self.dice.between(CLIENT_DELAY.0..CLIENT_DELAY.1)
    }

    /// Some time up to this one.
    pub fn within(&mut self, most: Micros) -> Micros {
        self.dice.between(0..most + 1)
    }

    /// A machine is switched on, and its node listens.
    pub fn listen(&mut self, machine: usize) -> mpsc::UnboundedReceiver<(String, Line)> {
        let (listener, calls) = mpsc::unbounded_channel();
        self.sites[machine] = Site {
            powered: true,
            listener: Some(listener),
        };
        calls
    }

    /// The process of a machine is gone. If the machine still has `power` its kernel tells all whom it was connected to.
    pub fn vanish(&mut self, machine: usize, power: bool) {
        self.sites[machine] = Site {
            powered: power,
            listener: None,
        };
        let mut told = Vec::new();
        for (id, conn) in &mut self.conns {
            for end in (0..2).filter(|end| conn.ends[*end] == machine) {
                if !conn.dead[end] && power {
                    told.push((*id, 1 - end));
                }
                conn.dead[end] = true;
                if end == 0 {
                    conn.call = None;
                }
            }
        }
        for (id, end) in told {
            self.tell_broken(id, end);
        }
    }

    /// How long a packet takes on a link.
    fn delay(&mut self, from: usize, to: usize) -> Micros {
        let link = &self.links[from][to];
        let (least, most) = link.delay;
        let loss = link.loss;
        let mut delay = self.dice.between(least..most + 1);
        let mut again = RETRANSMISSION;
        while loss > 0 && self.dice.chance(loss) {
            delay += again;
            again *= 2;
        }
        delay
    }

    /// One end of a connection is told that it is broken, if it can be reached.
    fn tell_broken(&mut self, id: ConnId, end: usize) {
        let Some(conn) = self.conns.get(&id) else { return };
        let (from, to) = (conn.ends[1 - end], conn.ends[end]);
        let delay = self.delay(from, to);
        self.agenda.after(delay, Event::Network(id, Packet::Reset(end)));
    }

    fn send(&mut self, id: ConnId, way: usize, parcel: Parcel) {
        let Some(conn) = self.conns.get(&id) else { return };
        if conn.dead[way] || conn.broken[way] {
            return;
        }
        let (from, to) = (conn.ends[way], conn.ends[1 - way]);
        let delay = self.delay(from, to);
        let breaks = self.links[from][to].breaks;
        if breaks > 0 && self.dice.between(0..10_000) < breaks {
            self.tell_broken(id, 0);
            self.tell_broken(id, 1);
            return;
        }
        let conn = self.conns.get_mut(&id).expect("it was there above");
        let way_now = &mut conn.ways[way];
        if let Parcel::Bytes(bytes) = &parcel {
            way_now.unread += bytes.len();
        }
        way_now.under_way.push_back(parcel);
        let at = (self.agenda.now() + delay).max(way_now.last);
        way_now.last = at;
        let delay = at - self.agenda.now();
        self.agenda.after(delay, Event::Network(id, Packet::Parcel(way)));
    }

    /// A packet arrives.
    pub fn arrive(&mut self, shared: &Shared, id: ConnId, packet: Packet) -> Arrival {
        match packet {
            Packet::Call => self.called(shared, id),
            Packet::Taken => self.taken(shared, id),
            Packet::Refused => self.refused(id),
            Packet::Parcel(way) => self.parcel(id, way),
            Packet::Reset(end) => self.reset(id, end),
        }
    }

    fn called(&mut self, shared: &Shared, id: ConnId) -> Arrival {
        let Some(conn) = self.conns.get_mut(&id) else {
            return Arrival::default();
        };
        let [caller, callee] = conn.ends;
        let site = &self.sites[callee];
        if self.links[caller][callee].cut || !site.powered {
            // The caller's patience ends some time.
            return Arrival::default();
        }
        let from = format!("machine {}", caller + 1);
        let Some(listener) = site.listener.clone() else {
            let delay = self.delay(callee, caller);
            self.agenda.after(delay, Event::Network(id, Packet::Refused));
            return Arrival::default();
        };
        conn.halves += 2;
        let unwanted = listener.send((from, line(shared, id, 1))).err();
        let delay = self.delay(callee, caller);
        self.agenda.after(delay, Event::Network(id, Packet::Taken));
        Arrival {
            machine: Some(callee),
            wake: Vec::new(),
            unwanted: unwanted.map(|unwanted| unwanted.0.1),
        }
    }

    fn taken(&mut self, shared: &Shared, id: ConnId) -> Arrival {
        let Some(conn) = self.conns.get_mut(&id) else {
            return Arrival::default();
        };
        let [caller, callee] = conn.ends;
        if self.links[callee][caller].cut {
            return Arrival::default();
        }
        if let Some(call) = conn.call.take()
            && !call.is_closed()
        {
            conn.halves += 2;
            let unwanted = call.send(Ok(line(shared, id, 0))).err();
            return Arrival {
                machine: Some(caller),
                wake: Vec::new(),
                unwanted: unwanted.and_then(Result::ok),
            };
        }
        // The caller has given up, and says so.
        self.tell_broken(id, 1);
        Arrival::default()
    }

    fn refused(&mut self, id: ConnId) -> Arrival {
        let Some(conn) = self.conns.get_mut(&id) else {
            return Arrival::default();
        };
        let [caller, callee] = conn.ends;
        if self.links[callee][caller].cut {
            return Arrival::default();
        }
        if let Some(call) = conn.call.take() {
            // Whoever called may have given up.
            let _ = call.send(Err(io::ErrorKind::ConnectionRefused.into()));
        }
        self.conns.remove(&id);
        Arrival {
            machine: Some(caller),
            ..Arrival::default()
        }
    }

    fn parcel(&mut self, id: ConnId, way: usize) -> Arrival {
        let Some(conn) = self.conns.get_mut(&id) else {
            return Arrival::default();
        };
        let (from, to) = (conn.ends[way], conn.ends[1 - way]);
        let now = &mut conn.ways[way];
        let Some(parcel) = now.under_way.pop_front() else {
            return Arrival::default();
        };
        if self.links[from][to].cut {
            now.held.push_back(parcel);
            return Arrival::default();
        }
        if conn.dead[1 - way] || conn.broken[1 - way] || conn.deaf[1 - way] {
            if self.sites[to].powered {
                // The kernel knows no such connection.
                self.tell_broken(id, way);
            }
            return Arrival::default();
        }
        match parcel {
            Parcel::Bytes(bytes) => now.arrived.push_back(bytes),
            Parcel::End => now.ended = true,
        }
        Arrival {
            machine: Some(to),
            wake: now.reader.take().into_iter().collect(),
            unwanted: None,
        }
    }

    fn reset(&mut self, id: ConnId, end: usize) -> Arrival {
        let Some(conn) = self.conns.get_mut(&id) else {
            return Arrival::default();
        };
        let (from, to) = (conn.ends[1 - end], conn.ends[end]);
        if self.links[from][to].cut || conn.dead[end] || conn.broken[end] {
            return Arrival::default();
        }
        conn.broken[end] = true;
        let mut wake = Vec::new();
        wake.extend(conn.ways[1 - end].reader.take());
        wake.extend(conn.ways[end].writer.take());
        Arrival {
            machine: Some(to),
            wake,
            unwanted: None,
        }
    }

    /// A half of a connection was dropped.
    fn let_go(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.halves -= 1;
            if conn.halves == 0 && conn.call.is_none() {
                self.conns.remove(&id);
            }
        }
    }

    /// Calls that nobody answered, and nobody waits for any more.
    fn forget_calls(&mut self) {
        if self.conns.len() > KEPT_CONNECTIONS {
            self.conns.retain(|_, conn| {
                conn.halves > 0 || conn.call.as_ref().is_some_and(|call| !call.is_closed())
            });
        }
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.conns.len()
    }
}

/// Calls a machine.
pub fn call(shared: &Shared, from: usize, to: usize) -> oneshot::Receiver<io::Result<Line>> {
    let (call, answered) = oneshot::channel();
    let mut network = shared.lock();
    network.forget_calls();
    let id = network.next_conn;
    network.next_conn += 1;
    network.conns.insert(
        id,
        Conn {
            ends: [from, to],
            ways: Default::default(),
            broken: [false; 2],
            dead: [false; 2],
            deaf: [false; 2],
            halves: 0,
            call: Some(call),
        },
    );
    let delay = network.delay(from, to);
    network.agenda.after(delay, Event::Network(id, Packet::Call));
    answered
}

/// The two halves at one end.
fn line(shared: &Shared, id: ConnId, end: usize) -> Line {
    Line {
        reader: Box::new(Reader::new(shared.clone(), id, 1 - end)),
        writer: Box::new(Writer::new(shared.clone(), id, end)),
    }
}
