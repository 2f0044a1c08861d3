//! The connections of clients: how many there are at each port, how many there may be, and how many found no place.

use std::fmt;

use listener::{ConnectionCounts, ConnectionMetrics};
use lock_node::metrics::sheet::{self, Instruments, Registry, Sheet};

/// Has these doors asked at every scrape, each under its name.
pub fn register_doors(registry: &mut Registry, doors: Vec<(&'static str, ConnectionMetrics)>) {
    sheet::register(registry, Doors(doors));
}

/// The one door where requests are refused so; at that for administration none are.
const HTTP: &str = "http";

struct Doors(Vec<(&'static str, ConnectionMetrics)>);

impl Instruments for Doors {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let counts: Vec<(&str, ConnectionCounts)> = self
            .0
            .iter()
            .map(|(door, meter)| (*door, meter.counts()))
            .collect();
        let each = |of: fn(&ConnectionCounts) -> u64| {
            let counts = counts.iter();
            counts.map(move |(door, counts)| ([("door", *door)], of(counts)))
        };
        let help = "Connections of clients that are open, at each port";
        sheet.gauges("connections", help, each(|counts| counts.open as u64))?;
        let help = "How many there may be";
        sheet.gauges("connections_limit", help, each(|counts| counts.limit as u64))?;
        let help = "Accepted connections";
        sheet.counters("connections_accepted", help, each(|counts| counts.accepted))?;
        let help =
            "Callers that found no place: all were taken, or their address had as many as one may have";
        let refused = counts.iter().flat_map(|(door, counts)| {
            [
                ("full", counts.rejected_total_limit),
                ("address", counts.rejected_address_limit),
            ]
            .map(|(reason, count)| ([("door", *door), ("reason", reason)], count))
        });
        sheet.counters("connections_refused", help, refused)?;
        let help = "Requests over HTTP that a busy node has refused before it looked for their route";
        let is_http = |(door, _): &&(&str, ConnectionCounts)| *door == HTTP;
        let refused = counts.iter().filter(is_http);
        let refused = refused.map(|(_, counts)| ([("reason", "busy")], counts.shed));
        sheet.counters("http_refused", help, refused)
    }
}
