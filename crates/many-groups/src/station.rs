//! A number of equal servers and one queue before them: a machine's cores. First come, first served.

use std::collections::VecDeque;

use crate::Nanos;

/// See the module. It does not know the time: whoever asks has a calendar.
#[derive(Debug)]
pub struct Station<J> {
    servers: usize,
    busy: usize,
    waiting: VecDeque<(Nanos, J)>,
    worked: Nanos,
}

impl<J> Station<J> {
    /// So many servers with nothing to do.
    pub fn new(servers: usize) -> Self {
        assert!(servers > 0, "a station without servers never serves");
        Self {
            servers,
            busy: 0,
            waiting: VecDeque::new(),
            worked: 0,
        }
    }

    /// A job that takes so long comes. If it is begun at once, it is given back with its time.
    pub fn arrive(&mut self, takes: Nanos, job: J) -> Option<(Nanos, J)> {
        if self.busy == self.servers {
            self.waiting.push_back((takes, job));
            return None;
        }
        self.busy += 1;
        self.worked += takes;
        Some((takes, job))
    }

    /// A job is done. The one that is begun in its place is given with its time.
    pub fn leave(&mut self) -> Option<(Nanos, J)> {
        let next = self.waiting.pop_front();
        match &next {
            Some((takes, _)) => self.worked += takes,
            None => self.busy -= 1,
        }
        next
    }

    /// All who wait, who do not any more.
    pub fn abandon(&mut self) -> impl Iterator<Item = J> {
        self.waiting.drain(..).map(|(_, job)| job)
    }

    /// The time that all servers have worked together, the jobs that are begun counted whole.
    pub fn worked(&self) -> Nanos {
        self.worked
    }
}
