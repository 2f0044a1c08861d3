//! Metrics of requests: counts by operation and error code, and durations. Operations and codes are
//! ZooKeeper's own; all unknown ones share one entry.

use std::fmt;
use std::time::Duration;

use lock_node::counters::{Classes, Counter, Histogram};
use lock_node::metrics::text_format::Sheet;
use tokio::time::Instant;
use zk_wire::{ErrorCode, op_code};

use crate::trace::Traced;

/// Name of unknown operations and codes.
const OTHER: &str = "other";

/// Request that was received.
pub(crate) struct Received {
    /// Time of arrival.
    pub at: Instant,
    /// Operation.
    pub op: i32,
    /// Span, if the request is traced.
    pub traced: Option<Box<Traced>>,
}

/// Request metrics of a front end. See the module.
#[derive(Debug)]
pub(crate) struct RequestMetrics {
    /// By index in the list of operations; the last entry is for unknown ones.
    operations: Vec<Operation>,
}

#[derive(Debug)]
struct Operation {
    name: &'static str,
    times: Histogram,
    /// By index in the list of error codes; the last entry is for unknown ones.
    codes: Vec<Counter>,
}

impl Default for RequestMetrics {
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

impl RequestMetrics {
    /// Counts an answered request and its duration.
    pub fn answered(&self, mut received: Received, code: ErrorCode, took: Duration) {
        if let Some(traced) = &mut received.traced {
            traced.answered(code);
        }
        let index = op_code::ALL.iter().position(|op| *op == received.op);
        let operation = &self.operations[index.unwrap_or(op_code::ALL.len())];
        let index = ErrorCode::ALL.iter().position(|known| *known == code);
        operation.codes[index.unwrap_or(ErrorCode::ALL.len())].up();
        operation.times.took(took);
    }

    pub fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let used = || self.operations.iter().filter(|one| !one.times.is_empty());
        let answers: Vec<(&str, String, u64)> = used().flat_map(Operation::answers).collect();
        let help = "Requests of clients of ZooKeeper that were answered, by operation and code";
        let answers = answers
            .iter()
            .map(|(operation, code, count)| ([("operation", *operation), ("code", code.as_str())], *count));
        sheet.counters("zookeeper_requests", help, answers)?;
        let help = "How long they took until they were answered";
        let times = used().map(|one| ([("operation", one.name)], one.times.measured()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_operations_and_codes_share_one_entry() {
        let requests = RequestMetrics::default();
        let at = Instant::now();
        for op in [1_000, -7, i32::MAX] {
            let traced = None;
            requests.answered(
                Received { at, op, traced },
                ErrorCode::UNIMPLEMENTED,
                Duration::ZERO,
            );
        }
        requests.answered(
            Received {
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
