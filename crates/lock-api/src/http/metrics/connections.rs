//! Metrics of client connections: their number at each listener, the limits, and the rejected connections.

use std::fmt;

use listener::{ConnectionCounts, ConnectionMetrics};
use lock_node::metrics::text_format::{self, Instruments, Registry, Sheet};

/// Registers the connections of these listeners, each under its name, to be read at every scrape.
pub fn register_connections(registry: &mut Registry, listeners: Vec<(&'static str, ConnectionMetrics)>) {
    text_format::register(registry, ConnectionInstruments(listeners));
}

/// Name of the only listener that sheds requests under load; the administration listener does not.
const HTTP: &str = "http";

struct ConnectionInstruments(Vec<(&'static str, ConnectionMetrics)>);

impl Instruments for ConnectionInstruments {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let counts: Vec<(&str, ConnectionCounts)> = self
            .0
            .iter()
            .map(|(listener, meter)| (*listener, meter.counts()))
            .collect();
        let each = |of: fn(&ConnectionCounts) -> u64| {
            let counts = counts.iter();
            counts.map(move |(listener, counts)| ([("door", *listener)], of(counts)))
        };
        let help = "Open client connections by listener";
        sheet.gauges("connections", help, each(|counts| counts.open as u64))?;
        let help = "Maximum number of client connections";
        sheet.gauges("connections_limit", help, each(|counts| counts.limit as u64))?;
        let help = "Accepted connections";
        sheet.counters("connections_accepted", help, each(|counts| counts.accepted))?;
        let help = "Rejected connections: the node or the address has reached its maximum";
        let refused = counts.iter().flat_map(|(listener, counts)| {
            [
                ("full", counts.rejected_total_limit),
                ("address", counts.rejected_address_limit),
            ]
            .map(|(reason, count)| ([("door", *listener), ("reason", reason)], count))
        });
        sheet.counters("connections_refused", help, refused)?;
        let help = "HTTP requests shed by an overloaded node before routing";
        let is_http = |(listener, _): &&(&str, ConnectionCounts)| *listener == HTTP;
        let refused = counts.iter().filter(is_http);
        let refused = refused.map(|(_, counts)| ([("reason", "busy")], counts.shed));
        sheet.counters("http_refused", help, refused)
    }
}
