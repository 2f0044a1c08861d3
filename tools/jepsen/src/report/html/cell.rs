//! Section of one cell: its verdict with the reasons, the result of each checker, its faults with their
//! evidence, and its history as a figure.

use super::figure;
use super::text::{escape, number, shortened};
use crate::report::{CellReport, Check, Fault};
use crate::workloads;
use lockgate_check::Verdict;

/// Maximum of contradictions shown for one checker; the report as JSON has all.
const CONTRADICTIONS: usize = 30;

/// Maximum length of a contradiction that is shown, in characters.
const LINE_CHARS: usize = 800;

/// Renders the section. Passed cells are collapsed.
pub fn draw(index: usize, cell: &CellReport, html: &mut String) {
    let word = cell.outcome.word();
    let open = if cell.outcome.is_fine() { "" } else { " open" };
    put!(
        html,
        "<details class=\"cell\" id=\"cell-{index}\"{open}>\n<summary><span class=\"chip {word}\">{word}</span> <b>{}</b> \
         <span class=\"figures\">{} calls · {:.0}/s before · {} faults · longest silence {:.2} s</span></summary>\n",
        escape(&cell.name()),
        number(cell.succeeded),
        cell.rate_before,
        cell.faults.len(),
        cell.longest_silence_ms / 1000.0,
    );
    if workloads::named(&cell.workload).is_some_and(|kind| kind.control) {
        html.push_str("<p class=\"control\">A control run: the workload omits something on purpose, and the run passes only if its checkers detect that.</p>\n");
    }
    reasons(cell, html);
    figure::draw(cell, html);
    html.push_str("<div class=\"columns\">\n<div>\n");
    checks(&cell.checks, html);
    facts(cell, html);
    html.push_str("</div>\n<div>\n");
    faults(&cell.faults, html);
    html.push_str("</div>\n</div>\n</details>\n");
}

fn reasons(cell: &CellReport, html: &mut String) {
    if cell.reasons.is_empty() {
        return;
    }
    html.push_str("<ul class=\"reasons\">\n");
    for reason in cell.reasons.iter().take(CONTRADICTIONS) {
        put!(html, "<li>{}</li>\n", escape(&shortened(reason, LINE_CHARS)));
    }
    html.push_str("</ul>\n");
}

fn checks(checks: &[Check], html: &mut String) {
    if checks.is_empty() {
        return;
    }
    html.push_str("<h3>Checks</h3>\n<ul class=\"checks\">\n");
    for Check { name, verdict } in checks {
        let name = escape(name);
        match verdict {
            Verdict::Valid => put!(html, "<li><span class=\"chip passed\">valid</span> {name}</li>\n"),
            Verdict::Undecided(why) => put!(
                html,
                "<li><span class=\"chip undecided\">undecided</span> {name}: {}</li>\n",
                escape(why)
            ),
            Verdict::Violated(lines) => {
                let count = lines.len();
                put!(
                    html,
                    "<li><span class=\"chip violated\">violated</span> {name}, {count} times\n<ol>\n"
                );
                for line in lines.iter().take(CONTRADICTIONS) {
                    put!(html, "<li>{}</li>\n", escape(&shortened(line, LINE_CHARS)));
                }
                html.push_str("</ol>");
                if count > CONTRADICTIONS {
                    put!(html, "<p>The first {CONTRADICTIONS}; report.json has all.</p>");
                }
                html.push_str("</li>\n");
            }
        }
    }
    html.push_str("</ul>\n");
}

fn facts(cell: &CellReport, html: &mut String) {
    html.push_str("<h3>Run</h3>\n<dl>\n");
    let calls = format!(
        "{} ok, {} failed, {} unknown",
        number(cell.succeeded),
        cell.failed,
        cell.unknown
    );
    let mut facts = vec![
        ("calls", calls),
        ("seed", cell.seed.to_string()),
        ("system", format!("{}, {} nodes", cell.system, cell.nodes)),
        ("reproduce", cell.reproduce.clone()),
    ];
    if let Some(kept) = &cell.kept {
        facts.push(("kept", kept.display().to_string()));
    }
    for (name, value) in facts {
        put!(html, "<div><dt>{name}</dt><dd>{}</dd></div>\n", escape(&value));
    }
    html.push_str("</dl>\n");
    if !cell.call_errors.is_empty() {
        html.push_str("<p class=\"errors\">Unsuccessful calls: ");
        for (why, count) in &cell.call_errors {
            put!(html, "<span>{count} × {}</span> ", escape(&shortened(why, 100)));
        }
        html.push_str("</p>\n");
    }
}

fn faults(faults: &[Fault], html: &mut String) {
    if faults.is_empty() {
        return;
    }
    html.push_str(
        "<h3>Faults</h3>\n<table class=\"faults\">\n\
         <tr><th></th><th>from</th><th>to</th><th>what</th><th>evidence</th><th>recovered</th></tr>\n",
    );
    for (index, fault) in faults.iter().enumerate() {
        let evidence = match &fault.evidence {
            Some(evidence) => escape(evidence),
            None => "<b class=\"bad\">none</b>".to_owned(),
        };
        let recovery = fault
            .recovery_ms
            .map_or(String::new(), |ms| format!("{:.2} s", ms / 1000.0));
        put!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}: {}</td><td>{evidence}</td><td>{recovery}</td></tr>\n",
            index + 1,
            figure::seconds(fault.begin),
            figure::seconds(fault.end),
            escape(&fault.nemesis),
            escape(&fault.what),
        );
    }
    html.push_str("</table>\n");
}
