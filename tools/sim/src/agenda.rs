//! What happens when: the events to come, in the order of their times, and the trace of those that were.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use xxhash_rust::xxh3::Xxh3Default;
use znode_store::SessionId;

use crate::clients::{Answer, Ask, ClientId, OpId};
use crate::faults::Fault;
use crate::log_prefix;
use crate::network::{ConnId, Packet};

/// Simulated time in microseconds since the beginning, by no machine's clock.
pub type Micros = u64;

/// One second.
pub const SECOND: Micros = 1_000_000;
/// One millisecond.
pub const MILLI: Micros = 1_000;

/// Something that happens. Each but a [`Event::Tick`] is one step of the simulation.
#[derive(Debug)]
pub enum Event {
    /// A millisecond has passed: clocks advance, and timers that are due fire. Not counted as a step, since in most of them
    /// nothing happens.
    Tick,
    /// Something arrives over a connection of peers.
    Network(ConnId, Packet),
    /// A client's request arrives at a machine.
    Request {
        /// Which.
        machine: usize,
        /// Whose.
        client: ClientId,
        /// Which of its attempts.
        op: OpId,
        /// What.
        ask: Ask,
    },
    /// A client's connection breaks: nobody waits for this attempt any more.
    HangUp {
        /// At which machine.
        machine: usize,
        /// Whose.
        client: ClientId,
        /// Which of its attempts.
        op: OpId,
    },
    /// An answer arrives at a client.
    Answer {
        /// Which.
        client: ClientId,
        /// To which attempt.
        op: OpId,
        /// What.
        answer: Answer,
    },
    /// A client's time has come to do something.
    Client(ClientId, ClientTimer),
    /// Something goes wrong, or is repaired.
    Fault(Fault),
    /// A machine starts.
    Boot(usize),
}

/// Why a client looks at its watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientTimer {
    /// It is time for the next thing to do.
    Next,
    /// It is time for a heartbeat of this session.
    Heartbeat(SessionId),
    /// No answer to this attempt has come.
    GiveUp(OpId),
}

struct Entry {
    at: Micros,
    number: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// The events to come.
#[derive(Default)]
pub struct Agenda {
    now: Micros,
    next_number: u64,
    entries: BinaryHeap<Reverse<Entry>>,
    trace: Xxh3Default,
    steps: u64,
}

impl Agenda {
    /// What time it is.
    pub fn now(&self) -> Micros {
        self.now
    }

    /// How many steps were made.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Lets something happen after a while. Of two at the same time the one that was entered first comes first.
    pub fn after(&mut self, delay: Micros, event: Event) {
        let number = self.next_number;
        self.next_number += 1;
        let at = self.now + delay;
        self.entries.push(Reverse(Entry { at, number, event }));
    }

    /// The next event. Time goes on to it.
    pub fn take_next(&mut self) -> Event {
        let Reverse(entry) = self.entries.pop().expect("there is always a next tick");
        self.now = entry.at;
        log_prefix::set_now(entry.at);
        if !matches!(entry.event, Event::Tick) {
            self.steps += 1;
            self.note(&[entry.at, entry.number, entry.event.kind()]);
        }
        entry.event
    }

    /// Adds to the trace: two runs are the same if all that is noted is.
    pub fn note(&mut self, what: &[u64]) {
        for word in what {
            self.trace.update(&word.to_le_bytes());
        }
    }

    /// The hash of all that was noted.
    pub fn trace(&self) -> u64 {
        self.trace.digest()
    }
}

impl Event {
    fn kind(&self) -> u64 {
        match self {
            Self::Tick => 0,
            Self::Network(conn, packet) => 1 | conn << 8 | packet.kind() << 4,
            Self::Request { client, op, .. } => 2 | client << 8 | op << 16,
            Self::HangUp { client, op, .. } => 3 | client << 8 | op << 16,
            Self::Answer { client, op, .. } => 4 | client << 8 | op << 16,
            Self::Client(client, _) => 5 | client << 8,
            Self::Fault(_) => 6,
            Self::Boot(machine) => 7 | (*machine as u64) << 8,
        }
    }
}
