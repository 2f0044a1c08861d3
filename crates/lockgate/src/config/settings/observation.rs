//! Metrics and traces. Part of the table of settings.

use super::{Kind, Reload, Section, Setting, Shown, Usual};

pub(super) const TRACES: Section = Section {
    name: "traces",
    meaning: "Requests, over HTTP and of clients of ZooKeeper, as traces of OpenTelemetry: through the front end, to the leader, until \
        they are committed, applied, answered.",
    settings: &[
        Setting {
            name: "traces.endpoint",
            kind: Kind::Text,
            usual: Usual::Is("\"\""),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "A collector beside this node that takes OTLP over HTTP, as JSON: \"http://127.0.0.1:4318\". \
                Empty: nothing is traced, at no cost.",
        },
        Setting {
            name: "traces.ratio",
            kind: Kind::Ratio,
            usual: Usual::Is("0.01"),
            sample: Shown::Usual,
            reload: Reload::Restart,
            meaning: "The part of the requests that is traced whose callers say nothing of it: 0 to 1. Who sends a \
                `traceparent` decides for itself.",
        },
    ],
};

pub(super) const METRICS: Section = Section {
    name: "metrics",
    meaning: "",
    settings: &[Setting {
        name: "metrics.lock_prefixes",
        kind: Kind::List,
        usual: Usual::Is("\"\""),
        sample: Shown::Usual,
        reload: Reload::Restart,
        meaning: "Locks whose names begin so are also counted on their own at /metrics, with commas between: \
            \"orders/, billing/\". At most 16: each is some fifty series at every node.",
    }],
};
