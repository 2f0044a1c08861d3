//! The tables, as Markdown, and the lines of the picture.

use many_groups::names::Names;
use many_groups::plot::Plot;
use many_groups::sessions::{session_group, session_in_each};
use many_groups::{Costs, Load, Lost, Model, Outcome, SECOND, Setting};

/// Clients for each machine: as many as keep all its cores busy.
const CLIENTS: usize = 256;

/// Groups for each machine where their number is not what is asked: as few as are spread well when a machine is lost.
const GROUPS: usize = 2;

fn run(setting: Setting) -> Outcome {
    Model::new(setting).run()
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).expect("digits are ASCII"))
        .collect();
    groups.join(",")
}

/// One group where it was measured: all three nodes and the clients on one machine.
pub fn one_group(base: &Setting) {
    println!("One group, all on one machine of two cores, as in the measurement:\n");
    println!("| clients | operations/s | p50 | p99 | operations in an entry |\n|---:|---:|---:|---:|---:|");
    for clients in [1, 16, 64] {
        let outcome = run(Setting {
            machines: 1,
            cores: 2,
            clients_share: true,
            costs: Costs::measured(),
            load: Load::Closed { clients },
            ..base.clone()
        });
        println!(
            "| {clients} | {} | {:.2} ms | {:.2} ms | {:.1} |",
            thousands(outcome.operations_per_second),
            outcome.times.at(0.5),
            outcome.times.at(0.99),
            outcome.batch
        );
    }
}

/// Throughput against the number of groups, for several numbers of machines.
pub fn groups_and_machines(base: &Setting) -> Plot {
    println!("\nWrites in a second, {CLIENTS} clients for each machine, names wanted alike:\n");
    println!(
        "| machines | groups | writes/s | p50 | p99 | operations in an entry | busiest machine | idlest |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|");
    let mut lines = Vec::new();
    for machines in [3, 6, 12, 24] {
        let mut points = Vec::new();
        for groups in [1, 2, 3, 6, 12, 24, 48, 96] {
            let outcome = run(Setting {
                groups,
                machines,
                load: Load::Closed {
                    clients: CLIENTS * machines,
                },
                ..base.clone()
            });
            println!(
                "| {machines} | {groups} | {} | {:.2} ms | {:.2} ms | {:.1} | {} | {} |",
                thousands(outcome.operations_per_second),
                outcome.times.at(0.5),
                outcome.times.at(0.99),
                outcome.batch,
                percent(outcome.busy.iter().fold(0.0, |most: f64, busy| most.max(*busy))),
                percent(outcome.busy.iter().fold(1.0, |least: f64, busy| least.min(*busy)))
            );
            points.push((groups as f64, outcome.operations_per_second));
        }
        lines.push((format!("{machines} machines"), points));
    }
    Plot {
        title: format!("Writes in a second, {} cores a machine", base.cores),
        x: "groups".into(),
        y: "writes/s".into(),
        lines,
        log_x: true,
    }
}

/// Waiting times against what is offered.
pub fn waiting(base: &Setting) -> Plot {
    let machines = 6;
    println!("\nTimes of writes that come at random, {machines} machines:\n");
    println!("| groups | offered | p50 | p99 | p99.9 | busiest machine |\n|---:|---:|---:|---:|---:|---:|");
    let mut lines = Vec::new();
    for groups in [1, 6, 12, 48] {
        let most = run(Setting {
            groups,
            machines,
            load: Load::Closed {
                clients: CLIENTS * machines,
            },
            ..base.clone()
        });
        let mut points = Vec::new();
        for part in [0.1, 0.3, 0.5, 0.7, 0.8, 0.9] {
            let per_second = most.operations_per_second * part;
            let outcome = run(Setting {
                groups,
                machines,
                load: Load::Open { per_second },
                ..base.clone()
            });
            println!(
                "| {groups} | {}/s ({}) | {:.2} ms | {:.2} ms | {:.2} ms | {} |",
                thousands(per_second),
                percent(part),
                outcome.times.at(0.5),
                outcome.times.at(0.99),
                outcome.times.at(0.999),
                percent(outcome.busy.iter().fold(0.0, |most: f64, busy| most.max(*busy)))
            );
            points.push((per_second, outcome.times.at(0.99)));
        }
        lines.push((format!("{groups} groups"), points));
    }
    Plot {
        title: format!("p99 of a write, {machines} machines"),
        x: "writes/s that come".into(),
        y: "ms".into(),
        lines,
        log_x: true,
    }
}

/// Names that are wanted unequally.
pub fn skew(base: &Setting) {
    let machines = 6;
    println!("\n{machines} machines, 100,000 names, the one of rank k wanted in proportion to 1/k^s:\n");
    println!(
        "| s | groups | most wanted name | most wanted group | writes/s | p50 | p99 | busiest machine | idlest |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for skew in [0.0, 0.8, 1.0, 1.2, 1.5] {
        for groups in [6, 12, 48] {
            let outcome = run(Setting {
                groups,
                machines,
                skew,
                load: Load::Closed {
                    clients: CLIENTS * machines,
                },
                ..base.clone()
            });
            // Alone in its group each name's share is its own.
            let names = Names::new(base.names, skew, groups).shares(groups);
            let name = 1.0
                / (1..=base.names)
                    .map(|rank| (rank as f64).powf(-skew))
                    .sum::<f64>();
            println!(
                "| {skew} | {groups} | {:.2} % | {:.1} % | {} | {:.2} ms | {:.2} ms | {} | {} |",
                name * 100.0,
                names.into_iter().fold(0.0, f64::max) * 100.0,
                thousands(outcome.operations_per_second),
                outcome.times.at(0.5),
                outcome.times.at(0.99),
                percent(outcome.busy.iter().fold(0.0, |most: f64, busy| most.max(*busy))),
                percent(outcome.busy.iter().fold(1.0, |least: f64, busy| least.min(*busy)))
            );
        }
    }
}

/// Reads beside writes.
pub fn reads(base: &Setting) {
    let machines = 6;
    println!("\n{machines} machines, with local reads at any member:\n");
    println!(
        "| reads | groups | operations/s | p50 of a read | p99 of a read | p99 of all |\n|---:|---:|---:|---:|---:|---:|"
    );
    for reads in [0.5, 0.9, 0.99] {
        for groups in [1, 6, 12] {
            let outcome = run(Setting {
                groups,
                machines,
                reads,
                load: Load::Closed {
                    clients: CLIENTS * machines,
                },
                ..base.clone()
            });
            println!(
                "| {} | {groups} | {} | {:.2} ms | {:.2} ms | {:.2} ms |",
                percent(reads),
                thousands(outcome.operations_per_second),
                outcome.reads.at(0.5),
                outcome.reads.at(0.99),
                outcome.times.at(0.99)
            );
        }
    }
}

/// A machine that is lost under a load that the others can take.
pub fn lost(base: &Setting) {
    println!(
        "\nOne machine is lost; half of what the groups can do is asked for; others lead after {:.2} s:\n",
        base.costs.failover as f64 / SECOND as f64
    );
    println!(
        "| machines | groups | names that wait | longest wait | p50 | p99 | writes/s before, after | groups led in the end, least to most |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|");
    for machines in [3, 6, 12] {
        for groups in [1, machines * GROUPS, machines * 4 * GROUPS] {
            let most = run(Setting {
                groups,
                machines,
                load: Load::Closed {
                    clients: CLIENTS * machines,
                },
                ..base.clone()
            });
            let outcome = run(Setting {
                groups,
                machines,
                load: Load::Open {
                    per_second: most.operations_per_second / 2.0,
                },
                lost: Some(Lost {
                    machine: 0,
                    at: SECOND,
                }),
                measured: SECOND + 4 * base.costs.failover,
                ..base.clone()
            });
            let leads = || outcome.leads.iter().skip(1);
            println!(
                "| {machines} | {groups} | {} | {:.0} ms | {:.2} ms | {:.2} ms | {}, {} | {} to {} |",
                percent(outcome.waited_share),
                outcome.times.at(1.0),
                outcome.times.at(0.5),
                outcome.times.at(0.99),
                thousands(outcome.before_and_after.0),
                thousands(outcome.before_and_after.1),
                leads().min().expect("there are others"),
                leads().max().expect("there are others")
            );
        }
    }
}

/// Several locks at once, one group after the other.
pub fn multi(base: &Setting) {
    let (machines, groups) = (6, 6 * GROUPS);
    println!(
        "\n{machines} machines, {groups} groups, half of the load that they can take; a tenth takes several locks in turn:\n"
    );
    println!(
        "| locks | writes/s | p50, p99 of one lock and all | p50, p99 of several |\n|---:|---:|---:|---:|"
    );
    let most = run(Setting {
        groups,
        machines,
        load: Load::Closed {
            clients: CLIENTS * machines,
        },
        ..base.clone()
    });
    for locks in [2, 4, 8] {
        // Each of them is a write.
        let writes = 0.9 + 0.1 * locks as f64;
        let outcome = run(Setting {
            groups,
            machines,
            multi: (0.1, locks),
            load: Load::Open {
                per_second: most.operations_per_second / 2.0 / writes,
            },
            ..base.clone()
        });
        println!(
            "| {locks} | {} | {:.2}, {:.2} ms | {:.2}, {:.2} ms |",
            thousands(outcome.operations_per_second * writes),
            outcome.times.at(0.5),
            outcome.times.at(0.99),
            outcome.multi.at(0.5),
            outcome.multi.at(0.99)
        );
    }
}

/// A session group beside sessions in each group.
pub fn sessions(costs: &Costs) {
    let (ttl, lives, each, groups) = (10.0, 3_600.0, 2.0, 12.0);
    println!(
        "\nSessions with a ttl of {ttl} s that live for an hour and use {each} groups each, of {groups}:\n"
    );
    println!(
        "| sessions | heartbeats/s | cores of the session group's leader | entries/s for coming and going | without it: heartbeats/s | cores of each leader | entries/s |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|");
    for sessions in [10_000.0, 100_000.0, 1_000_000.0] {
        let one = session_group(costs, sessions, ttl, lives, each);
        let all = session_in_each(costs, sessions, ttl, lives, each, groups);
        println!(
            "| {} | {} | {:.2} | {} | {} | {:.3} | {} |",
            thousands(sessions),
            thousands(one.heartbeats_per_second),
            one.leader_cores,
            thousands(one.writes_per_second),
            thousands(all.heartbeats_per_second),
            all.leader_cores,
            thousands(all.writes_per_second)
        );
    }
}
