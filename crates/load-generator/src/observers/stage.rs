//! One stretch of load on the cluster: writes at the voters, and beside them reads or watches at whoever is to serve those.

use std::time::Duration;

use anyhow::ensure;
use bytes::Bytes;
use clap::ValueEnum;
use cli_support::api_client::{ApiClient, request_id};
use local_cluster::LocalCluster;
use raft_node::NodeId;
use serde::Serialize;
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use zk_wire::Request;

use super::paced::{Asks, Paced};
use super::places::{Places, Spent, http, zookeeper};
use super::{Arguments, ObserversReport};
use crate::report::{Durations, Percentiles};
use crate::watch::fan_out::{Again, FanOut};
use crate::workload::Workload;
use crate::zookeeper::session::{Session, refused};
use crate::zookeeper::tree::Tree;

/// How often it is looked how far behind the learners are.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long a node may take to tell.
const PATIENCE: Duration = Duration::from_secs(10);

/// Any version will do.
const ANY: i32 = -1;

/// What goes on beside the writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Beside {
    /// Nothing
    Nothing,
    /// Local reads over ZooKeeper's protocol (getData)
    Get,
    /// Local reads over HTTP
    Http,
    /// A znode that changes, and sessions that watch it
    Watch,
}

impl Beside {
    /// As it is called in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Get => "get",
            Self::Http => "HTTP get",
            Self::Watch => "watch",
        }
    }
}

/// Loads the cluster and tells what came of it.
pub async fn run(
    args: &Arguments,
    cluster: &LocalCluster,
    places: &Places,
    beside: Beside,
) -> anyhow::Result<ObserversReport> {
    let voters = zookeeper(cluster, &places.voters())?;
    let tree = Tree::new(&request_id());
    let data = Bytes::from_static(&[b'x'; 100]);
    // The last one is watched.
    let znodes = args.writers + 1;
    tree.make(&voters, Workload::Set, znodes, &data).await?;
    let mut writers = Vec::new();
    for number in 0..args.writers {
        let request = Request::SetData {
            path: tree.znode(number),
            data: Some(data.clone()),
            version: ANY,
        };
        let session = Session::open(&voters, number).await?;
        writers.push(Asks::Zookeeper(Box::new(session), Box::new(request)));
    }
    let reading = readers(args, cluster, &places.readers(), beside, &tree).await?;
    let watched = tree.znode(args.writers);
    let mut watching = match beside {
        Beside::Watch => {
            let servers = zookeeper(cluster, &places.readers())?;
            Some(FanOut::start(&servers, &voters, &watched, args.watchers, Again::AtOnce).await?)
        }
        _ => None,
    };

    let writing = Paced::start(writers, args.writes);
    let reading = Paced::start(reading, args.reads);
    let begin = Instant::now() + Duration::from_secs(args.warmup);
    let end = begin + Duration::from_secs(args.seconds);
    let spending = async {
        sleep_until(begin).await;
        writing.begin();
        reading.begin();
        let before = places.spent(cluster)?;
        sleep_until(end).await;
        let spent = places.spent(cluster)?.since(&before);
        Ok((spent, writing.seen().percentiles(), reading.seen().percentiles()))
    };
    let changing = change(&mut watching, args.changes, begin, end);
    let looking = furthest_behind(cluster, places, begin, end);
    let ((spent, write, read), told, lag) = tokio::try_join!(spending, changing, looking)?;
    writing.stop().await?;
    reading.stop().await?;
    if let Some(watching) = watching {
        watching.stop().await?;
    }
    tree.remove(&voters).await?;
    Ok(report(args, places, beside, &spent, lag, write, read, told))
}

/// The clients that read, if somebody is to.
async fn readers(
    args: &Arguments,
    cluster: &LocalCluster,
    at: &[NodeId],
    beside: Beside,
    tree: &Tree,
) -> anyhow::Result<Vec<Asks>> {
    let mut readers = Vec::new();
    for number in 0..args.readers {
        let path = tree.znode(number % args.writers);
        match beside {
            Beside::Nothing | Beside::Watch => {}
            Beside::Get => {
                let mut session = Session::open(&zookeeper(cluster, at)?, number).await?;
                // Its server may not have heard of the znode yet.
                let sync = Request::Sync { path: path.clone() };
                session.call(&sync).await?.map(drop).or_else(refused)?;
                let request = Request::GetData { path, watch: false };
                readers.push(Asks::Zookeeper(Box::new(session), Box::new(request)));
            }
            Beside::Http => {
                let mut connection = http(cluster, at)?.connect(number).await?;
                let path = format!("/v1/znodes{path}");
                let fresh = connection
                    .send("GET", &format!("{path}?linearizable=true"), "")
                    .await?;
                ensure!(fresh.status == 200, "a read was answered {}", fresh.status);
                readers.push(Asks::Http(Box::new(connection), path));
            }
        }
    }
    Ok(readers)
}

/// What the watchers were told.
#[derive(Default)]
struct Told {
    notifications: u64,
    each: Durations,
    last: Durations,
}

/// Changes what is watched so often in a second.
async fn change(
    watching: &mut Option<FanOut>,
    per_second: u32,
    begin: Instant,
    end: Instant,
) -> anyhow::Result<Told> {
    let mut told = Told::default();
    let Some(watching) = watching else { return Ok(told) };
    let mut ticks = interval(Duration::from_secs(1) / per_second);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while ticks.tick().await < end {
        let change = watching.change().await?;
        if (begin..end).contains(&Instant::now()) {
            told.notifications += change.told.len() as u64;
            change.told.iter().for_each(|after| told.each.record(*after));
            change
                .told
                .last()
                .into_iter()
                .for_each(|last| told.last.record(*last));
        }
    }
    Ok(told)
}

/// The most entries that a learner was ever seen to be behind the leader.
async fn furthest_behind(
    cluster: &LocalCluster,
    places: &Places,
    begin: Instant,
    end: Instant,
) -> anyhow::Result<Option<u64>> {
    sleep_until(begin).await;
    let mut most = None;
    let leader = [cluster.node(places.leader)?.http.clone()];
    let mut leader = ApiClient::new(&leader, 0, PATIENCE).with(cluster.credentials().clone());
    while Instant::now() < end && !places.learners.is_empty() {
        let seen = leader
            .call("GET", "/v1/cluster/members", &Value::Null, PATIENCE)
            .await?
            .json();
        for member in seen["members"].as_array().into_iter().flatten() {
            let is_learner = |id| places.learners.contains(&id);
            if member["node_id"].as_u64().is_some_and(is_learner) {
                most = most.max(member["lag"].as_u64());
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(most)
}

#[allow(clippy::too_many_arguments, reason = "all that was measured, once")]
fn report(
    args: &Arguments,
    places: &Places,
    beside: Beside,
    spent: &Spent,
    lag: Option<u64>,
    write: Percentiles,
    read: Percentiles,
    told: Told,
) -> ObserversReport {
    let seconds = args.seconds as f64;
    let percent = |spent: Duration, nodes: usize| spent.as_secs_f64() / seconds / nodes.max(1) as f64 * 100.0;
    let is_watch = beside == Beside::Watch;
    ObserversReport {
        learners: places.learners.len(),
        beside,
        writes_per_second: write.count as f64 / seconds,
        write,
        served_per_second: if is_watch { told.notifications } else { read.count } as f64 / seconds,
        served: if is_watch { told.each.percentiles() } else { read },
        last_told: is_watch.then(|| told.last.percentiles()),
        leader_cpu_percent: percent(spent.leader, 1),
        follower_cpu_percent: percent(spent.followers, places.followers.len()),
        learner_cpu_percent: percent(spent.learners, places.learners.len()),
        client_cpu_percent: percent(spent.client, 1),
        lag_at_most: lag,
    }
}
