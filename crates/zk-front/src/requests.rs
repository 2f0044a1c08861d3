//! Requests of ZooKeeper's clients, counted by operation and by what came of them, with how long they took. Operations and codes
//! are ZooKeeper's own; whatever else a client sends is one more.

use std::fmt;
use std::time::Duration;

use raft_node::counters::{Classes, Counter, Histogram};
use raft_node::metrics::sheet::{Instruments, Sheet};
use tokio::time::Instant;
use zk_wire::{ErrorCode, op_code};

use crate::trace::Traced;

/// In the place of the name of what has none.
const OTHER: &str = "other";

/// A request that has come.
pub(crate) struct Came {
    /// When.
    pub at: Instant,
    /// What for.
    pub op: i32,
    /// If it is traced.
    pub traced: Option<Box<Traced>>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Requests {
    /// By their place in the list of operations; the last for all others.
    operations: Vec<Operation>,
}

#[derive(Debug)]
struct Operation {
    name: &'static str,
    times: Histogram,
    /// By their place in the list of codes; the last for all others.
    codes: Vec<Counter>,
}

impl Default for Requests {
    fn default() -> Self {
        let names = op_code::ALL.iter().filter_map(|op| op_code::name(*op));
        let operation = |name| Operation {
            name,
            times: Histogram::new(&Classes::LATENCY),
            codes: (0..=ErrorCode::ALL.len()).map(|_| Counter::default()).collect(),
        };
        Self {
            operations: names.chain([OTHER]).map(operation).collect(),
        }
    }
}

impl Requests {
    /// A request was answered, after so long.
    pub fn answered(&self, mut came: Came, code: ErrorCode, took: Duration) {
        if let Some(traced) = &mut came.traced {
            traced.answered(code);
        }
        let place = op_code::ALL.iter().position(|op| *op == came.op);
        let operation = &self.operations[place.unwrap_or(op_code::ALL.len())];
        let place = ErrorCode::ALL.iter().position(|known| *known == code);
        operation.codes[place.unwrap_or(ErrorCode::ALL.len())].up();
        operation.times.took(took);
    }

    pub fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let asked = || self.operations.iter().filter(|one| !one.times.is_empty());
        let answers: Vec<(&str, String, u64)> = asked().flat_map(Operation::answers).collect();
        let help = "Requests of clients of ZooKeeper that were answered, by operation and code";
        let answers = answers
            .iter()
            .map(|(operation, code, count)| ([("operation", *operation), ("code", code.as_str())], *count));
        sheet.counters("zookeeper_requests", help, answers)?;
        let help = "How long they took until they were answered";
        let times = asked().map(|one| ([("operation", one.name)], one.times.measured()));
        sheet.histograms("zookeeper_request_duration_seconds", help, times)
    }
}

impl Operation {
    fn answers(&self) -> impl Iterator<Item = (&'static str, String, u64)> {
        let codes = ErrorCode::ALL.iter().map(ErrorCode::to_string);
        let counted = codes.chain([OTHER.to_owned()]).zip(&self.codes);
        let counted = counted.map(|(code, counter)| (self.name, code, counter.get()));
        counted.filter(|(_, _, count)| *count > 0)
    }
}

/// What the front end measures.
impl Instruments for crate::front::Front {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let clients = self.clients();
        let with_session = clients.iter().filter(|client| client.has_session()).count();
        let help = "Clients of ZooKeeper that are connected and have a session";
        sheet.gauge("zookeeper_clients", help, with_session)?;
        let outstanding: u64 = clients.iter().map(|client| client.outstanding()).sum();
        let help = "Their requests that are not answered yet";
        sheet.gauge("zookeeper_requests_in_flight", help, outstanding)?;
        self.requests().write(sheet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_client_sends_there_is_one_place_for_what_is_not_known() {
        let requests = Requests::default();
        let at = Instant::now();
        for op in [1_000, -7, i32::MAX] {
            let traced = None;
            requests.answered(Came { at, op, traced }, ErrorCode::UNIMPLEMENTED, Duration::ZERO);
        }
        requests.answered(
            Came {
                at,
                op: op_code::GET_DATA,
                traced: None,
            },
            ErrorCode(-9_999),
            Duration::ZERO,
        );
        let counted: Vec<_> = requests.operations.iter().flat_map(Operation::answers).collect();
        assert_eq!(
            counted,
            [
                ("getData", "other".to_owned(), 1),
                ("other", "Unimplemented".to_owned(), 3)
            ]
        );
    }
}
