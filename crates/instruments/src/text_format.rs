//! Text format of Prometheus: names, kinds and labels of one scrape. It is the only user of prometheus-client; the owners of metrics keep
//! numbers of their own, and write them here at each scrape.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, NoLabelSet};
use prometheus_client::metrics::MetricType;
pub use prometheus_client::registry::Registry;

use crate::counters::Measured;

/// Prefix of all names.
const PREFIX: &str = "lockgate";

/// Label with its value. Values come from fixed tables, from the configuration or from the members' ids, never from a caller, so the number
/// of series is bounded.
pub type Label<'a> = (&'static str, &'a str);

/// Source of metrics.
pub trait Instruments: Send + Sync + 'static {
    /// Writes the metrics to the sheet.
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result;
}

impl<T: Instruments> Instruments for Arc<T> {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        T::write(self, sheet)
    }
}

/// Registers a source, whose metrics are written at every scrape. All their names begin with `lockgate_`.
pub fn register(registry: &mut Registry, instruments: impl Instruments) {
    registry
        .sub_registry_with_prefix(PREFIX)
        .register_collector(Box::new(InstrumentsCollector(Box::new(instruments))));
}

/// Registers a source whose names have no prefix, such as `process_resident_memory_bytes`.
pub fn register_unprefixed(registry: &mut Registry, instruments: impl Instruments) {
    registry.register_collector(Box::new(InstrumentsCollector(Box::new(instruments))));
}

struct InstrumentsCollector(Box<dyn Instruments>);

impl fmt::Debug for InstrumentsCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Instruments")
    }
}

impl Collector for InstrumentsCollector {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        self.0.write(&mut Sheet { encoder })
    }
}

/// Writer of one scrape.
pub struct Sheet<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl Sheet<'_> {
    /// Writes a number that goes up and down.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl EncodeGaugeValue) -> fmt::Result {
        self.encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&value)
    }

    /// Writes such a number for each label. Without labels it writes nothing.
    pub fn gauges<'v, V: EncodeGaugeValue, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = ([Label<'v>; N], V)>,
    ) -> fmt::Result {
        let mut values = values.into_iter().peekable();
        if values.peek().is_none() {
            return Ok(());
        }
        let mut family = self
            .encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        values.try_for_each(|(labels, value)| family.encode_family(&labels)?.encode_gauge(&value))
    }

    /// Writes a number that only grows. `_total` is added to the name.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    /// Writes such a number of seconds, or another fraction.
    pub fn counter_of_seconds(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    /// Writes such a number for each label.
    pub fn counters<'v, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = ([Label<'v>; N], u64)>,
    ) -> fmt::Result {
        let mut values = values.into_iter().peekable();
        if values.peek().is_none() {
            return Ok(());
        }
        let mut family = self
            .encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        values.try_for_each(|(labels, value)| {
            family
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, u64>(&value, None)
        })
    }

    /// Writes a histogram.
    pub fn histogram(&mut self, name: &str, help: &str, measured: &Measured) -> fmt::Result {
        self.encoder
            .encode_descriptor(name, help, None, MetricType::Histogram)?
            .encode_histogram::<NoLabelSet>(measured.sum, measured.count(), &measured.classes, None)
    }

    /// Writes a histogram for each label.
    pub fn histograms<'v, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        all: impl IntoIterator<Item = ([Label<'v>; N], Measured)>,
    ) -> fmt::Result {
        let mut all = all.into_iter().peekable();
        if all.peek().is_none() {
            return Ok(());
        }
        let mut family = self
            .encoder
            .encode_descriptor(name, help, None, MetricType::Histogram)?;
        all.try_for_each(|(labels, measured)| {
            family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
                measured.sum,
                measured.count(),
                &measured.classes,
                None,
            )
        })
    }
}
