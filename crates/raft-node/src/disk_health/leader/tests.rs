use super::*;

const GOOD: DiskReport = DiskReport {
    free_bytes: Some(1_000),
    low_water_bytes: 100,
    low: false,
    log_full: false,
    sync_us: Some(1_000),
    working_us: 0,
};

fn low() -> DiskReport {
    DiskReport {
        free_bytes: Some(10),
        low: true,
        ..GOOD
    }
}

fn stalled() -> DiskReport {
    DiskReport {
        working_us: 3_000_000,
        ..GOOD
    }
}

fn slow() -> DiskReport {
    DiskReport {
        sync_us: Some(200_000),
        ..GOOD
    }
}

/// Builds the facts of leader 1: a voter with all entries per report. `None` does not answer.
fn cluster_disks<const N: usize>(reports: [Option<DiskReport>; N]) -> ClusterDisks {
    let all: BTreeSet<NodeId> = (1..=N as NodeId).collect();
    let reported = all.iter().copied().zip(reports);
    ClusterDisks {
        me: 1,
        reports: reported.filter_map(|(id, report)| Some((id, report?))).collect(),
        lag: all.iter().map(|id| (*id, 0)).collect(),
        voters: vec![all],
    }
}

#[test]
fn cluster_is_read_only_when_no_quorum_has_space() {
    let check = |cluster_disks: ClusterDisks, expected: Option<&[NodeId]>| {
        assert_eq!(
            cluster_disks.without_space().as_deref(),
            expected,
            "{cluster_disks:?}"
        );
    };
    let good = || Some(GOOD);
    let low = || Some(low());
    check(cluster_disks([good(), good(), good()]), None);
    check(cluster_disks([good(), low(), good()]), None);
    check(cluster_disks([good(), low(), low()]), Some(&[2, 3]));
    check(cluster_disks([low(), low(), low()]), Some(&[1, 2, 3]));
    check(cluster_disks([low()]), Some(&[1]));
    // With a dead voter, the voter with low space is needed for every write.
    check(cluster_disks([good(), low(), None]), Some(&[2]));
    check(cluster_disks([good(), good(), None]), None);
    // Without a quorum of answers, the problem is not space.
    check(cluster_disks([low(), None, None]), None);
    check(cluster_disks([low(), low(), good(), good(), good()]), None);
    check(
        cluster_disks([low(), low(), low(), good(), good()]),
        Some(&[1, 2, 3]),
    );
    let full = DiskReport {
        log_full: true,
        ..GOOD
    };
    check(
        cluster_disks([good(), Some(full.clone()), Some(full)]),
        Some(&[2, 3]),
    );
}

#[test]
fn both_sets_of_voters_need_space_during_a_change() {
    let mut cluster_disks = cluster_disks([Some(GOOD), Some(GOOD), Some(low()), Some(low()), Some(low())]);
    cluster_disks.voters = vec![[1, 2, 3].into(), [1, 2, 4].into()];
    assert_eq!(cluster_disks.without_space(), None);
    cluster_disks.voters = vec![[1, 2, 3].into(), [1, 4, 5].into()];
    assert_eq!(cluster_disks.without_space(), Some(vec![4, 5]));
}

#[test]
fn leadership_moves_only_to_a_better_disk() {
    let config = DiskConfig::default();
    let check = |cluster_disks: &ClusterDisks, expected: Option<(NodeId, HandOverReason)>| {
        assert_eq!(cluster_disks.hand_over(&config), expected, "{cluster_disks:?}");
    };
    let good = || Some(GOOD);
    check(&cluster_disks([good(), good(), good()]), None);
    for bad in [stalled(), slow()] {
        let mut cluster_disks = cluster_disks([Some(bad.clone()), good(), good()]);
        cluster_disks.reports.insert(
            2,
            DiskReport {
                sync_us: Some(2_000),
                ..GOOD
            },
        );
        check(&cluster_disks, Some((3, HandOverReason::Slow)));
        // A voter is not chosen if it lags much, is low on space, or does not answer.
        cluster_disks.lag.insert(3, MAX_LAG_ENTRIES + 1);
        check(&cluster_disks, Some((2, HandOverReason::Slow)));
        cluster_disks.reports.insert(2, low());
        check(&cluster_disks, None);
        // The others would need this node's vote, which its disk does not record.
        check(&self::cluster_disks([Some(bad.clone()), good(), None]), None);
        check(
            &self::cluster_disks([Some(bad.clone()), good(), Some(stalled())]),
            None,
        );
        check(
            &self::cluster_disks([Some(bad.clone()), Some(bad.clone()), Some(bad)]),
            None,
        );
    }
    check(
        &cluster_disks([Some(low()), good(), None]),
        Some((2, HandOverReason::Full)),
    );
    check(&cluster_disks([Some(low()), Some(low()), Some(low())]), None);
    check(&cluster_disks([Some(low()), Some(stalled()), None]), None);
    check(&cluster_disks([Some(low())]), None);
    // All disks are slow: none is better.
    check(&cluster_disks([Some(slow()), Some(slow()), Some(slow())]), None);
    // An unused disk is not known to be better than a slow one, but a stall needs no comparison.
    let unknown = || {
        Some(DiskReport {
            sync_us: None,
            ..GOOD
        })
    };
    check(&cluster_disks([Some(slow()), unknown(), unknown()]), None);
    check(
        &cluster_disks([Some(stalled()), unknown(), unknown()]),
        Some((2, HandOverReason::Slow)),
    );
}

#[test]
fn alarm_has_its_node_and_start_time() {
    let config = DiskConfig::default();
    let first = cluster_disks([Some(GOOD), Some(low()), Some(slow())]).view(1, None, 50, &config);
    let said = |view: &DiskView| {
        let alarms = view.alarms.iter();
        alarms
            .map(|alarm| (alarm.node_id, alarm.kind, alarm.since_ms))
            .collect::<Vec<_>>()
    };
    let low_2 = (Some(2), AlarmKind::DiskLow, 50);
    let slow_3 = (Some(3), AlarmKind::SlowDisk, 50);
    assert_eq!(said(&first), [low_2, slow_3]);
    assert_eq!(first.read_only, None);
    assert_eq!(first.alarms[0].free_bytes, Some(10));
    // The next leader continues from the last one's findings.
    let next = cluster_disks([Some(low()), Some(low()), Some(slow())]).view(2, Some(&first), 70, &config);
    let read_only = (None, AlarmKind::ReadOnly, 70);
    assert_eq!(
        said(&next),
        [read_only, (Some(1), AlarmKind::DiskLow, 70), low_2, slow_3]
    );
    let reason = next.read_only.unwrap();
    assert!(reason.contains("nodes 1, 2 are nearly full"), "{reason}");
    let stalled = cluster_disks([Some(GOOD), Some(stalled()), Some(GOOD)]).view(1, None, 50, &config);
    assert_eq!(said(&stalled), [(Some(2), AlarmKind::SlowDisk, 50)]);
}
