//! Benchmark of the write-ahead log on the local disk.
//!
//! ```text
//! cargo run --release -p raft-log --example wal_bench -- [DIR]
//! ```
//!
//! One caller appends batches of 200-byte entries and waits for each to be durable. Then many callers do so
//! at the same time, which shows group commit. DIR is the directory for the files; the default is a new
//! directory below the current one, which is removed at the end.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use raft_log::{LogPos, RealDisk, StorageError, Wal, WalEntry, WalIdentity, WalOptions};

/// Payload size of a small command with its envelope.
const PAYLOAD_BYTES: usize = 200;
/// Duration of each measurement.
const DURATION: Duration = Duration::from_secs(3);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given = std::env::args().nth(1).map(PathBuf::from);
    let own = format!("wal-bench-{}", std::process::id());
    let dir = given.clone().unwrap_or_else(|| PathBuf::from(&own));
    let identity = WalIdentity {
        cluster_id: [0; 16],
        disk_id: [1; 16],
        node_id: 1,
    };
    let wal = Wal::start(
        Arc::new(RealDisk),
        &dir.join("log"),
        identity,
        WalOptions::default(),
    )?;
    let bench = Bench {
        wal,
        next: Arc::new(Mutex::new(1)),
    };

    println!("| callers | entries in a batch | batches/s | entries/s | p50 | p99 | CPU per batch |");
    println!("|---:|---:|---:|---:|---:|---:|---:|");
    for (callers, batch) in [(1, 1), (1, 64), (2, 1), (16, 1), (64, 1), (64, 16)] {
        bench.measure(callers, batch)?;
    }
    bench.wal.close()?;
    if given.is_none() {
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(())
}

#[derive(Clone)]
struct Bench {
    wal: Wal,
    /// Index of the next entry. Locked during an append, so that entries are in order.
    next: Arc<Mutex<u64>>,
}

impl Bench {
    fn measure(&self, callers: usize, batch: usize) -> Result<(), Box<dyn std::error::Error>> {
        let before = cpu_time()?;
        let started = Instant::now();
        let batches = AtomicUsize::new(0);
        let mut latencies = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..callers)
                .map(|_| {
                    scope.spawn(|| {
                        let mut latencies = Vec::new();
                        while started.elapsed() < DURATION {
                            latencies.push(self.append(batch)?);
                            batches.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok::<_, StorageError>(latencies)
                    })
                })
                .collect();
            let joined = callers
                .into_iter()
                .map(|caller| caller.join().expect("a caller does not panic"));
            joined.collect::<Result<Vec<_>, _>>()
        })?
        .concat();
        let seconds = started.elapsed().as_secs_f64();
        let cpu = cpu_time()? - before;
        let batches = batches.into_inner();
        latencies.sort_unstable();
        println!(
            "| {callers} | {batch} | {:.0} | {:.0} | {} µs | {} µs | {:.0} µs |",
            batches as f64 / seconds,
            (batches * batch) as f64 / seconds,
            latencies[latencies.len() / 2].as_micros(),
            latencies[latencies.len() * 99 / 100].as_micros(),
            cpu.as_micros() as f64 / batches as f64,
        );
        self.purge()?;
        Ok(())
    }

    /// Appends a batch and waits until it is durable.
    fn append(&self, batch: usize) -> Result<Duration, StorageError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let started = Instant::now();
        {
            let mut next = self.next.lock().expect("a caller does not panic");
            let entries = (*next..*next + batch as u64)
                .map(|index| {
                    let payload = Bytes::from(vec![index as u8; PAYLOAD_BYTES]);
                    WalEntry {
                        pos: LogPos { term: 1, index },
                        payload,
                    }
                })
                .collect();
            *next += batch as u64;
            let done = Box::new(move |result| sender.send(result).expect("the caller waits"));
            self.wal.append(entries, done)?;
        }
        receiver.recv().expect("the writer answers")?;
        Ok(started.elapsed())
    }

    /// Purges all entries, as after a snapshot.
    fn purge(&self) -> Result<(), StorageError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let Some(last) = self.wal.last() else {
            return Ok(());
        };
        let done = Box::new(move |result| sender.send(result).expect("the caller waits"));
        self.wal.purge(last, done)?;
        receiver.recv().expect("the writer answers")
    }
}

/// Returns the processor time that this process has used, from `/proc/self/stat`.
fn cpu_time() -> std::io::Result<Duration> {
    /// The kernel counts in hundredths of a second.
    const TICKS: u64 = 100;
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name in parentheses may contain any character; the fields after it are numbers.
    let fields = stat
        .rsplit_once(')')
        .map_or("", |(_, fields)| fields)
        .split_whitespace();
    let ticks: u64 = fields
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Ok(Duration::from_millis(ticks * 1000 / TICKS))
}
