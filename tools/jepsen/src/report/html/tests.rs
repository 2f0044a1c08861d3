//! Tests of the page with artificial reports.

use lockgate_check::Verdict;

use super::page;
use crate::report::{CellReport, Check, Fault, Outcome, Report};
use crate::workloads::{Span, Tone};

const SECOND: u64 = 1_000_000_000;

fn cell(outcome: Outcome, timeline: Vec<Span>) -> CellReport {
    CellReport {
        workload: "exclusive".to_owned(),
        nemesis: "pause-<leader>".to_owned(),
        system: "lockgate".to_owned(),
        seed: 7,
        seconds: 20,
        nodes: 3,
        outcome,
        reasons: vec!["two held <b>one</b> lock".to_owned()],
        checks: vec![Check {
            name: "holds".to_owned(),
            verdict: Verdict::Violated(vec!["a & b".to_owned()]),
        }],
        rate_before: 500.0,
        succeeded: 12_345,
        failed: 1,
        unknown: 2,
        rate: vec![50; 200],
        call_errors: [("no answer in time".to_owned(), 2)].into(),
        longest_silence_ms: 1100.0,
        faults: vec![Fault {
            nemesis: "pause-<leader>".to_owned(),
            what: "SIGSTOP to [1]".to_owned(),
            begin: 3 * SECOND,
            end: 8 * SECOND,
            evidence: None,
            recovery_ms: Some(900.0),
            heal_recovery_ms: None,
            healing: 7 * SECOND,
        }],
        timeline,
        took_seconds: 28.0,
        kept: None,
        reproduce: "lockgate-jepsen --seed 7".to_owned(),
    }
}

fn report(cells: Vec<CellReport>) -> Report {
    Report {
        title: "matrix <gate>".to_owned(),
        started_at: "2026-01-01T00:00:00Z".to_owned(),
        program: "lockgate".to_owned(),
        machine: "namespaces".to_owned(),
        recoveries: Vec::new(),
        mutants: Vec::new(),
        seed: 7,
        took_seconds: 60.0,
        cells,
    }
}

fn spans(count: u64) -> Vec<Span> {
    let span = |number: u64| Span {
        row: format!("client {}", number % 32),
        label: format!("call <{number}>"),
        begin: number * 1_000_000,
        end: number * 1_000_000 + 2_000_000,
        tone: if number == 77 { Tone::Violation } else { Tone::Ok },
    };
    (0..count).map(span).collect()
}

#[test]
fn page_has_no_external_resources_and_escapes_all_texts() {
    let html = page(&report(vec![
        cell(Outcome::Violated, spans(100)),
        cell(Outcome::Passed, spans(100)),
    ]));
    assert!(html.contains("two held &lt;b&gt;one&lt;/b&gt; lock"));
    assert!(html.contains("a &amp; b"));
    for foreign in ["<script", "http://", "https://", "src=", "@import", "url("] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    assert_eq!(
        html.matches("<details").count(),
        html.matches("</details>").count()
    );
    assert_eq!(html.matches("<svg").count(), 2);
}

#[test]
fn failed_cells_are_open_and_passed_cells_are_collapsed() {
    let html = page(&report(vec![
        cell(Outcome::Violated, spans(5)),
        cell(Outcome::Passed, spans(5)),
    ]));
    assert!(html.contains("id=\"cell-0\" open>"));
    assert!(html.contains("id=\"cell-1\">"));
}

#[test]
fn contradiction_keeps_its_colour_among_thousands_of_bars() {
    let html = page(&report(vec![cell(Outcome::Violated, spans(60_000))]));
    assert_eq!(html.matches("<rect class=\"bad\"").count(), 1);
    assert!(html.contains("call &lt;77&gt;"));
    assert!(html.contains("merged with"));
}

#[test]
fn page_of_many_cells_stays_below_two_megabytes() {
    let cells = (0..10).map(|_| cell(Outcome::Passed, spans(30_000))).collect();
    let html = page(&report(cells));
    assert!(html.len() < 2_000_000, "{} bytes", html.len());
}

#[test]
fn cell_without_a_history_has_no_figure() {
    let mut skipped = cell(Outcome::Skipped, Vec::new());
    skipped.faults.clear();
    assert!(!page(&report(vec![skipped])).contains("<svg"));
}

#[test]
fn uncaught_planted_bug_is_highlighted() {
    let mut report = report(Vec::new());
    report.mutants = vec![crate::mutants::SearchResult {
        number: 7,
        about: "a <bug>".to_owned(),
        caught_by: None,
        seconds: 60.0,
        missed_by: vec!["set x kill-all: passed".to_owned()],
    }];
    let html = page(&report);
    assert!(html.contains("0 of 1 caught"));
    assert!(html.contains("a &lt;bug&gt;"));
    assert!(html.contains("<b class=\"bad\">nothing</b>"));
}
