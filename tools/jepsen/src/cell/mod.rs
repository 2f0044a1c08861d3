//! One cell of the matrix: starts a cluster, runs clients, injects faults, heals everything, and checks the
//! recorded history.

pub mod guards;
mod set_up;
pub mod spec;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::task::JoinSet;

use crate::cluster::{Misbehaved, START_TIMEOUT};
use crate::nemesis::schedule::Until;
use crate::nemesis::{self, Testbed, chaos, schedule};
use crate::report::{self, CellReport, Check, Fault};
use crate::workloads::{self, Workload};
use guards::Facts;
pub use spec::Spec;

/// Time between the last fault and the end of the clients, so that late recoveries are recorded.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// Time limit for clients to finish their current operation: the longest call and the longest wait for a
/// lock, with a margin.
const CLIENTS_TIMEOUT: Duration = Duration::from_secs(40);

/// Time limit within which healed nodes must reach the same state.
const SAME_STATE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit for the final reads and all checkers.
const CHECK_TIMEOUT: Duration = Duration::from_secs(300);

/// Runs the cell in this process, which has namespaces of its own.
pub async fn run(spec: &Spec) -> anyhow::Result<CellReport> {
    let begun = Instant::now();
    let kind = nemesis::find(&spec.nemesis)?;
    let workload = workloads::named(&spec.workload).context("there is no such workload")?;
    let control = workload.control;
    let workload = workload.make(spec.system);
    let (testbed, _watch) = set_up::set_up(spec, &kind).await?;
    let world = &testbed.world;
    let cluster = &testbed.cluster;

    workload.prepare(world).await.context("preparing the workload")?;
    let mut clients = JoinSet::new();
    for number in 0..workload.clients() {
        clients.spawn(workload.clone().client(world.clone(), number));
    }
    let quiet_from = world.now();
    tokio::time::sleep(Duration::from_secs_f64(spec.quiet_seconds)).await;
    let quiet_to = world.now();

    let (mut faults, ended) = faults(spec, &kind, &testbed).await;
    // Clients end before the cluster does, even after errors.
    let mut incidents = Vec::new();
    let healed = heal(&testbed, &mut incidents).await;
    tokio::time::sleep(AFTERWARDS).await;
    let end = world.now();
    world.stop.cancel();
    stop_clients(&mut clients, &mut incidents).await;
    finding(ended, "during the faults", &mut incidents)?;
    finding(healed, "healing", &mut incidents)?;

    let checks = match check(&testbed, &*workload, &mut incidents).await {
        // With incidents on record, failing final reads are another incident rather than an error of the
        // harness.
        Err(error) if !incidents.is_empty() => {
            incidents.push(format!("{error:#}"));
            Vec::new()
        }
        checks => checks?,
    };
    incidents.extend(cluster.incidents());
    incidents.sort();
    incidents.dedup();
    let progress = workload.progress();
    guards::note_recoveries(&mut faults, &progress.succeeded, end);
    let rate_before = guards::rate(&progress.succeeded, quiet_from, quiet_to);
    let longest_silence_ms = guards::longest_silence_ms(&progress.succeeded, quiet_from, end);
    // Only Lockgate promises a bound; other systems are just measured.
    if let Some(bound_ms) = nemesis::longest_silence_ms(kind.name)
        && spec.system.is_lockgate()
        && longest_silence_ms > bound_ms
    {
        incidents.push(format!(
            "a majority ran and was connected, but no call succeeded for {longest_silence_ms:.0} ms"
        ));
    }
    let (outcome, reasons) = guards::judge(&Facts {
        rate_before,
        least_rate: spec.least_rate,
        faults: &faults,
        checks: &checks,
        incidents: &incidents,
        control,
        overlapping: chaos::parts(kind.name).is_some(),
    });
    if !outcome.is_fine() {
        keep_history(spec, &*workload)?;
    }
    Ok(CellReport {
        outcome,
        reasons,
        checks,
        rate_before,
        succeeded: progress.succeeded.len() as u64,
        failed: progress.failed,
        unknown: progress.unknown,
        rate: report::rate(&progress.succeeded),
        call_errors: workload.reasons(),
        longest_silence_ms,
        faults,
        timeline: workload.timeline(),
        nodes: kind.nodes,
        took_seconds: begun.elapsed().as_secs_f64(),
        ..spec.empty_report()
    })
}

/// Injects the faults: of one kind one after the other, of several kinds at the same time. Returns those that
/// began, and an error if one failed.
async fn faults(spec: &Spec, kind: &nemesis::Kind, testbed: &Testbed) -> (Vec<Fault>, anyhow::Result<()>) {
    let until = match spec.faults {
        Some(most) => Until::Faults(most),
        None => Until::Time(Duration::from_secs(spec.seconds)),
    };
    let one = [kind.name];
    let parts = chaos::parts(kind.name).unwrap_or(&one);
    let runs = parts.iter().zip(0..).map(|(name, number)| async move {
        let mut faults = Vec::new();
        let run = async {
            let mut nemesis = (nemesis::find(name)?.make)();
            let seed = spec.seed.wrapping_add(number);
            schedule::run(name, &mut *nemesis, testbed, seed, until, &mut faults).await
        };
        let ended = run.await;
        (faults, ended)
    });
    // All nemeses heal what they have begun before anything else happens, even if one of them has failed.
    let all = futures_util::future::join_all(runs).await;
    let (faults, ended): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let mut faults = faults.concat();
    faults.sort_by_key(|fault| fault.begin);
    (faults, ended.into_iter().collect())
}

/// Records misbehaviour of a node as an incident; any other error is one of the harness.
fn finding(ended: anyhow::Result<()>, what: &'static str, incidents: &mut Vec<String>) -> anyhow::Result<()> {
    match ended {
        Err(error) if error.downcast_ref::<Misbehaved>().is_some() => {
            incidents.push(format!("{what}: {error:#}"));
            Ok(())
        }
        other => other.context(what),
    }
}

/// Restores a running node in each slot that clients know, and waits until all serve. A node that ended by
/// itself is an incident; it is started again so that its data can be read.
async fn heal(testbed: &Testbed, incidents: &mut Vec<String>) -> anyhow::Result<()> {
    let cluster = &testbed.cluster;
    // Clients call the nodes in the slots that they know.
    for slot in (1..=cluster.size).filter(|slot| !cluster.process(*slot).is_member()) {
        let id = cluster.add(slot).await.context("filling an empty slot")?;
        eprintln!("node {id} is added in slot {slot} for the final reads");
    }
    for slot in cluster.start_missing()? {
        eprintln!(
            "node {} is started again for the final reads",
            cluster.node(slot).id
        );
    }
    if let Err(error) = cluster.wait_all_ready(START_TIMEOUT).await {
        incidents.push(format!("after everything was healed: {error:#}"));
    }
    Ok(())
}

async fn stop_clients(clients: &mut JoinSet<()>, incidents: &mut Vec<String>) {
    let all = async {
        while let Some(ended) = clients.join_next().await {
            if let Err(error) = ended {
                incidents.push(format!("a client of the harness failed: {error}"));
            }
        }
    };
    if tokio::time::timeout(CLIENTS_TIMEOUT, all).await.is_err() {
        let left = clients.len();
        incidents.push(format!(
            "{left} clients did not end within {} s after everything was healed",
            CLIENTS_TIMEOUT.as_secs()
        ));
        clients.shutdown().await;
    }
}

/// Runs the workload's checkers and compares the nodes' states.
async fn check(
    testbed: &Testbed,
    workload: &dyn Workload,
    incidents: &mut Vec<String>,
) -> anyhow::Result<Vec<Check>> {
    let found = tokio::time::timeout(CHECK_TIMEOUT, workload.check(&testbed.world)).await;
    let found = found
        .context("the checkers exceeded their time limit")?
        .context("final reads")?;
    let checks = found.into_iter().map(|(name, verdict)| Check { name, verdict });
    match testbed.cluster.wait_same_state(SAME_STATE_TIMEOUT).await {
        Ok(Some(same)) => eprintln!("{same}"),
        Ok(None) => {}
        Err(error) => incidents.push(format!("the nodes' states: {error:#}")),
    }
    Ok(checks.collect())
}

/// Writes the raw history, one call a line, next to the nodes' logs.
fn keep_history(spec: &Spec, workload: &dyn Workload) -> anyhow::Result<()> {
    let path = spec.dir.join("history.jsonl");
    let file = std::fs::File::create(&path).with_context(|| path.display().to_string())?;
    let mut file = std::io::BufWriter::new(file);
    workload
        .write_history(&mut file)
        .with_context(|| path.display().to_string())?;
    std::io::Write::flush(&mut file).with_context(|| path.display().to_string())
}

/// Entry point of a cell's process: reads the spec, runs the cell, and writes the report.
pub async fn run_inside(file: &Path) -> anyhow::Result<()> {
    let spec = Spec::read(file)?;
    eprintln!("seed {}", spec.seed);
    let report = match run(&spec).await {
        Ok(report) => report,
        Err(error) => spec.failed(format!("{error:#}")),
    };
    let text = serde_json::to_string(&report).context("the report as JSON")?;
    let path = spec.report_file();
    std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    Ok(())
}
