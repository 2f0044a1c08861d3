//! One scrape: names, kinds and labels, one beneath the other, as Prometheus reads them. The door to prometheus-client for all
//! who measure something; what is measured they keep in numbers of their own, and write it here when they are asked.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, NoLabelSet};
use prometheus_client::metrics::MetricType;
pub use prometheus_client::registry::Registry;

use crate::counters::Measured;

/// Begins every name of ours.
const PREFIX: &str = "lockgate";

/// A label and what it says here. The words come from fixed tables, from the configuration or from the members' ids, never from
/// what a caller sends: so the number of series is bounded.
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

/// Has `instruments` asked at every scrape. All their names begin with `lockgate_`.
pub fn register(registry: &mut Registry, instruments: impl Instruments) {
    registry
        .sub_registry_with_prefix(PREFIX)
        .register_collector(Box::new(Asked(Box::new(instruments))));
}

/// The same with the names as they are, for those that have one everywhere: `process_resident_memory_bytes`.
pub fn register_unprefixed(registry: &mut Registry, instruments: impl Instruments) {
    registry.register_collector(Box::new(Asked(Box::new(instruments))));
}

struct Asked(Box<dyn Instruments>);

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Instruments")
    }
}

impl Collector for Asked {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        self.0.write(&mut Sheet { encoder })
    }
}

/// See the module.
pub struct Sheet<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl Sheet<'_> {
    /// What goes up and down.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl EncodeGaugeValue) -> fmt::Result {
        self.encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&value)
    }

    /// The same, one for each label. Nothing at all if there are none.
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

    /// What only grows. `_total` is added to the name.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    /// The same for seconds and other broken numbers.
    pub fn counter_of_seconds(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    /// What only grows, one for each label.
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

    /// How often something was how large.
    pub fn histogram(&mut self, name: &str, help: &str, measured: &Measured) -> fmt::Result {
        self.encoder
            .encode_descriptor(name, help, None, MetricType::Histogram)?
            .encode_histogram::<NoLabelSet>(measured.sum, measured.count(), &measured.classes, None)
    }

    /// The same, one for each label.
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
