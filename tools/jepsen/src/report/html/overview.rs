//! Head of the page: the run's parameters, its outcome, and a field for each workload under each nemesis.

use std::collections::BTreeMap;

use super::text::{escape, number};
use crate::report::{CellReport, Outcome, Report};

/// Outcomes from worst to best, so that the most important ones come first.
const OUTCOMES: [Outcome; 6] = [
    Outcome::Violated,
    Outcome::Error,
    Outcome::Undecided,
    Outcome::Invalid,
    Outcome::Skipped,
    Outcome::Passed,
];

/// Renders the head.
pub fn draw(report: &Report, html: &mut String) {
    put!(
        html,
        "<header>\n<h1>{}</h1>\n<p class=\"chips\">",
        escape(&report.title)
    );
    for outcome in OUTCOMES {
        let count = report.cells.iter().filter(|cell| cell.outcome == outcome).count();
        if count > 0 {
            put!(
                html,
                "<span class=\"chip {0}\">{count} {0}</span> ",
                outcome.word()
            );
        }
    }
    html.push_str("</p>\n<dl>\n");
    let calls = report.cells.iter().map(|cell| cell.succeeded).sum();
    let faults: usize = report.cells.iter().map(|cell| cell.faults.len()).sum();
    let facts = [
        ("begun", report.started_at.clone()),
        ("took", format!("{:.0} s", report.took_seconds)),
        ("seed", report.seed.to_string()),
        ("program", report.program.clone()),
        ("machine", report.machine.clone()),
        (
            "total",
            format!("{} successful calls, {faults} faults", number(calls)),
        ),
    ];
    for (name, value) in facts {
        put!(html, "<div><dt>{name}</dt><dd>{}</dd></div>\n", escape(&value));
    }
    html.push_str("</dl>\n");
    if report.cells.len() > 1 {
        matrix(report, html);
    }
    html.push_str("</header>\n");
}

/// Renders workloads as rows and nemeses as columns, in their original order.
fn matrix(report: &Report, html: &mut String) {
    let workloads = in_order(report, |cell| &cell.workload);
    let nemeses = in_order(report, |cell| &cell.nemesis);
    let mut cells: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for (number, cell) in report.cells.iter().enumerate() {
        let key = (cell.workload.as_str(), cell.nemesis.as_str());
        cells.entry(key).or_default().push(number);
    }
    html.push_str("<div class=\"scroll\"><table class=\"matrix\">\n<tr><th></th>");
    for nemesis in &nemeses {
        put!(
            html,
            "<th class=\"nemesis\"><span>{}</span></th>",
            escape(nemesis)
        );
    }
    html.push_str("</tr>\n");
    for workload in workloads {
        put!(html, "<tr><th>{}</th>", escape(workload));
        for nemesis in &nemeses {
            html.push_str("<td>");
            for number in cells.get(&(workload, *nemesis)).into_iter().flatten() {
                field(*number, &report.cells[*number], html);
            }
            html.push_str("</td>");
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
}

fn field(number: usize, cell: &CellReport, html: &mut String) {
    let word = cell.outcome.word();
    let sign = match cell.outcome {
        Outcome::Passed => "✓",
        Outcome::Skipped => "–",
        Outcome::Violated => "✗",
        Outcome::Invalid | Outcome::Undecided => "?",
        Outcome::Error => "!",
    };
    let title = format!(
        "{}: {word}, {} calls, {} faults",
        cell.name(),
        cell.succeeded,
        cell.faults.len()
    );
    put!(
        html,
        "<a class=\"field {word}\" href=\"#cell-{number}\" title=\"{}\">{sign}</a>",
        escape(&title)
    );
}

fn in_order<'a>(report: &'a Report, name: impl Fn(&'a CellReport) -> &'a String) -> Vec<&'a str> {
    let mut names = Vec::new();
    for cell in &report.cells {
        let name = name(cell).as_str();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}
