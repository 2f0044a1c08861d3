//! The cluster that is measured: who votes, who does not, where each serves, and what its process spends.

use std::fs;
use std::time::Duration;

use anyhow::Context;
use local_cluster::{LocalCluster, LocalNode, START_TIMEOUT};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use raft_node::NodeId;

use crate::nodes::Nodes;
use crate::processes;
use crate::zookeeper::servers::address;

/// Nodes by their parts.
#[derive(Debug, Clone)]
pub struct Places {
    /// Who leads.
    pub leader: NodeId,
    /// The other voters.
    pub followers: Vec<NodeId>,
    /// Who has no vote.
    pub learners: Vec<NodeId>,
}

impl Places {
    /// Of this cluster, whose first so many nodes vote.
    pub async fn of(cluster: &LocalCluster, voters: u64) -> anyhow::Result<Self> {
        let leader = cluster.leader(START_TIMEOUT).await?;
        let (voters, learners): (Vec<_>, Vec<_>) = cluster.ids().into_iter().partition(|id| *id <= voters);
        Ok(Self {
            leader,
            followers: voters.into_iter().filter(|id| *id != leader).collect(),
            learners,
        })
    }

    /// All who vote.
    pub fn voters(&self) -> Vec<NodeId> {
        [&[self.leader][..], &self.followers].concat()
    }

    /// Where reads and watches go: to the learners, if there are any.
    pub fn readers(&self) -> Vec<NodeId> {
        match self.learners.is_empty() {
            true => self.voters(),
            false => self.learners.clone(),
        }
    }

    /// What the processes of each part have spent by now: the leader, the others who vote, the learners, and this one.
    pub fn spent(&self, cluster: &LocalCluster) -> anyhow::Result<Spent> {
        let of = |ids: &[NodeId]| -> anyhow::Result<Duration> {
            ids.iter().map(|id| processes::cpu_time(pid(cluster, *id)?)).sum()
        };
        Ok(Spent {
            leader: of(&[self.leader])?,
            followers: of(&self.followers)?,
            learners: of(&self.learners)?,
            client: processes::cpu_time(Pid::this())?,
        })
    }

    /// Voters on the machine's first core, everybody else on the others.
    pub fn pin(&self, cluster: &LocalCluster) -> anyhow::Result<()> {
        let cores = std::thread::available_parallelism()
            .context("counting cores")?
            .get();
        anyhow::ensure!(cores > 1, "there is one core only");
        let (mut first, mut others) = (CpuSet::new(), CpuSet::new());
        first.set(0).context("the first core")?;
        for core in 1..cores {
            others.set(core).context("another core")?;
        }
        for id in self.voters() {
            pin_process(pid(cluster, id)?, &first)?;
        }
        for id in &self.learners {
            pin_process(pid(cluster, *id)?, &others)?;
        }
        pin_process(Pid::this(), &others)
    }
}

/// Time on the processor.
#[derive(Debug, Clone, Copy)]
pub struct Spent {
    /// The leader's.
    pub leader: Duration,
    /// Of all other voters.
    pub followers: Duration,
    /// Of all learners.
    pub learners: Duration,
    /// Of this program.
    pub client: Duration,
}

impl Spent {
    /// What was spent since.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            leader: self.leader.saturating_sub(before.leader),
            followers: self.followers.saturating_sub(before.followers),
            learners: self.learners.saturating_sub(before.learners),
            client: self.client.saturating_sub(before.client),
        }
    }
}

/// Where some nodes serve HTTP.
pub fn http(cluster: &LocalCluster, ids: &[NodeId]) -> anyhow::Result<Nodes> {
    at(cluster, ids, |node| Ok(node.http.clone()))
}

/// Where some nodes serve clients of ZooKeeper.
pub fn zookeeper(cluster: &LocalCluster, ids: &[NodeId]) -> anyhow::Result<Nodes> {
    at(cluster, ids, address)
}

fn at(
    cluster: &LocalCluster,
    ids: &[NodeId],
    address: impl Fn(&LocalNode) -> anyhow::Result<String>,
) -> anyhow::Result<Nodes> {
    let addresses: anyhow::Result<Vec<String>> = ids.iter().map(|id| address(cluster.node(*id)?)).collect();
    Ok(Nodes::new(addresses?, cluster.credentials().clone()))
}

fn pid(cluster: &LocalCluster, id: NodeId) -> anyhow::Result<Pid> {
    cluster
        .pid(id)?
        .with_context(|| format!("node {id} does not run"))
}

/// All threads of a process: each has cores of its own, and new ones get those of the thread that starts them.
fn pin_process(pid: Pid, cores: &CpuSet) -> anyhow::Result<()> {
    let path = format!("/proc/{pid}/task");
    for thread in fs::read_dir(&path).with_context(|| path.clone())? {
        let name = thread.with_context(|| path.clone())?.file_name();
        let thread = name.to_str().and_then(|name| name.parse().ok());
        let thread = thread.with_context(|| format!("{path} has a thread without a number"))?;
        match sched_setaffinity(Pid::from_raw(thread), cores) {
            // It has ended meanwhile.
            Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
            Err(error) => return Err(error).context("giving a thread its cores"),
        }
    }
    Ok(())
}
