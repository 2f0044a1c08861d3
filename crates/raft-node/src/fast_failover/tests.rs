//! Tests of a voter's opinion about a leader that is alive, silent or dead. The elections that follow are
//! tested with real processes (`lockgate/tests/cluster/leader_kill.rs`) and in simulations.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::*;
use crate::config::RaftNodeConfig;
use crate::ids::DiskId;
use crate::ids::MemberAddress;
use crate::node::RaftNode;
use crate::peers::PeerRegistry;
use crate::testing;

const TIMEOUT: Duration = Duration::from_secs(30);
/// Suspected leader.
const LEADER: NodeId = 2;

/// Node 1, which follows [`LEADER`] in term 5, as far as its failure detector knows.
struct Follower {
    _dir: tempfile::TempDir,
    node: RaftNode,
    fast_failover: FastFailover,
    views: watch::Sender<LeaderView>,
}

/// Returns the vote that the leader of `term` sends.
fn vote(term: u64) -> WireVote {
    WireVote {
        term,
        node: LEADER,
        committed: true,
    }
}

impl Follower {
    /// Creates a follower whose leader has the address `leader`.
    async fn of(leader: &str) -> Self {
        Self::with_timing(leader, RaftTiming::default()).await
    }

    async fn with_timing(leader: &str, timing: RaftTiming) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().to_string();
        let member = |id: NodeId, peer: &str| {
            let (peer, http) = (peer.to_owned(), format!("127.0.0.1:{id}"));
            (id, MemberAddress { peer, http })
        };
        let members = BTreeMap::from([member(1, &own), member(LEADER, leader), member(3, "127.0.0.1:3")]);
        let config = RaftNodeConfig::new(1, "c", members.clone(), dir.path().join("data"));
        let node = testing::start(config, listener).await;
        let registry = PeerRegistry::new(
            1,
            "c".into(),
            DiskId([1; 16]),
            None,
            members,
            watch::Sender::new(None),
        );
        let peers = Arc::new(Peers::new(Arc::new(registry)));
        let (views, view) = watch::channel(LeaderView {
            term: 5,
            leader: Some(LEADER),
        });
        let (raft, wal) = node.raft_and_log();
        Self {
            _dir: dir,
            fast_failover: FastFailover::new(1, timing, peers, raft, wal, view),
            node,
            views,
        }
    }

    async fn has_lost(&self, term: u64, leader: NodeId) -> bool {
        self.fast_failover.assess_leader(term, leader).await.lost
    }
}

#[tokio::test]
async fn only_a_leader_whose_address_refuses_is_lost() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let follower = Follower::of(&address).await;
    assert!(
        !follower.has_lost(5, LEADER).await,
        "its message has just arrived, and its address accepts connections"
    );
    drop(listener);
    assert!(follower.has_lost(5, LEADER).await);
    assert!(
        !follower.has_lost(4, LEADER).await,
        "this node follows a later one"
    );
    assert!(follower.has_lost(6, LEADER).await, "it knows no later one");
    assert!(!follower.has_lost(5, 1).await, "a leader is not lost to itself");
    follower.views.send_replace(LeaderView {
        term: 6,
        leader: Some(3),
    });
    assert!(!follower.has_lost(5, LEADER).await, "it is succeeded already");
    testing::stop(&follower.node).await;
}

#[tokio::test]
async fn silent_leader_is_lost_until_its_next_message() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let follower = Follower::of(&address).await;
    let silent = async {
        while !follower.has_lost(5, LEADER).await {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(TIMEOUT, silent).await.expect("it stays silent");
    follower.fast_failover.record_leader_message(&vote(5));
    assert!(!follower.has_lost(5, LEADER).await);
    testing::stop(&follower.node).await;
}

#[tokio::test]
async fn partitioned_leader_is_reported_lost_before_the_requester_times_out() {
    // The listener accepts no connections, so that after a few connections none is answered.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut accepted = Vec::new();
    while let Ok(one) = timeout(Duration::from_millis(200), TcpStream::connect(&address)).await {
        accepted.push(one.unwrap());
    }
    let timing = RaftTiming {
        election_min: Duration::from_secs(2),
        election_max: Duration::from_secs(4),
        ..RaftTiming::default()
    };
    let timeout = timing.election_min;
    let follower = Follower::with_timing(&address, timing).await;
    sleep_until(follower.fast_failover.evidence.last() + timeout).await;
    let told = tokio::time::timeout(timeout, follower.has_lost(5, LEADER)).await;
    assert_eq!(told, Ok(true));
    testing::stop(&follower.node).await;
}

#[tokio::test]
async fn voter_that_agrees_that_a_leader_is_lost_waits_no_longer_itself() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let timing = RaftTiming {
        election_max: Duration::from_secs(3600),
        ..RaftTiming::default()
    };
    let follower = Follower::with_timing(&address, timing).await;
    let view = *follower.views.borrow();
    let silent = async {
        while !follower.has_lost(5, LEADER).await {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(TIMEOUT, silent).await.expect("it stays silent");
    let suspicion = timeout(TIMEOUT, follower.fast_failover.suspicion(view)).await;
    assert_eq!(suspicion, Ok(Suspicion::Agreed));
    assert!(follower.has_lost(5, LEADER).await, "still");
    follower.fast_failover.record_leader_message(&vote(5));
    let suspicion = follower.fast_failover.suspicion(view).now_or_never();
    assert_eq!(suspicion, None, "a message has arrived since");
    testing::stop(&follower.node).await;
}

/// Two of five voters have lost their leader, and each asks the other again before its own silence timeout.
#[tokio::test]
async fn voters_that_are_too_few_leave_a_silent_leader_to_the_timers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let follower = Follower::of(&address).await;
    let fast_failover = &follower.fast_failover;
    let has_timers = || fast_failover.timers.load(Ordering::Relaxed);
    fast_failover.record_leader_message(&vote(5));
    fast_failover.leave_to_timers();
    assert!(!has_timers(), "it sends heartbeats");
    let silent = async {
        while !follower.has_lost(5, LEADER).await {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(TIMEOUT, silent).await.expect("it stays silent");
    fast_failover.leave_to_timers();
    assert!(has_timers());
    testing::stop(&follower.node).await;
}

#[tokio::test(start_paused = true)]
async fn silence_during_own_stall_counts_from_its_end() {
    let timing = RaftTiming::default();
    let evidence = LeaderEvidence::new(timing.clone());
    let begin = Instant::now();
    falls_silent(&evidence).await;
    assert_eq!(begin.elapsed(), timing.election_max);

    // The node stalls; a little later it reads the messages that waited in its sockets.
    let evidence = LeaderEvidence::new(timing.clone());
    tokio::time::advance(timing.election_max * 10).await;
    let woken = Instant::now();
    let heard = async {
        sleep(CHECK_INTERVAL / 2).await;
        evidence.record_message(5);
    };
    tokio::join!(falls_silent(&evidence), heard);
    assert_eq!(woken.elapsed(), CHECK_INTERVAL / 2 + timing.election_max);
}

#[tokio::test(start_paused = true)]
async fn silence_timeout_is_longer_after_a_pause_of_the_leader() {
    let timing = RaftTiming::default();
    let evidence = LeaderEvidence::new(timing.clone());
    evidence.record_message(5);
    sleep(timing.election_max).await;
    evidence.record_message(5);
    let begin = Instant::now();
    falls_silent(&evidence).await;
    assert!(begin.elapsed() > 2 * timing.election_max, "{:?}", begin.elapsed());

    // The time between two leaders is a pause of neither.
    let evidence = LeaderEvidence::new(timing.clone());
    evidence.record_message(5);
    sleep(2 * timing.election_max).await;
    evidence.term_began(6);
    sleep(timing.election_min).await;
    evidence.record_message(6);
    evidence.record_message(7);
    let begin = Instant::now();
    falls_silent(&evidence).await;
    assert_eq!(
        begin.elapsed(),
        3 * timing.election_min,
        "the wait for the first message of 6"
    );
}

#[tokio::test(start_paused = true)]
async fn message_of_an_earlier_leader_does_not_count() {
    let evidence = LeaderEvidence::new(RaftTiming::default());
    assert!(evidence.record_message(5));
    evidence.term_began(6);
    let before = evidence.last();
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(!evidence.record_message(5));
    assert_eq!(evidence.last(), before);
    assert!(evidence.record_message(6));
    assert_eq!(evidence.last(), Instant::now());
}

#[tokio::test]
async fn voter_that_hears_its_leader_refuses_pre_votes_also_after_the_lease() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let timing = RaftTiming {
        // Longer than the lease of the node's Raft, which has the default timing.
        election_min: Duration::from_secs(2),
        election_max: Duration::from_secs(4),
        ..RaftTiming::default()
    };
    let follower = Follower::with_timing(&address, timing.clone()).await;
    follower.fast_failover.record_leader_message(&vote(5));
    let heard = follower.fast_failover.evidence.last();
    sleep_until(heard + RaftTiming::default().election_max).await;
    let refused = follower.fast_failover.refuse_pre_vote();
    let late = heard.elapsed() >= timing.election_min;
    assert!(late || refused.is_some_and(|answer| !answer.granted));
    sleep_until(heard + timing.election_min).await;
    assert_eq!(
        follower.fast_failover.refuse_pre_vote(),
        None,
        "it was silent for long"
    );
    follower.fast_failover.record_leader_message(&vote(5));
    follower.views.send_replace(LeaderView {
        term: 6,
        leader: None,
    });
    assert_eq!(
        follower.fast_failover.refuse_pre_vote(),
        None,
        "no leader is known"
    );
    testing::stop(&follower.node).await;
}

#[tokio::test]
async fn node_is_cut_off_when_it_has_known_of_no_leader_for_longer_than_an_election() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let timing = RaftTiming {
        heartbeat: Duration::from_millis(20),
        election_min: Duration::from_millis(60),
        election_max: Duration::from_millis(120),
    };
    let follower = Follower::with_timing(&address, timing).await;
    let fast_failover = &follower.fast_failover;
    let becomes = async |what: &str| {
        let cut_off = async {
            while !fast_failover.is_cut_off() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(TIMEOUT, cut_off).await.expect(what);
    };
    let view = *follower.views.borrow();
    fast_failover.note_leader(view);
    fast_failover.record_leader_message(&vote(5));
    assert!(!fast_failover.is_cut_off(), "it hears its leader");
    // Timers are on, as after a suspicion without a result.
    fast_failover.set_timers(true);
    becomes("it receives no message").await;
    fast_failover.record_leader_message(&vote(5));
    assert!(!fast_failover.is_cut_off());

    let nobody = LeaderView {
        term: 6,
        leader: None,
    };
    follower.views.send_replace(nobody);
    fast_failover.note_leader(nobody);
    fast_failover.set_timers(true);
    becomes("no leader is known").await;
    let me = LeaderView {
        term: 7,
        leader: Some(1),
    };
    follower.views.send_replace(me);
    fast_failover.note_leader(me);
    assert!(!fast_failover.is_cut_off(), "it leads");
    testing::stop(&follower.node).await;
}
