//! Metrics and traces. Part of the table of settings.

use super::{DefaultValue, Kind, Reload, SampleForm, Section, Setting};

pub(super) const TRACES: Section = Section {
    name: "traces",
    meaning: "OpenTelemetry traces of requests over HTTP and of ZooKeeper clients: through the front end, \
        to the leader, until committed, applied and answered.",
    settings: &[
        Setting {
            name: "traces.endpoint",
            kind: Kind::Text,
            default: DefaultValue::Literal("\"\""),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Local collector for OTLP over HTTP, as JSON: \"http://127.0.0.1:4318\". Empty: no \
                traces, at no cost.",
        },
        Setting {
            name: "traces.ratio",
            kind: Kind::Ratio,
            default: DefaultValue::Literal("0.01"),
            sample: SampleForm::Default,
            reload: Reload::Restart,
            meaning: "Share of requests without `traceparent` that is traced: 0 to 1. A request with \
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
        default: DefaultValue::Literal("\"\""),
        sample: SampleForm::Default,
        reload: Reload::Restart,
        meaning: "Prefixes of lock names with metrics of their own, separated by commas: \"orders/, \
            billing/\". At most 16: each is some fifty series at every node.",
    }],
};
