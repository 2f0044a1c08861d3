//! Metrics of the disk: the files of the node, free space, and the duration of syncs.

use std::fmt;

use crate::node::Node;
use instruments::counters::Measured;
use instruments::text_format::Sheet;
use raft_log::wal::FSYNC_BUCKETS_US;
use raft_node::status::ClusterStatus;

pub(super) fn write(sheet: &mut Sheet<'_>, node: &Node, status: &ClusterStatus) -> fmt::Result {
    let report = node.disk_report();
    if let Some(free) = report.free_bytes {
        let help = "Bytes free in the file system of the data directory";
        sheet.gauge("disk_free_bytes", help, free)?;
    }
    let help = "Free bytes below which the disk counts as nearly full";
    sheet.gauge("disk_low_water_bytes", help, report.low_water_bytes)?;
    let help = "Whether this node's disk is nearly full (1) or not (0)";
    sheet.gauge("disk_low", help, u64::from(report.low))?;
    let help = "Whether this node's log has no room for entries (1) or has (0)";
    sheet.gauge("log_full", help, u64::from(report.log_full))?;
    let help =
        "Whether the cluster accepts only requests that make the state smaller (1) or all requests (0)";
    sheet.gauge("read_only", help, u64::from(status.read_only))?;
    log(sheet, node, status)?;
    snapshot(sheet, status)?;
    if let Some(made_at_ms) = node.last_backup_ms() {
        let help = "Time of the newest backup that was downloaded from this node since it started, in seconds since 1970";
        sheet.gauge("backup_last_timestamp_seconds", help, made_at_ms as f64 / 1e3)?;
    }
    Ok(())
}

fn log(sheet: &mut Sheet<'_>, node: &Node, status: &ClusterStatus) -> fmt::Result {
    let wal = node.raft().wal();
    let segments = wal.segments();
    sheet.gauge("log_segments", "Files of the log", segments)?;
    let help = "Size of the log files on the disk, in bytes";
    sheet.gauge("log_file_bytes", help, segments * wal.segment_bytes())?;
    let help = "Size of the entries in the log, in bytes";
    sheet.gauge("log_bytes", help, status.log_bytes)?;
    let help = "Index of the oldest entry in the log";
    sheet.gauge("log_first_index", help, status.log_first_index)?;
    let help = "Duration so far of the current write to the log, in seconds";
    let working = wal.fsync_stats().current_write_time().as_secs_f64();
    sheet.gauge("log_write_under_way_seconds", help, working)?;
    let times = wal.fsync_stats().times();
    let bounds = FSYNC_BUCKETS_US.iter().map(|us| *us as f64 / 1e6);
    let measured = Measured {
        classes: bounds.chain([f64::INFINITY]).zip(times.counts).collect(),
        sum: times.sum.as_secs_f64(),
    };
    sheet.histogram(
        "log_sync_duration_seconds",
        "Duration of syncs of the log",
        &measured,
    )
}

fn snapshot(sheet: &mut Sheet<'_>, status: &ClusterStatus) -> fmt::Result {
    let help = "Size of the newest snapshot on the disk; 0 if there is none";
    sheet.gauge("snapshot_bytes", help, status.snapshot_bytes)?;
    if let Some(age_ms) = status.snapshot_age_ms {
        let help = "Age of the newest snapshot, in seconds. A new one is made only after enough changes";
        sheet.gauge("snapshot_age_seconds", help, age_ms as f64 / 1e3)?;
    }
    let help = "Applied entries that the newest snapshot does not cover";
    let behind = status.applied_index.saturating_sub(status.snapshot_index);
    sheet.gauge("snapshot_behind_entries", help, behind)?;
    let help = "Whether the last attempt to make a snapshot failed (1) or not (0)";
    sheet.gauge(
        "snapshot_failing",
        help,
        u64::from(status.snapshot_failure.is_some()),
    )
}
