//! Matrices of workloads and nemeses, and their execution one cell after the other or in parallel.

use std::str::FromStr;

use clap::ValueEnum;
use futures_util::StreamExt;

use crate::cell::Spec;
use crate::report::CellReport;
use crate::supervise::Supervisor;
use crate::systems::System;
use crate::{nemesis, workloads};

/// Set of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Matrix {
    /// A few selected short cells that every change has to pass.
    Gate,
    /// Every workload and every nemesis at least once.
    Quick,
    /// Every workload with every nemesis.
    Full,
    /// The full matrix with longer runs.
    Release,
}

/// Part of a matrix: one cell in every `of`, chosen by `number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    number: usize,
    of: usize,
}

impl Share {
    /// Returns whether the cell at this index of the matrix belongs to the share.
    pub fn has(self, cell: usize) -> bool {
        (cell + self.number).is_multiple_of(self.of)
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, of) = text.split_once('/').ok_or("expected N/M")?;
        let parse = |part: &str| part.parse::<usize>().map_err(|error| format!("{part}: {error}"));
        let share = Self {
            number: parse(number)?,
            of: parse(of)?,
        };
        match share.of {
            0 => Err("a share needs at least one part".to_owned()),
            _ => Ok(share),
        }
    }
}

/// Cells of the gate: each family of faults, each with a workload that it could break.
const GATE: [(&str, &str); 12] = [
    ("exclusive", "kill-leader"),
    ("register", "isolate-leader"),
    ("set", "power-cut-all"),
    ("unique-ids", "snapshot-install"),
    ("sessions", "partition-halves"),
    ("watches", "rolling-restart"),
    ("exactly-once", "slow-network"),
    ("shared", "pause-leader"),
    ("exclusive", "old-image"),
    ("set", "flipped-bits"),
    ("leases", "kill-leader"),
    ("queued", "rolling-restart"),
];

/// Nemeses of control runs: faults under which the control workloads fail for certain.
const CONTROL_NEMESES: [&str; 2] = ["isolate-leader", "partition-halves"];

impl Matrix {
    /// Returns the name as on the command line.
    pub fn name(self) -> String {
        let value = self.to_possible_value().expect("no matrix is hidden");
        value.get_name().to_owned()
    }

    /// Returns the seconds of faults in each cell.
    pub fn seconds(self, requested: u64) -> u64 {
        match self {
            Self::Gate => 12,
            Self::Quick | Self::Full => requested,
            Self::Release => requested.max(120),
        }
    }

    /// Returns the workload and the nemesis of each cell.
    pub fn cells(self, system: System) -> Vec<(String, String)> {
        let able = || {
            workloads::all()
                .iter()
                .filter(|kind| kind.systems.contains(&system))
        };
        let workloads: Vec<&str> = able()
            .filter(|kind| !kind.control)
            .map(|kind| kind.name)
            .collect();
        let controls = able().filter(|kind| kind.control).map(|kind| kind.name);
        let nemeses: Vec<&str> = nemesis::all().iter().map(|kind| kind.name).collect();
        let controls = controls.flat_map(|control| CONTROL_NEMESES.map(|nemesis| (control, nemesis)));
        let mut pairs: Vec<(&str, &str)> = match self {
            Self::Gate => GATE.to_vec(),
            Self::Quick => {
                let longer = workloads.len().max(nemeses.len());
                let pair = |at: usize| (workloads[at % workloads.len()], nemeses[at % nemeses.len()]);
                (0..longer).map(pair).collect()
            }
            Self::Full | Self::Release => {
                let all = nemeses
                    .iter()
                    .flat_map(|nemesis| workloads.iter().map(move |it| (*it, *nemesis)));
                all.collect()
            }
        };
        if self != Self::Gate {
            pairs.extend(controls);
        }
        pairs
            .into_iter()
            .map(|(workload, nemesis)| (workload.to_owned(), nemesis.to_owned()))
            .collect()
    }
}

/// Runs the cells, `side_by_side` at a time, and reports each as soon as it has ended. Returns them in their
/// original order.
pub async fn run(
    supervisor: &Supervisor,
    cells: Vec<Spec>,
    side_by_side: usize,
    on_cell: &dyn Fn(&CellReport),
) -> Vec<CellReport> {
    let runs = cells.into_iter().enumerate().map(|(number, spec)| async move {
        let report = supervisor.run(spec).await;
        (number, report)
    });
    let mut running = futures_util::stream::iter(runs).buffer_unordered(side_by_side.max(1));
    let mut ended = Vec::new();
    while let Some((number, report)) = running.next().await {
        on_cell(&report);
        ended.push((number, report));
    }
    ended.sort_by_key(|(number, _)| *number);
    ended.into_iter().map(|(_, report)| report).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_successive_days_have_each_cell_once() {
        for cell in 0..8 {
            let has = |day: usize| format!("{day}/3").parse::<Share>().unwrap().has(cell);
            assert_eq!((20_782..20_785).filter(|day| has(*day)).count(), 1);
        }
        for text in ["3", "1/0", "x/2", "1/"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }

    #[test]
    fn all_cells_name_existing_workloads_and_nemeses() {
        for matrix in [Matrix::Gate, Matrix::Quick, Matrix::Full, Matrix::Release] {
            let cells = matrix.cells(System::Lockgate);
            assert!(cells.len() >= GATE.len());
            for (workload, nemesis) in cells {
                assert!(workloads::named(&workload).is_some(), "{workload}");
                nemesis::find(&nemesis).expect("the nemesis exists");
            }
        }
    }

    #[test]
    fn quick_matrix_has_every_workload_and_every_nemesis() {
        let cells = Matrix::Quick.cells(System::Lockgate);
        for kind in workloads::all()
            .iter()
            .filter(|kind| kind.systems.contains(&System::Lockgate))
        {
            assert!(
                cells.iter().any(|(workload, _)| workload == kind.name),
                "{}",
                kind.name
            );
        }
        for kind in nemesis::all() {
            assert!(
                cells.iter().any(|(_, nemesis)| nemesis == kind.name),
                "{}",
                kind.name
            );
        }
    }
}
