//! Network between machines: connections that preserve the order of their bytes, as TCP's do. Links may be
//! slow, may lose packets (a connection stalls for a retransmission, or breaks), and may be cut in either
//! direction alone.
//!
//! Packets in flight on a link when it is cut wait there, as in the sender's buffers, and arrive once the
//! link is healthy again. Or the connection breaks, and each side learns of that when it can be reached.
//! Connections are independent, so packets on two of them arrive in any order.

pub mod packet;
mod pipe;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use lock_node::simulation::Line;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

pub use self::packet::{ConnId, Packet};
use self::pipe::{Reader, Writer};
use crate::agenda::{Agenda, Event};
use crate::dice::Dice;
use crate::time::{MILLI, Micros};

/// Delay between clients and machines, about the same as between machines.
const CLIENT_DELAY: (Micros, Micros) = (100, 900);

/// Limit of unread bytes in one direction of a connection; beyond it the writer waits.
const WINDOW_BYTES: usize = 512 * 1024;

/// Delay of a retransmission: TCP's shortest.
const RETRANSMISSION: Micros = 200 * MILLI;

/// Maximum delay after a cut before a connection continues: TCP retries at growing intervals.
const LONGEST_RETRY: u64 = 1_000 * MILLI;

/// Number of connections above which finished ones are removed. All machines together have about fifty.
const KEPT_CONNECTIONS: usize = 200;

enum Parcel {
    Bytes(Bytes),
    End,
}

/// One direction of a connection: from the end with the same number to the other end.
#[derive(Default)]
struct Direction {
    /// Parcels in flight; the agenda has an event for each.
    under_way: VecDeque<Parcel>,
    /// Parcels held up by a cut, older than all in flight.
    held: VecDeque<Parcel>,
    arrived: VecDeque<Bytes>,
    ended: bool,
    /// Bytes that were sent but not yet read.
    unread: usize,
    /// Arrival time of the last parcel in flight.
    last: Micros,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

struct Conn {
    ends: [usize; 2],
    directions: [Direction; 2],
    broken: [bool; 2],
    /// The process at that end is gone: nothing that arrives there is received.
    dead: [bool; 2],
    /// The process at that end has closed the connection, and may have written something before.
    deaf: [bool; 2],
    /// Halves in use, at both ends together.
    halves: u8,
    call: Option<oneshot::Sender<io::Result<Line>>>,
}

/// One direction between two machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Nothing arrives.
    pub cut: bool,
    /// Range of a packet's delay.
    pub delay: (Micros, Micros),
    /// Packets in a thousand that are lost and retransmitted.
    pub loss: u64,
    /// Packets in ten thousand that break their connection.
    pub breaks: u64,
}

impl Link {
    /// Returns whether the link has its normal quality.
    pub fn is_healthy(&self) -> bool {
        *self == HEALTHY
    }
}

/// Healthy link, with a delay of some tenths of a millisecond.
pub const HEALTHY: Link = Link {
    cut: false,
    delay: (100, 600),
    loss: 0,
    breaks: 0,
};

/// State of a machine that the network sees.
#[derive(Default)]
struct Site {
    /// Its kernel answers, even without a process.
    powered: bool,
    listener: Option<mpsc::UnboundedSender<(String, Line)>>,
}

/// Network with the agenda of its packets.
pub struct Network {
    /// Event queue.
    pub agenda: Agenda,
    links: Vec<Vec<Link>>,
    sites: Vec<Site>,
    conns: BTreeMap<ConnId, Conn>,
    next_conn: ConnId,
    dice: Dice,
    /// Machines that no client reaches.
    clients_cut_off: Vec<bool>,
    /// Requests and responses of clients in a thousand that are lost.
    pub client_loss: u64,
    /// Requests in a thousand that arrive twice.
    pub client_copies: u64,
}

/// Network, shared by everything that is connected to it.
pub type Shared = Arc<Mutex<Network>>;

/// Effect of an arrival: the machine that it concerns, and the tasks to wake before that machine continues.
/// They must be woken while the network is not locked.
#[must_use]
#[derive(Default)]
pub struct Arrival {
    /// The machine that continues.
    pub machine: Option<usize>,
    /// Tasks to wake.
    pub wake: Vec<Waker>,
    /// Line that no one accepted; to be dropped while the network is not locked.
    pub unwanted: Option<Line>,
}

impl Network {
    /// Creates a healthy network of machines that are off.
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

    /// Returns the link from one machine to another.
    pub fn link(&self, from: usize, to: usize) -> &Link {
        &self.links[from][to]
    }

    /// Changes a link. If it is no longer cut, the parcels that were held up are in flight again.
    pub fn set_link(&mut self, from: usize, to: usize, link: Link) {
        let healed = self.links[from][to].cut && !link.cut;
        self.links[from][to] = link;
        if !healed {
            return;
        }
        let conns = self.conns.iter_mut();
        let concerned = conns.filter_map(|(id, conn)| {
            let direction =
                (0..2).find(|direction| conn.ends[*direction] == from && conn.ends[1 - direction] == to)?;
            Some((*id, direction, &mut conn.directions[direction]))
        });
        for (id, direction, held) in concerned {
            let retry = self.dice.between(0..LONGEST_RETRY);
            for parcel in std::mem::take(&mut held.held).into_iter().rev() {
                held.under_way.push_front(parcel);
                self.agenda
                    .after(retry, Event::Network(id, Packet::Parcel(direction)));
            }
            held.last = held.last.max(self.agenda.now() + retry);
        }
    }

    /// Returns whether clients are cut off from a machine.
    pub fn clients_cut_off(&self, machine: usize) -> bool {
        self.clients_cut_off[machine]
    }

    /// Cuts clients off from a machine, or reconnects them.
    pub fn cut_clients_off(&mut self, machine: usize, cut: bool) {
        self.clients_cut_off[machine] = cut;
    }

    /// Draws whether this request or response of a client is lost.
    pub fn loses_of_client(&mut self) -> bool {
        self.client_loss > 0 && self.dice.chance(self.client_loss)
    }

    /// Draws whether this request arrives twice.
    pub fn copies_of_client(&mut self) -> bool {
        self.client_copies > 0 && self.dice.chance(self.client_copies)
    }

    /// Draws the delay of a request or response.
    pub fn client_delay(&mut self) -> Micros {
        self.dice.between(CLIENT_DELAY.0..CLIENT_DELAY.1)
    }

    /// Draws a time up to `most`.
    pub fn within(&mut self, most: Micros) -> Micros {
        self.dice.between(0..most + 1)
    }

    /// Switches a machine on; its node listens.
    pub fn listen(&mut self, machine: usize) -> mpsc::UnboundedReceiver<(String, Line)> {
        let (listener, calls) = mpsc::unbounded_channel();
        self.sites[machine] = Site {
            powered: true,
            listener: Some(listener),
        };
        calls
    }

    /// Removes the process of a machine. If the machine still has `power`, its kernel notifies all peers of
    /// the broken connections.
    pub fn vanish(&mut self, machine: usize, power: bool) {
        self.sites[machine] = Site {
            powered: power,
            listener: None,
        };
        let mut to_notify = Vec::new();
        for (id, conn) in &mut self.conns {
            for end in (0..2).filter(|end| conn.ends[*end] == machine) {
                if !conn.dead[end] && power {
                    to_notify.push((*id, 1 - end));
                }
                conn.dead[end] = true;
                if end == 0 {
                    conn.call = None;
                }
            }
        }
        for (id, end) in to_notify {
            self.notify_broken(id, end);
        }
    }

    /// Draws the delay of a packet on a link.
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

    /// Notifies one end of a broken connection, if it can be reached.
    fn notify_broken(&mut self, id: ConnId, end: usize) {
        let Some(conn) = self.conns.get(&id) else { return };
        let (from, to) = (conn.ends[1 - end], conn.ends[end]);
        let delay = self.delay(from, to);
        self.agenda.after(delay, Event::Network(id, Packet::Reset(end)));
    }

    fn send(&mut self, id: ConnId, direction: usize, parcel: Parcel) {
        let Some(conn) = self.conns.get(&id) else { return };
        if conn.dead[direction] || conn.broken[direction] {
            return;
        }
        let (from, to) = (conn.ends[direction], conn.ends[1 - direction]);
        let delay = self.delay(from, to);
        let breaks = self.links[from][to].breaks;
        if breaks > 0 && self.dice.between(0..10_000) < breaks {
            self.notify_broken(id, 0);
            self.notify_broken(id, 1);
            return;
        }
        let conn = self.conns.get_mut(&id).expect("the connection was found above");
        let queue = &mut conn.directions[direction];
        if let Parcel::Bytes(bytes) = &parcel {
            queue.unread += bytes.len();
        }
        queue.under_way.push_back(parcel);
        let at = (self.agenda.now() + delay).max(queue.last);
        queue.last = at;
        let delay = at - self.agenda.now();
        self.agenda
            .after(delay, Event::Network(id, Packet::Parcel(direction)));
    }

    /// Delivers a packet.
    pub fn arrive(&mut self, shared: &Shared, id: ConnId, packet: Packet) -> Arrival {
        match packet {
            Packet::Call => self.called(shared, id),
            Packet::Accepted => self.accepted(shared, id),
            Packet::Refused => self.refused(id),
            Packet::Parcel(direction) => self.parcel(id, direction),
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
            // The caller times out eventually.
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
        self.agenda.after(delay, Event::Network(id, Packet::Accepted));
        Arrival {
            machine: Some(callee),
            wake: Vec::new(),
            unwanted: unwanted.map(|unwanted| unwanted.0.1),
        }
    }

    fn accepted(&mut self, shared: &Shared, id: ConnId) -> Arrival {
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
        // The caller has given up, and resets the connection.
        self.notify_broken(id, 1);
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
            // The caller may have given up.
            let _ = call.send(Err(io::ErrorKind::ConnectionRefused.into()));
        }
        self.conns.remove(&id);
        Arrival {
            machine: Some(caller),
            ..Arrival::default()
        }
    }

    fn parcel(&mut self, id: ConnId, direction: usize) -> Arrival {
        let Some(conn) = self.conns.get_mut(&id) else {
            return Arrival::default();
        };
        let (from, to) = (conn.ends[direction], conn.ends[1 - direction]);
        let now = &mut conn.directions[direction];
        let Some(parcel) = now.under_way.pop_front() else {
            return Arrival::default();
        };
        if self.links[from][to].cut {
            now.held.push_back(parcel);
            return Arrival::default();
        }
        if conn.dead[1 - direction] || conn.broken[1 - direction] || conn.deaf[1 - direction] {
            if self.sites[to].powered {
                // The kernel knows no such connection.
                self.notify_broken(id, direction);
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
        wake.extend(conn.directions[1 - end].reader.take());
        wake.extend(conn.directions[end].writer.take());
        Arrival {
            machine: Some(to),
            wake,
            unwanted: None,
        }
    }

    /// Drops a half of a connection.
    fn release_half(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.halves -= 1;
            if conn.halves == 0 && conn.call.is_none() {
                self.conns.remove(&id);
            }
        }
    }

    /// Removes calls without an answer whose callers have given up.
    fn forget_calls(&mut self) {
        if self.conns.len() > KEPT_CONNECTIONS {
            self.conns.retain(|_, conn| {
                conn.halves > 0 || conn.call.as_ref().is_some_and(|call| !call.is_closed())
            });
        }
    }

    /// Returns the number of connections.
    pub fn connections(&self) -> usize {
        self.conns.len()
    }
}

/// Opens a connection to a machine.
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
            directions: Default::default(),
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

/// Returns the two halves at one end.
fn line(shared: &Shared, id: ConnId, end: usize) -> Line {
    Line {
        reader: Box::new(Reader::new(shared.clone(), id, 1 - end)),
        writer: Box::new(Writer::new(shared.clone(), id, end)),
    }
}
