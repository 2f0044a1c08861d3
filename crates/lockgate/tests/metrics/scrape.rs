//! Parser of a scrape, like Prometheus: families with their types, series with their labels.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::harness::TestCluster;

/// Metrics of one node, or of several together.
#[derive(Debug, Default, Clone)]
pub struct Scrape {
    /// Type of each family, by its name without suffix.
    pub types: BTreeMap<String, String>,
    /// Names of the labels of each family, without that of a histogram's buckets.
    pub labels: BTreeMap<String, BTreeSet<String>>,
    /// Value of each series.
    pub series: BTreeMap<String, f64>,
}

impl Scrape {
    /// Scrapes a node.
    pub async fn of(cluster: &TestCluster, node: u64) -> Self {
        let response = cluster.send(node, "GET", "/metrics", &Value::Null).await;
        let text = String::from_utf8(response.body).expect("a scrape is text");
        assert_eq!(response.status, 200, "{text}");
        Self::parse(&text)
    }

    /// Parses a scrape.
    pub fn parse(text: &str) -> Self {
        let mut scrape = Self::default();
        let mut family = String::new();
        for line in text.lines() {
            if let Some(declared) = line.strip_prefix("# TYPE ") {
                let (name, kind) = declared.split_once(' ').expect("a name and a type");
                let name = match kind {
                    "counter" => name.strip_suffix("_total").expect("a counter's name"),
                    _ => name,
                };
                family = name.to_owned();
                let before = scrape.types.insert(family.clone(), kind.to_owned());
                assert_eq!(before, None, "{name} is exported twice");
                scrape.labels.entry(family.clone()).or_default();
            } else if !line.starts_with('#') {
                scrape.take(&family, line);
            }
        }
        assert!(text.ends_with('\n'), "the scrape is cut off: {text}");
        scrape
    }

    fn take(&mut self, family: &str, line: &str) {
        let (series, value) = line.rsplit_once(' ').expect("a series and a value");
        let name = series.split('{').next().unwrap_or_default();
        assert!(name.starts_with(family), "{line} does not belong to {family}");
        let labels = series.strip_suffix('}').and_then(|series| series.split_once('{'));
        let labels = labels.map_or("", |(_, labels)| labels);
        // No label has a comma or a quote in its value.
        for label in labels.split(',').filter(|label| !label.is_empty()) {
            let (label, _) = label.split_once('=').expect("a label and its value");
            if label != "le" {
                let of_family = self.labels.get_mut(family).expect("it was declared");
                of_family.insert(label.to_owned());
            }
        }
        let value = value.parse().unwrap_or_else(|_| panic!("{line} has no number"));
        let before = self.series.insert(series.to_owned(), value);
        assert_eq!(before, None, "{series} is exported twice");
    }

    /// Merges the metrics of another scrape.
    pub fn and(mut self, other: Self) -> Self {
        self.types.extend(other.types);
        for (family, labels) in other.labels {
            self.labels.entry(family).or_default().extend(labels);
        }
        self.series.extend(other.series);
        self
    }

    /// Returns the value of a series; 0 if it does not exist.
    pub fn value(&self, series: &str) -> f64 {
        self.series.get(series).copied().unwrap_or_default()
    }
}
