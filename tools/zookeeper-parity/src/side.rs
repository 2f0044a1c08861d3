//! Side: a system that programs run against. The course of a run is the same for both.

use anyhow::{Context, Result};

use crate::program::{Program, QUOTA_ROOT, Root, Step, WRITTEN_ROOT};
use crate::tally::Tally;
use crate::trace::{Recorder, StepResult, Trace};
use crate::wire::{AclEntry, CreateCall, Outcome, Reply, Request};

/// System that executes the steps of one program.
pub trait Side {
    /// Executes one step, and waits until all notifications have arrived.
    fn step(&mut self, step: &Step) -> Result<StepResult>;

    /// Answers reads of an observer with all permissions that is no session of the program.
    fn read_all(&mut self, requests: &[Request]) -> Result<Vec<Outcome>>;
}

/// Result of a run.
pub struct Run {
    /// Trace, which must be equal on the other side.
    pub trace: Trace,
    /// Paths that are left.
    pub left: Vec<String>,
    /// Counts of steps and outcomes.
    pub tally: Tally,
}

/// Runs a program: session 0 creates the root; then come the steps, a survey of all znodes, the ends of the
/// sessions, and another survey.
pub fn run(side: &mut dyn Side, program: &Program, root: &Root) -> Result<Run> {
    let mut recorder = Recorder::new(program, root);
    let mut trace = Trace::default();
    let mut tally = Tally::default();
    let ends = (0..program.sessions)
        .map(|session| Step::End { session })
        .collect::<Vec<_>>();

    side.step(&Step::Open { session: 0 })
        .map(|step_result| recorder.record(0, &Step::Open { session: 0 }, step_result))?;
    let make_root = make_root(root);
    let step_result = side.step(&make_root)?;
    trace.0.push(recorder.record(0, &make_root, step_result));

    let mut left = Vec::new();
    for (steps, first) in [(&program.steps, 1), (&ends, program.steps.len() + 1)] {
        for (index, step) in steps.iter().enumerate() {
            let number = first + index;
            let placed = place(step, root);
            let step_result = side
                .step(&placed)
                .with_context(|| format!("step {number}, {step}"))?;
            tally.note(step, &step_result);
            trace.0.push(recorder.record(number, step, step_result));
        }
        let (lines, found) = survey(side, &mut recorder, root).context("survey the tree")?;
        trace.0.push(lines);
        left = found;
    }
    Ok(Run { trace, left, tally })
}

/// Returns a label for each step of a trace, for reports: the steps as [`run`] executes them, with the
/// surveys.
pub fn labels(program: &Program) -> Vec<String> {
    let mut labels = vec![format!("  0  {}", make_root(&Root::written()))];
    for (index, step) in program.steps.iter().enumerate() {
        labels.push(format!("{:>3}  {step}", index + 1));
    }
    labels.push("     the tree before the sessions end".to_owned());
    for session in 0..program.sessions {
        labels.push(format!(
            "{:>3}  {}",
            program.steps.len() + 1 + session,
            Step::End { session }
        ));
    }
    labels.push("     the tree at the end".to_owned());
    labels
}

fn make_root(root: &Root) -> Step {
    let request = Request::Create {
        call: CreateCall::Create2,
        path: root.path().to_owned(),
        data: None,
        acl: Some(vec![AclEntry {
            perms: 31,
            scheme: "world".to_owned(),
            id: "anyone".to_owned(),
        }]),
        flags: 0,
    };
    Step::Call { session: 0, request }
}

fn place(step: &Step, root: &Root) -> Step {
    match step {
        Step::Call { session, request } => Step::Call {
            session: *session,
            request: root.place(request),
        },
        Step::Rewatch {
            session,
            relative,
            watches,
        } => Step::Rewatch {
            session: *session,
            relative: *relative,
            watches: root.place_watches(watches),
        },
        other => other.clone(),
    }
}

/// Reads every znode below the root and below its quota, level by level. Returns a line for each fact, sorted
/// by path, and the paths.
fn survey(side: &mut dyn Side, recorder: &mut Recorder, root: &Root) -> Result<(Vec<String>, Vec<String>)> {
    let mut lines = Vec::new();
    let mut paths = Vec::new();
    let mut level = vec![
        root.path().to_owned(),
        root.placed(&format!("{QUOTA_ROOT}{WRITTEN_ROOT}")),
    ];
    while !level.is_empty() {
        let requests = level
            .iter()
            .flat_map(|path| {
                [
                    Request::GetData {
                        path: path.clone(),
                        watch: false,
                    },
                    Request::GetAcl { path: path.clone() },
                    Request::GetChildren2 {
                        path: path.clone(),
                        watch: false,
                    },
                ]
            })
            .collect::<Vec<_>>();
        let outcomes = side.read_all(&requests)?;
        let mut next = Vec::new();
        for (index, (request, outcome)) in requests.iter().zip(&outcomes).enumerate() {
            let path = &level[index / 3];
            recorder.learn_from(outcome);
            lines.push(recorder.survey(path, request, outcome));
            if let Ok(Reply::NamesAndStat(names, _)) = outcome {
                paths.push(path.clone());
                next.extend(names.iter().map(|name| format!("{path}/{name}")));
            }
        }
        level = next;
    }
    lines.sort();
    Ok((lines, paths))
}
