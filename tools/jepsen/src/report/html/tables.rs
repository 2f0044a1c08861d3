//! Results of a run beyond its cells: recovery times, and the planted bugs that were caught.

use super::text::{escape, shortened};
use crate::mutants::SearchResult;
use crate::report::Report;
use crate::report::recovery::{Recovery, Times};

/// Maximum length of a reason that is shown, in characters.
const REASON_CHARS: usize = 240;

/// Renders the tables that have content.
pub fn draw(report: &Report, html: &mut String) {
    if !report.mutants.is_empty() {
        bugs(&report.mutants, html);
    }
    if !report.recoveries.is_empty() {
        recoveries(&report.recoveries, html);
    }
}

fn bugs(found: &[SearchResult], html: &mut String) {
    let caught = found.iter().filter(|found| found.caught_by.is_some()).count();
    put!(
        html,
        "<h3>Planted bugs: {caught} of {} caught</h3>\n<table class=\"faults\">\n\
         <tr><th></th><th>bug</th><th>caught by</th><th>violation</th><th>after</th></tr>\n",
        found.len()
    );
    for bug in found {
        let (cell, what) = match &bug.caught_by {
            Some((cell, what)) => (escape(cell), escape(&shortened(what, REASON_CHARS))),
            None => (
                "<b class=\"bad\">nothing</b>".to_owned(),
                escape(&bug.missed_by.join(", ")),
            ),
        };
        put!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{cell}</td><td>{what}</td><td>{:.0} s</td></tr>\n",
            bug.number,
            escape(&bug.about),
            bug.seconds
        );
    }
    html.push_str("</table>\n");
}

fn recoveries(recoveries: &[Recovery], html: &mut String) {
    html.push_str(
        "<details><summary>Recovery times</summary>\n<table class=\"faults\">\n\
         <tr><th>fault</th><th>times</th><th>after the fault: p50, p99, longest</th><th>after healing</th><th>no success until healed</th></tr>\n",
    );
    for recovery in recoveries {
        put!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            escape(&recovery.nemesis),
            recovery.faults,
            times(recovery.from_fault),
            times(recovery.from_heal),
            recovery.dark
        );
    }
    html.push_str("</table>\n</details>\n");
}

fn times(times: Option<Times>) -> String {
    let Some(Times {
        p50_ms,
        p99_ms,
        max_ms,
    }) = times
    else {
        return "–".to_owned();
    };
    let [p50, p99, max] = [p50_ms, p99_ms, max_ms].map(|ms| ms / 1000.0);
    format!("{p50:.2} s, {p99:.2} s, {max:.2} s")
}
