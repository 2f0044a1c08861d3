//! Answers of a voter about a leader that lives, is silent, or is gone. Elections that follow are tested with real processes
//! (`lockgate/tests/cluster/leader_kill.rs`) and in simulations.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::*;
use crate::config::RaftNodeConfig;
use crate::ids::DiskId;
use crate::ids::MemberAddress;
use crate::node::RaftNode;
use crate::peers::Gate;
use crate::testing;

const PATIENCE: Duration = Duration::from_secs(30);
/// Suspected leader.
const LEADER: NodeId = 2;

/// Node 1, which follows [`LEADER`] in term 5, as far as its succession knows.
struct Follower {
    _dir: tempfile::TempDir,
    node: RaftNode,
    succession: Succession,
    views: watch::Sender<LeaderView>,
}

/// Vote that the leader of `term` sends.
fn vote(term: u64) -> WireVote {
    WireVote {
        term,
        node: LEADER,
        committed: true,
    }
}

impl Follower {
    /// The leader was found at `leader`.
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
        let gate = Gate::new(
            1,
            "c".into(),
            DiskId([1; 16]),
            None,
            members,
            watch::Sender::new(None),
        );
        let peers = Arc::new(Peers::new(Arc::new(gate)));
        let (views, view) = watch::channel(LeaderView {
            term: 5,
            leader: Some(LEADER),
        });
        let (raft, wal) = node.raft_and_log();
        Self {
            _dir: dir,
            succession: Succession::new(1, timing, peers, raft, wal, view),
            node,
            views,
        }
    }

    async fn loses(&self, term: u64, leader: NodeId) -> bool {
        self.succession.judge(term, leader).await.lost
    }
}

#[tokio::test]
async fn a_leader_whose_address_refuses_is_lost_and_no_other_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let follower = Follower::of(&address).await;
    assert!(
        !follower.loses(5, LEADER).await,
        "it was heard of just now, and somebody listens"
    );
    drop(listener);
    assert!(follower.loses(5, LEADER).await);
    assert!(!follower.loses(4, LEADER).await, "this node follows a later one");
    assert!(follower.loses(6, LEADER).await, "it knows no later one");
    assert!(!follower.loses(5, 1).await, "a leader is not lost to itself");
    follower.views.send_replace(LeaderView {
        term: 6,
        leader: Some(3),
    });
    assert!(!follower.loses(5, LEADER).await, "it is succeeded already");
    testing::stop(&follower.node).await;
}

#[tokio::test]
async fn a_leader_that_is_silent_is_lost_until_it_is_heard_of() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let follower = Follower::of(&address).await;
    let silent = async {
        while !follower.loses(5, LEADER).await {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, silent).await.expect("it stays silent");
    follower.succession.heard(&vote(5));
    assert!(!follower.loses(5, LEADER).await);
    testing::stop(&follower.node).await;
}

#[tokio::test]
async fn a_leader_that_is_cut_off_is_told_of_as_lost_before_the_one_who_asks_gives_up() {
    // Nobody accepts here, so that from some connection on nothing is answered.
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
    let patience = timing.election_min;
    let follower = Follower::with_timing(&address, timing).await;
    sleep_until(follower.succession.signs.last() + patience).await;
    let told = timeout(patience, follower.loses(5, LEADER)).await;
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
        while !follower.loses(5, LEADER).await {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, silent).await.expect("it stays silent");
    let suspicion = timeout(PATIENCE, follower.succession.suspicion(view)).await;
    assert_eq!(suspicion, Ok(Suspicion::Agreed));
    assert!(follower.loses(5, LEADER).await, "still");
    follower.succession.heard(&vote(5));
    let suspicion = follower.succession.suspicion(view).now_or_never();
    assert_eq!(suspicion, None, "it has been heard of since");
    testing::stop(&follower.node).await;
}

/// Two of five voters have lost their leader, and each asks the other again before its own patience is over.
#[tokio::test]
async fn voters_that_are_too_few_leave_a_silent_leader_to_the_timers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let follower = Follower::of(&address).await;
    let succession = &follower.succession;
    let has_timers = || succession.timers.load(Ordering::Relaxed);
    succession.heard(&vote(5));
    succession.leave_to_timers();
    assert!(!has_timers(), "it sends heartbeats");
    let silent = async {
        while !follower.loses(5, LEADER).await {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, silent).await.expect("it stays silent");
    succession.leave_to_timers();
    assert!(has_timers());
    testing::stop(&follower.node).await;
}

#[tokio::test(start_paused = true)]
async fn a_silence_in_which_this_node_stood_still_itself_counts_from_when_it_goes_on() {
    let timing = RaftTiming::default();
    let signs = Signs::new(timing.clone());
    let begin = Instant::now();
    falls_silent(&signs).await;
    assert_eq!(begin.elapsed(), timing.election_max);

    // It stalls; then it reads what waited in its sockets, a little later.
    let signs = Signs::new(timing.clone());
    tokio::time::advance(timing.election_max * 10).await;
    let woken = Instant::now();
    let heard = async {
        sleep(SLICE / 2).await;
        signs.heard(5);
    };
    tokio::join!(falls_silent(&signs), heard);
    assert_eq!(woken.elapsed(), SLICE / 2 + timing.election_max);
}

#[tokio::test(start_paused = true)]
async fn after_a_pause_of_the_leader_its_silence_is_waited_for_longer() {
    let timing = RaftTiming::default();
    let signs = Signs::new(timing.clone());
    signs.heard(5);
    sleep(timing.election_max).await;
    signs.heard(5);
    let begin = Instant::now();
    falls_silent(&signs).await;
    assert!(begin.elapsed() > 2 * timing.election_max, "{:?}", begin.elapsed());

    // What passes between two leaders is a pause of neither.
    let signs = Signs::new(timing.clone());
    signs.heard(5);
    sleep(2 * timing.election_max).await;
    signs.term_began(6);
    sleep(timing.election_min).await;
    signs.heard(6);
    signs.heard(7);
    let begin = Instant::now();
    falls_silent(&signs).await;
    assert_eq!(
        begin.elapsed(),
        3 * timing.election_min,
        "the wait for the first sign of 6"
    );
}

#[tokio::test(start_paused = true)]
async fn a_message_of_an_earlier_leader_is_no_sign_of_life() {
    let signs = Signs::new(RaftTiming::default());
    assert!(signs.heard(5));
    signs.term_began(6);
    let before = signs.last();
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(!signs.heard(5));
    assert_eq!(signs.last(), before);
    assert!(signs.heard(6));
    assert_eq!(signs.last(), Instant::now());
}

#[tokio::test]
async fn voter_that_hears_its_leader_refuses_pre_votes_also_after_the_lease() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let timing = RaftTiming {
        // Longer than the lease of the node's Raft, which has the usual one.
        election_min: Duration::from_secs(2),
        election_max: Duration::from_secs(4),
        ..RaftTiming::default()
    };
    let follower = Follower::with_timing(&address, timing.clone()).await;
    follower.succession.heard(&vote(5));
    let heard = follower.succession.signs.last();
    sleep_until(heard + RaftTiming::default().election_max).await;
    let refused = follower.succession.refuse_pre_vote();
    let late = heard.elapsed() >= timing.election_min;
    assert!(late || refused.is_some_and(|answer| !answer.granted));
    sleep_until(heard + timing.election_min).await;
    assert_eq!(
        follower.succession.refuse_pre_vote(),
        None,
        "it was silent for long"
    );
    follower.succession.heard(&vote(5));
    follower.views.send_replace(LeaderView {
        term: 6,
        leader: None,
    });
    assert_eq!(follower.succession.refuse_pre_vote(), None, "nobody leads");
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
    let succession = &follower.succession;
    let becomes = async |what: &str| {
        let cut_off = async {
            while !succession.is_cut_off() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, cut_off).await.expect(what);
    };
    let view = *follower.views.borrow();
    succession.note_leader(view);
    succession.heard(&vote(5));
    assert!(!succession.is_cut_off(), "it hears its leader");
    // As after questions that led to nothing.
    succession.set_timers(true);
    becomes("it hears nothing").await;
    succession.heard(&vote(5));
    assert!(!succession.is_cut_off());

    let nobody = LeaderView {
        term: 6,
        leader: None,
    };
    follower.views.send_replace(nobody);
    succession.note_leader(nobody);
    succession.set_timers(true);
    becomes("nobody leads").await;
    let me = LeaderView {
        term: 7,
        leader: Some(1),
    };
    follower.views.send_replace(me);
    succession.note_leader(me);
    assert!(!succession.is_cut_off(), "it leads");
    testing::stop(&follower.node).await;
}
