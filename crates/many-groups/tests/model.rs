//! The model itself: one group against what was measured of one group, and what must hold of many whatever they cost.

use many_groups::{Costs, Load, Lost, MICROSECOND, Model, Outcome, SECOND, Setting};

/// The model may be off by so much from what was measured: it knows no scheduler, and no disk that is slow at times.
const MARGIN: f64 = 0.3;

/// `bench zookeeper --workloads set`, three nodes and the clients on one machine of two cores: clients, operations in a second. Medians of
/// three rounds.
const MEASURED: [(usize, f64); 3] = [(1, 2_562.0), (16, 15_411.0), (64, 32_424.0)];

fn run(setting: Setting) -> Outcome {
    Model::new(setting).run()
}

#[test]
fn one_group_is_as_fast_as_it_was_measured() {
    for (clients, measured) in MEASURED {
        let outcome = run(Setting {
            machines: 1,
            clients_share: true,
            load: Load::Closed { clients },
            ..Setting::default()
        });
        let off = outcome.operations_per_second / measured - 1.0;
        assert!(
            off.abs() < MARGIN,
            "{clients} clients: {:.0} in place of {measured}",
            outcome.operations_per_second
        );
    }
}

#[test]
fn a_seed_always_gives_the_same() {
    let setting = Setting {
        groups: 12,
        machines: 6,
        skew: 1.0,
        reads: 0.3,
        multi: (0.2, 3),
        measured: SECOND / 10,
        ..Setting::default()
    };
    let runs: Vec<String> = [1, 1, 2]
        .into_iter()
        .map(|seed| {
            format!(
                "{:?}",
                run(Setting {
                    seed,
                    ..setting.clone()
                })
            )
        })
        .collect();
    assert!(runs[0] == runs[1], "the same seed");
    assert!(runs[0] != runs[2], "another seed");
}

#[test]
fn an_idle_cluster_takes_what_the_steps_take() {
    let costs = Costs::measured();
    let outcome = run(Setting {
        machines: 6,
        load: Load::Open { per_second: 20.0 },
        measured: 10 * SECOND,
        ..Setting::default()
    });
    // Leader and follower, then the disk of the follower, which has the entry later.
    let steps = costs.front
        + costs.entry
        + costs.entry_operation
        + costs.follow
        + costs.follow_operation
        + costs.sync
        + costs.wake
        + costs.apply
        + costs.apply_operation
        + 4 * costs.hop;
    let expected = steps as f64 / 1e6;
    let median = outcome.times.at(0.5);
    assert!(
        (median / expected - 1.0).abs() < 0.01,
        "{median} ms in place of {expected} ms"
    );
    let offered = outcome.operations_per_second;
    assert!((offered / 20.0 - 1.0).abs() < 0.2, "{offered} in a second");
}

#[test]
fn what_is_answered_is_not_more_than_the_cores_can_do() {
    for groups in [1, 3, 24] {
        let outcome = run(Setting {
            groups,
            load: Load::Closed { clients: 768 },
            ..Setting::default()
        });
        let all: f64 = outcome.busy.iter().sum();
        assert!(
            outcome.busy.iter().all(|busy| *busy <= 1.001),
            "{groups} groups: {:?}",
            outcome.busy
        );
        let costs = Costs::measured();
        let least = costs.front + costs.entry_operation + costs.apply_operation + 2 * costs.follow_operation;
        let bound = 6.0 * SECOND as f64 / least as f64;
        assert!(outcome.operations_per_second < bound, "{groups} groups");
        // One leader is busy alone with all that so many clients ask.
        assert!(all > 0.8, "{groups} groups: {all} of three machines are busy");
    }
}

#[test]
fn groups_use_the_machines_that_one_leader_leaves_idle() {
    let with = |groups| {
        run(Setting {
            groups,
            machines: 6,
            load: Load::Closed { clients: 1_536 },
            measured: SECOND / 2,
            ..Setting::default()
        })
    };
    let (one, six) = (with(1), with(6));
    let times = six.operations_per_second / one.operations_per_second;
    assert!((2.0..6.1).contains(&times), "{times} times");
    // Six leaders and twelve followers are even over six machines.
    let (least, most) = six.busy.iter().fold((1.0f64, 0.0f64), |(least, most), busy| {
        (least.min(*busy), most.max(*busy))
    });
    assert!(most - least < 0.1, "{:?}", six.busy);
}

#[test]
fn a_name_that_everybody_wants_holds_its_group_back() {
    let with = |skew| {
        run(Setting {
            groups: 24,
            machines: 6,
            skew,
            load: Load::Closed { clients: 1_536 },
            measured: SECOND / 2,
            ..Setting::default()
        })
        .operations_per_second
    };
    let (even, skewed) = (with(0.0), with(1.5));
    assert!(skewed < 0.8 * even, "{skewed} with skew, {even} without");
}

#[test]
fn a_lost_machine_stops_its_own_names_for_a_failover() {
    let costs = Costs {
        failover: 300_000 * MICROSECOND,
        ..Costs::measured()
    };
    let outcome = run(Setting {
        groups: 60,
        machines: 6,
        costs: costs.clone(),
        load: Load::Open { per_second: 20_000.0 },
        warmup: SECOND / 2,
        measured: 3 * SECOND,
        lost: Some(Lost {
            machine: 1,
            at: SECOND,
        }),
        ..Setting::default()
    });
    assert!(
        (outcome.waited_share - 1.0 / 6.0).abs() < 0.01,
        "{}",
        outcome.waited_share
    );
    assert_eq!(outcome.leads[1], 0);
    assert_eq!(outcome.leads.iter().sum::<usize>(), 60);
    assert!(
        outcome
            .leads
            .iter()
            .all(|leads| *leads == 0 || (11..=13).contains(leads)),
        "{:?}",
        outcome.leads
    );
    // Nobody's request is forgotten, and who had to wait did for the failover at most and the queue after it.
    let answered = outcome.times.count() as f64 / 60_000.0;
    assert!((answered - 1.0).abs() < 0.02, "{answered} of what was asked");
    let longest = outcome.times.at(1.0);
    assert!((300.0..450.0).contains(&longest), "{longest} ms");
    let waited = outcome.times.at(1.0 - 1.0 / 6.0 * 0.3 / 3.0 * 1.1);
    assert!(waited < 100.0, "others waited, too: {waited} ms");
    let (before, after) = outcome.before_and_after;
    assert!(
        (after / before - 1.0).abs() < 0.05,
        "{before} before, {after} after"
    );
}

#[test]
fn several_locks_cost_their_groups_one_after_the_other() {
    let outcome = run(Setting {
        groups: 1_000,
        machines: 6,
        multi: (0.1, 3),
        load: Load::Open { per_second: 500.0 },
        measured: 4 * SECOND,
        ..Setting::default()
    });
    let times = outcome.multi.mean() / outcome.times.mean();
    assert!((2.0..3.0).contains(&times), "{times}");
    assert!(outcome.multi.count() > 150);
}
