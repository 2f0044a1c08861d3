//! The two text formats of metrics, and their negotiation by the header `Accept`. They differ in three points:
//! OpenMetrics omits `_total` in a counter's `HELP` and `TYPE`, escapes quotes in `HELP`, and ends the text with `#
//! EOF`.

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

/// Text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format 0.0.4, which every scraper reads. The default.
    Text,
    /// OpenMetrics 1.0.0, if `Accept` names it with at least the weight of the text format.
    OpenMetrics,
}

/// Media range of an `Accept` header. The weight is in thousandths.
struct Range<'a> {
    name: &'a str,
    version: Option<&'a str>,
    weight: u16,
}

impl<'a> Range<'a> {
    fn parse(text: &'a str) -> Self {
        let mut pieces = text.split(';').map(str::trim);
        let name = pieces.next().unwrap_or_default();
        let parameter = |name: &str| {
            let mut named = pieces.clone().filter_map(|piece| piece.split_once('='));
            named
                .find(|(key, _)| key.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.trim_matches('"'))
        };
        let weight = parameter("q").and_then(|weight| weight.parse::<f32>().ok());
        Self {
            name,
            version: parameter("version"),
            weight: (weight.unwrap_or(1.0).clamp(0.0, 1.0) * 1_000.0) as u16,
        }
    }
}

impl Format {
    /// Negotiates the format of the answer to a request with these headers.
    pub fn of(headers: &HeaderMap) -> Self {
        let accepted = headers
            .get_all(ACCEPT)
            .iter()
            .filter_map(|text| text.to_str().ok());
        let ranges: Vec<Range<'_>> = accepted
            .flat_map(|text| text.split(','))
            .map(Range::parse)
            .collect();
        let weight = |name: &str, version: &str| {
            let named = ranges
                .iter()
                .filter(|range| range.name.eq_ignore_ascii_case(name));
            let of_version = named.filter(|range| range.version.is_none_or(|of| of == version));
            of_version.map(|range| range.weight).max().unwrap_or(0)
        };
        let open_metrics = weight("application/openmetrics-text", "1.0.0");
        if open_metrics > 0 && open_metrics >= weight("text/plain", "0.0.4") {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    /// Returns the value of `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Converts a text in OpenMetrics to this format.
    pub fn written(self, open_metrics: String) -> String {
        match self {
            Self::Text => text(&open_metrics),
            Self::OpenMetrics => open_metrics,
        }
    }
}

fn text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len() + open_metrics.len() / 16);
    let mut lines = open_metrics.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "# EOF" {
            continue;
        }
        let Some((name, help)) = introduced(line, "# HELP ") else {
            text.push_str(line);
            text.push('\n');
            continue;
        };
        let kind = lines.next_if(|next| introduced(next, "# TYPE ").is_some_and(|(of, _)| of == name));
        let kind = kind
            .and_then(|line| introduced(line, "# TYPE "))
            .map(|(_, kind)| kind);
        let total = if kind == Some("counter") { "_total" } else { "" };
        text.push_str(&format!("# HELP {name}{total} {}\n", help.replace("\\\"", "\"")));
        if let Some(kind) = kind {
            text.push_str(&format!("# TYPE {name}{total} {kind}\n"));
        }
    }
    text
}

/// Splits a line of `# HELP` or `# TYPE` into the metric's name and the rest.
fn introduced<'a>(line: &'a str, how: &str) -> Option<(&'a str, &'a str)> {
    line.strip_prefix(how)?.split_once(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_selects_the_format_with_the_larger_weight() {
        for (accept, format) in [
            (None, Format::Text),
            (Some("*/*"), Format::Text),
            (Some("text/plain"), Format::Text),
            (Some("text/html, */*;q=0.8"), Format::Text),
            (Some("application/openmetrics-text"), Format::OpenMetrics),
            (
                Some("Application/OpenMetrics-Text; version=\"1.0.0\"; charset=utf-8"),
                Format::OpenMetrics,
            ),
            (Some("application/openmetrics-text;q=0"), Format::Text),
            (Some("application/openmetrics-text;version=0.0.1"), Format::Text),
            (
                Some("application/openmetrics-text;q=0.4, text/plain;version=0.0.4;q=0.5"),
                Format::Text,
            ),
            // The `Accept` headers of two versions of Prometheus.
            (
                Some(
                    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                ),
                Format::OpenMetrics,
            ),
            (
                Some(
                    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                ),
                Format::OpenMetrics,
            ),
        ] {
            let headers = accept.map(|accept| (ACCEPT, accept.parse().unwrap()));
            assert_eq!(Format::of(&headers.into_iter().collect()), format, "{accept:?}");
        }
    }

    #[test]
    fn prometheus_text_has_full_counter_names_and_no_eof() {
        let open_metrics = "\
# HELP lockgate_ready Whether it is \\\"ready\\\".
# TYPE lockgate_ready gauge
lockgate_ready 1
# HELP lockgate_grants Grants.
# TYPE lockgate_grants counter
lockgate_grants_total{mode=\"shared\"} 3
# HELP lockgate_wait_seconds Waits.
# TYPE lockgate_wait_seconds histogram
lockgate_wait_seconds_sum 0.5
lockgate_wait_seconds_count 1
lockgate_wait_seconds_bucket{le=\"+Inf\"} 1
# EOF
";
        let text = "\
# HELP lockgate_ready Whether it is \"ready\".
# TYPE lockgate_ready gauge
lockgate_ready 1
# HELP lockgate_grants_total Grants.
# TYPE lockgate_grants_total counter
lockgate_grants_total{mode=\"shared\"} 3
# HELP lockgate_wait_seconds Waits.
# TYPE lockgate_wait_seconds histogram
lockgate_wait_seconds_sum 0.5
lockgate_wait_seconds_count 1
lockgate_wait_seconds_bucket{le=\"+Inf\"} 1
";
        assert_eq!(Format::Text.written(open_metrics.to_owned()), text);
        assert_eq!(Format::OpenMetrics.written(open_metrics.to_owned()), open_metrics);
    }
}
