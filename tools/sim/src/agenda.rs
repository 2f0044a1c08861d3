//! Event queue of the simulation, in order of time, and the trace of past events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use xxhash_rust::xxh3::Xxh3Default;

use crate::clients::messages::{ClientId, ClientRequest, ClientResponse, ClientTimer, OpId};
use crate::fault_events::Fault;
use crate::log_prefix;
use crate::network::packet::{ConnId, Packet};
use crate::time::Micros;

/// Event of the simulation. Each except [`Event::Tick`] is one step.
#[derive(Debug)]
pub enum Event {
    /// A millisecond has passed: clocks advance, and due timers fire. Not counted as a step, since most ticks
    /// have no effect.
    Tick,
    /// A packet arrives over a connection between peers.
    Network(ConnId, Packet),
    /// A client's request arrives at a machine.
    Request {
        /// Index of the machine.
        machine: usize,
        /// The client.
        client: ClientId,
        /// The attempt.
        op: OpId,
        /// The request.
        ask: ClientRequest,
    },
    /// A client's connection breaks: the client no longer waits for this attempt.
    Disconnect {
        /// Index of the machine.
        machine: usize,
        /// The client.
        client: ClientId,
        /// The attempt.
        op: OpId,
    },
    /// A response arrives at a client.
    ClientResponse {
        /// The client.
        client: ClientId,
        /// The attempt that it answers.
        op: OpId,
        /// The response.
        answer: ClientResponse,
    },
    /// A client's timer fires.
    Client(ClientId, ClientTimer),
    /// A fault begins or is repaired.
    Fault(Fault),
    /// A machine starts.
    Boot(usize),
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

/// Queue of future events.
#[derive(Default)]
pub struct Agenda {
    now: Micros,
    next_number: u64,
    entries: BinaryHeap<Reverse<Entry>>,
    trace: Xxh3Default,
    steps: u64,
}

impl Agenda {
    /// Returns the current simulated time.
    pub fn now(&self) -> Micros {
        self.now
    }

    /// Returns the number of steps so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Schedules an event. Of two events at the same time, the one that was scheduled first happens first.
    pub fn after(&mut self, delay: Micros, event: Event) {
        let number = self.next_number;
        self.next_number += 1;
        let at = self.now + delay;
        self.entries.push(Reverse(Entry { at, number, event }));
    }

    /// Takes the next event and advances the time to it.
    pub fn take_next(&mut self) -> Event {
        let Reverse(entry) = self.entries.pop().expect("a next tick is always scheduled");
        self.now = entry.at;
        log_prefix::set_now(entry.at);
        if !matches!(entry.event, Event::Tick) {
            self.steps += 1;
            self.note(&[entry.at, entry.number, entry.event.kind()]);
        }
        entry.event
    }

    /// Adds to the trace: two runs are equal if and only if all that is noted is equal.
    pub fn note(&mut self, what: &[u64]) {
        for word in what {
            self.trace.update(&word.to_le_bytes());
        }
    }

    /// Returns the hash of everything noted.
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
            Self::Disconnect { client, op, .. } => 3 | client << 8 | op << 16,
            Self::ClientResponse { client, op, .. } => 4 | client << 8 | op << 16,
            Self::Client(client, _) => 5 | client << 8,
            Self::Fault(_) => 6,
            Self::Boot(machine) => 7 | (*machine as u64) << 8,
        }
    }
}
