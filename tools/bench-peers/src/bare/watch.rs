//! How long it takes until many clients were told of something, and have asked what it is.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use cli_support::open_files;
use load_generator::processes::cpu_time;
use load_generator::report::Durations;
use load_generator::watch::WatchReport;
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::{Frames, Request, Want};

/// Until all were told, or have asked: whoever was not by then is not told any more.
const PATIENCE: Duration = Duration::from_secs(30);

/// Files beside the clients' connections.
const OTHER_FILES: u64 = 64;

/// One connection.
struct Line {
    frames: Frames<OwnedReadHalf>,
    to: OwnedWriteHalf,
}

impl Line {
    async fn open(server: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(server)
            .await
            .with_context(|| server.to_owned())?;
        stream.set_nodelay(true)?;
        let (from, to) = stream.into_split();
        let frames = Frames::new(from);
        Ok(Self { frames, to })
    }

    async fn ask(&mut self, want: Want) -> anyhow::Result<()> {
        let (permits, key) = (0, Bytes::from_static(b"watched"));
        let frame = Request { want, permits, key }.frame(&[]);
        Ok(self.to.write_all(&frame).await?)
    }

    async fn hear(&mut self) -> anyhow::Result<Bytes> {
        self.frames.next().await?.context("the server has gone")
    }
}

/// What the clients know of each other.
struct Round {
    clients: usize,
    at_once: bool,
    begun: Instant,
    told: Vec<Duration>,
    read: usize,
    /// All were told, or have read.
    all: Rc<Notify>,
}

/// So many clients, spread over the servers, who are told of something by all servers at once, again and again; each then asks
/// what it is, when all were told or `at_once`.
pub async fn watch(
    servers: &[String],
    clients: usize,
    at_once: bool,
    warmup: Duration,
    measured: Duration,
) -> anyhow::Result<WatchReport> {
    ensure!(clients > 0, "at least one has to watch");
    open_files::raise(clients as u64 + OTHER_FILES)?;
    let all = Rc::new(Notify::new());
    let round = Rc::new(RefCell::new(Round {
        clients,
        at_once,
        begun: Instant::now(),
        told: Vec::with_capacity(clients),
        read: 0,
        all: all.clone(),
    }));
    let (read, reads) = watch::channel(0_u64);
    let mut watching = JoinSet::new();
    for number in 0..clients {
        let line = Line::open(&servers[number % servers.len()]).await?;
        watching.spawn_local(listen(line, round.clone(), reads.clone()));
    }
    let mut tellers = Vec::new();
    for server in servers {
        tellers.push(Line::open(server).await?);
    }
    let [mut first, mut median, mut last, mut each, mut write, mut all_read] =
        std::array::from_fn(|_| Durations::new());
    let mut changes = 0;
    let begin = Instant::now() + warmup;
    let mut spent_before = Duration::ZERO;
    let mut began = None;
    while began.is_none_or(|began: Instant| began.elapsed() < measured) {
        let counts = Instant::now() >= begin;
        if counts && began.is_none() {
            began = Some(Instant::now());
            spent_before = cpu_time(Pid::this())?;
        }
        {
            let mut round = round.borrow_mut();
            round.told.clear();
            round.read = 0;
            round.begun = Instant::now();
        }
        for teller in &mut tellers {
            teller.ask(Want::Tell).await?;
        }
        for teller in &mut tellers {
            teller.hear().await?;
        }
        let answered = round.borrow().begun.elapsed();
        until(&all, &mut watching, || round.borrow().told.len() == clients).await?;
        read.send_modify(|round| *round += 1);
        until(&all, &mut watching, || round.borrow().read == clients).await?;
        if counts {
            let round = round.borrow();
            changes += 1;
            first.record(round.told[0]);
            median.record(round.told[clients / 2]);
            last.record(round.told[clients - 1]);
            round.told.iter().for_each(|told| each.record(*told));
            write.record(answered);
            all_read.record(round.begun.elapsed());
        }
    }
    let seconds = began.map_or(0.0, |began| began.elapsed().as_secs_f64());
    let spent = cpu_time(Pid::this())? - spent_before;
    Ok(WatchReport {
        sessions: clients,
        servers: servers.len(),
        seconds,
        changes,
        first: first.percentiles(),
        median: median.percentiles(),
        last: last.percentiles(),
        each: each.percentiles(),
        write: write.percentiles(),
        read: all_read.percentiles(),
        server_cpu_us: None,
        client_cpu_us: spent.as_secs_f64() * 1e6 / (changes * clients as u64) as f64,
    })
}

/// One who is told, and asks.
async fn listen(
    mut line: Line,
    round: Rc<RefCell<Round>>,
    mut reads: watch::Receiver<u64>,
) -> anyhow::Result<()> {
    loop {
        line.hear().await?;
        let at_once = {
            let mut round = round.borrow_mut();
            let after = round.begun.elapsed();
            round.told.push(after);
            if round.told.len() == round.clients {
                round.all.notify_one();
            }
            round.at_once
        };
        if !at_once {
            reads.changed().await?;
        }
        line.ask(Want::Answer).await?;
        line.hear().await?;
        let mut round = round.borrow_mut();
        round.read += 1;
        if round.read == round.clients {
            round.all.notify_one();
        }
    }
}

/// Waits until something is so of all clients. None of them ends before.
async fn until(
    all: &Notify,
    watching: &mut JoinSet<anyhow::Result<()>>,
    so: impl Fn() -> bool,
) -> anyhow::Result<()> {
    let wait = async {
        while !so() {
            tokio::select! {
                () = all.notified() => {}
                Some(ended) = watching.join_next() => bail!("a client has ended: {:?}", ended?),
            }
        }
        anyhow::Ok(())
    };
    let waited = timeout(PATIENCE, wait).await;
    waited.with_context(|| format!("not all were told within {} s", PATIENCE.as_secs()))?
}
