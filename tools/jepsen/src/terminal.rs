//! Output on the terminal.

use std::io::Write;

use anyhow::Context;

use crate::isolation::Isolation;
use crate::report::{CellReport, Outcome, Report};
use crate::systems::System;
use crate::{nemesis, workloads};

/// Prints a line about a cell that has ended, with reasons and files unless it passed.
pub fn print_cell(cell: &CellReport) {
    println!("{}", cell.line());
    if cell.outcome == Outcome::Passed {
        return;
    }
    for reason in &cell.reasons {
        println!("    {reason}");
    }
    if let Some(kept) = &cell.kept {
        println!("    logs and history: {}", kept.display());
        println!("    reproduce:  {}", cell.reproduce);
    }
}

pub fn summary(report: &Report) {
    let count = |outcome| report.cells.iter().filter(|cell| cell.outcome == outcome).count();
    let counts = [
        Outcome::Passed,
        Outcome::Violated,
        Outcome::Undecided,
        Outcome::Invalid,
        Outcome::Error,
        Outcome::Skipped,
    ];
    let counts = counts.map(|outcome| format!("{} {}", count(outcome), outcome.word()));
    println!(
        "{}: {}; {:.0} s",
        report.title,
        counts.join(", "),
        report.took_seconds
    );
}

pub fn list(isolation: Isolation) -> String {
    let mut text = format!("{}\n\nworkloads:\n", isolation.describe());
    for kind in workloads::all() {
        text.push_str(&format!("  {:<20} {}\n", kind.name, kind.about));
    }
    text.push_str("\nnemeses:\n");
    for kind in nemesis::all() {
        let cannot = kind.impossible(isolation, System::Lockgate);
        let cannot = cannot.map_or(String::new(), |why| format!(" (not here: {why})"));
        text.push_str(&format!(
            "  {:<20} {} nodes: {}{cannot}\n",
            kind.name, kind.nodes, kind.about
        ));
    }
    text
}

/// Prints a text; a closed pipe, as of `head`, is no error.
pub fn show(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        shown => shown.context("printing"),
    }
}
