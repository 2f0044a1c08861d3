//! Search for the first difference of two traces, and for the smallest program that still shows one.

use std::fmt;

use anyhow::Result;

use crate::program::{Program, QUOTA_ROOT, Step};
use crate::side::labels;
use crate::trace::Trace;
use crate::wire::Request;

/// First step at which two sides differ.
#[derive(Debug)]
pub struct Difference {
    /// The program.
    pub program: Program,
    label: String,
    zookeeper: Vec<String>,
    other: Vec<String>,
    other_name: &'static str,
}

impl Difference {
    /// Compares ZooKeeper's trace with another side's.
    pub fn find(
        program: &Program,
        zookeeper: &Trace,
        other: &Trace,
        other_name: &'static str,
    ) -> Option<Self> {
        let at = zookeeper
            .0
            .iter()
            .zip(&other.0)
            .position(|(left, right)| left != right)?;
        Some(Self {
            program: program.clone(),
            label: format!("first difference at\n{}", labels(program)[at]),
            zookeeper: zookeeper.0[at].clone(),
            other: other.0[at].clone(),
            other_name,
        })
    }

    /// Reports that another side did not complete a program.
    pub fn failed(program: &Program, message: &str, other_name: &'static str) -> Self {
        Self {
            program: program.clone(),
            label: "one side did not complete the program".to_owned(),
            zookeeper: Vec::new(),
            other: vec![message.to_owned()],
            other_name,
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {} differs; {} steps show it:",
            self.program.seed,
            self.program.steps.len()
        )?;
        write!(f, "{}", self.program)?;
        writeln!(f, "{}", self.label)?;
        for (name, lines, others) in [
            ("ZooKeeper", &self.zookeeper, &self.other),
            (self.other_name, &self.other, &self.zookeeper),
        ] {
            writeln!(f, "  {name}:")?;
            for line in lines.iter().filter(|line| !others.contains(line)) {
                writeln!(f, "    {line}")?;
            }
            if lines.iter().all(|line| others.contains(line)) {
                writeln!(
                    f,
                    "    {}",
                    if lines.len() < others.len() {
                        "(nothing more)"
                    } else {
                        "(another order)"
                    }
                )?;
            }
        }
        Ok(())
    }
}

/// Removes everything from a program that the difference does not need, until nothing more can be removed.
pub fn shrink(
    mut smallest: Difference,
    mut examine: impl FnMut(&Program) -> Result<Option<Difference>>,
) -> Result<Difference> {
    loop {
        let before = smallest.program.clone();
        // Large pieces first, since most of a program is not needed.
        let mut size = smallest.program.steps.len();
        while size > 0 {
            let mut from = smallest.program.steps.len().saturating_sub(size);
            loop {
                let steps = &smallest.program.steps;
                let to = (from + size).min(steps.len());
                let fewer = steps[..from].iter().chain(&steps[to..]).cloned().collect();
                if let Some(found) = examine(&smallest.program.with_steps(fewer))? {
                    smallest = found;
                }
                if from == 0 {
                    break;
                }
                from = from.saturating_sub(size);
            }
            size /= 2;
        }
        for index in 0..smallest.program.steps.len() {
            for simpler in simplified(&smallest.program.steps[index]) {
                let mut steps = smallest.program.steps.clone();
                steps[index] = simpler;
                if let Some(found) = examine(&smallest.program.with_steps(steps))? {
                    smallest = found;
                    break;
                }
            }
        }
        if smallest.program == before {
            return Ok(smallest);
        }
    }
}

/// Returns simpler forms of a step, the simplest ones first.
fn simplified(step: &Step) -> Vec<Step> {
    let Step::Call { session, request } = step else {
        return Vec::new();
    };
    let session = *session;
    let mut simpler = Vec::new();
    match request {
        Request::Multi(items) => {
            // A check outside of a multi is not a valid request: see `lone-check` in `differences`.
            simpler.extend(
                items
                    .iter()
                    .filter(|item| !matches!(item, Request::Check { .. }))
                    .cloned(),
            );
            simpler.extend(without_one(items).map(Request::Multi));
        }
        Request::MultiRead(items) => simpler.extend(without_one(items).map(Request::MultiRead)),
        // The data of quota znodes has a meaning.
        Request::Create { path, .. } | Request::SetData { path, .. } if path.starts_with(QUOTA_ROOT) => {}
        Request::Create {
            call,
            path,
            data: Some(_),
            acl,
            flags,
        } => simpler.push(Request::Create {
            call: *call,
            path: path.clone(),
            data: None,
            acl: acl.clone(),
            flags: *flags,
        }),
        Request::SetData {
            path,
            data: Some(_),
            version,
        } => {
            simpler.push(Request::SetData {
                path: path.clone(),
                data: None,
                version: *version,
            });
        }
        _ => {}
    }
    simpler
        .into_iter()
        .map(|request| Step::Call { session, request })
        .collect()
}

fn without_one(items: &[Request]) -> impl Iterator<Item = Vec<Request>> + '_ {
    (0..items.len()).map(|left_out| {
        items
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != left_out)
            .map(|(_, item)| item.clone())
            .collect()
    })
}
