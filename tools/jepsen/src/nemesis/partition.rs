//! Partitions that last until they are healed. The links to cut are computed here, without any network.
//! Clients reach all nodes all the time.

use std::collections::BTreeSet;

use anyhow::Context;
use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Kind, Nemesis, Testbed};
use crate::network::Slot;
use crate::network::cuts::{Cut, between};

/// Shape of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The leader is cut off from all others.
    Leader,
    /// One follower is cut off from all others.
    Follower,
    /// A minority is cut off from a majority.
    Halves,
    /// Every node is connected to a majority, each to a different one.
    Ring,
    /// Two sides without a link, and one node that is connected to both. The leader is on a side.
    Bridge,
    /// The leader is connected to one follower, which is connected to all. A majority is connected, and one
    /// of its nodes still has a link to the old leader that has lost its majority.
    LeaderAndOne,
    /// One node receives nothing, but the others receive from it.
    In,
    /// Nothing that one node sends arrives, but it receives.
    Out,
}

const FIVE: usize = 5;

/// Returns all partitions.
pub fn kinds() -> Vec<Kind> {
    macro_rules! kind {
        ($name:literal, $nodes:expr, $shape:ident, $about:literal) => {
            Kind {
                name: $name,
                about: $about,
                nodes: $nodes,
                needs: &[],
                make: || Box::new(Partition::new(Shape::$shape)),
            }
        };
    }
    vec![
        kind!(
            "isolate-leader",
            3,
            Leader,
            "the leader is cut off from all others"
        ),
        kind!(
            "isolate-follower",
            3,
            Follower,
            "a follower is cut off from all others"
        ),
        kind!(
            "partition-halves",
            3,
            Halves,
            "a minority is cut off from the majority"
        ),
        kind!(
            "majorities-ring",
            FIVE,
            Ring,
            "of five nodes, each is connected to a different majority"
        ),
        kind!(
            "bridge",
            FIVE,
            Bridge,
            "two sides without a link, and one node connected to both"
        ),
        kind!(
            "leader-and-one",
            FIVE,
            LeaderAndOne,
            "the leader is connected to one follower, which is connected to all"
        ),
        kind!("one-way-in", 3, In, "a node sends but receives nothing"),
        kind!(
            "one-way-out",
            3,
            Out,
            "a node receives, but nothing that it sends arrives"
        ),
    ]
}

impl Shape {
    /// Returns the cuts and their description. `leader` is one of `members`.
    pub fn cuts(self, members: &[Slot], leader: Slot, rng: &mut Rng) -> (BTreeSet<Cut>, String) {
        let mut others: Vec<Slot> = members.iter().copied().filter(|slot| *slot != leader).collect();
        rng.shuffle(&mut others);
        let rest = |one: Slot| -> Vec<Slot> { members.iter().copied().filter(|slot| *slot != one).collect() };
        match self {
            Self::Leader => (
                between(&[leader], &others),
                format!("{leader} (leader) | {others:?}"),
            ),
            Self::Follower => {
                let one = others[0];
                (between(&[one], &rest(one)), format!("{one} | {:?}", rest(one)))
            }
            Self::Halves => {
                let mut all = members.to_vec();
                rng.shuffle(&mut all);
                let (few, many) = all.split_at(members.len() / 2);
                (between(few, many), format!("{few:?} | {many:?}, leader {leader}"))
            }
            Self::Ring => {
                let ring: Vec<Slot> = [&[leader], &others[..]].concat();
                let n = ring.len();
                let hears = n / 4;
                let pairs = (0..n).flat_map(|a| (0..n).map(move |b| (a, b)));
                let far = pairs.filter(|(a, b)| {
                    let distance = a.abs_diff(*b);
                    distance.min(n - distance) > hears
                });
                let cuts = far.map(|(a, b)| (ring[a], ring[b])).collect();
                (
                    cuts,
                    format!("each of the ring {ring:?} is connected to {hears} on each side"),
                )
            }
            Self::Bridge => {
                let (bridge, others) = (others[0], &others[1..]);
                let half = members.len() / 2;
                let here = [&[leader], &others[..half - 1]].concat();
                let there = &others[half - 1..];
                (
                    between(&here, there),
                    format!("{here:?} (leader {leader}) | {there:?}, {bridge} is connected to both"),
                )
            }
            Self::LeaderAndOne => (
                between(&[leader], &others[1..]),
                format!(
                    "{leader} (leader) is connected to {} alone, which is connected to all",
                    others[0]
                ),
            ),
            Self::In | Self::Out => {
                // The leader in half of the cases.
                let one = if rng.bool() { leader } else { others[0] };
                let cuts = rest(one).into_iter().map(|other| match self {
                    Self::In => (other, one),
                    _ => (one, other),
                });
                let part = if one == leader { " (leader)" } else { "" };
                let what = match self {
                    Self::In => format!("{one}{part} receives nothing"),
                    _ => format!("nothing from {one}{part} arrives"),
                };
                (cuts.collect(), what)
            }
        }
    }
}

/// Nemesis that creates one partition after the other, of one shape.
struct Partition {
    shape: Shape,
    cuts: BTreeSet<Cut>,
    dropped_before: u64,
}

impl Partition {
    fn new(shape: Shape) -> Self {
        Self {
            shape,
            cuts: BTreeSet::new(),
            dropped_before: 0,
        }
    }

    /// Returns the name under which this nemesis sets its cuts.
    fn fault(&self) -> String {
        format!("{:?}", self.shape)
    }
}

impl Nemesis for Partition {
    fn begin<'a>(
        &'a mut self,
        testbed: &'a Testbed,
        rng: &'a mut Rng,
    ) -> BoxFuture<'a, anyhow::Result<String>> {
        async move {
            let leader = testbed.leader_or_any(rng).await;
            let members = testbed.cluster.members();
            let (cuts, what) = self.shape.cuts(&members, leader, rng);
            self.dropped_before = testbed.cuts.dropped(&cuts).await?;
            self.cuts = cuts.clone();
            testbed.cuts.set(&self.fault(), cuts).await.context("cutting")?;
            Ok(what)
        }
        .boxed()
    }

    fn heal<'a>(&'a mut self, testbed: &'a Testbed) -> BoxFuture<'a, anyhow::Result<Option<String>>> {
        async move {
            testbed
                .cuts
                .set(&self.fault(), BTreeSet::new())
                .await
                .context("healing")?;
            let dropped = testbed.cuts.dropped(&self.cuts).await? - self.dropped_before;
            Ok((dropped > 0).then(|| format!("{dropped} frames dropped")))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the members with which `one` has a link in both directions.
    fn hears(cuts: &BTreeSet<Cut>, members: &[Slot], one: Slot) -> usize {
        let both = |other: &&Slot| !cuts.contains(&(one, **other)) && !cuts.contains(&(**other, one));
        members.iter().filter(both).count()
    }

    #[test]
    fn each_node_of_a_ring_is_connected_to_a_majority_but_not_to_all() {
        let members = [1, 2, 3, 4, 5];
        for seed in 0..50 {
            let (cuts, _) = Shape::Ring.cuts(&members, 3, &mut Rng::with_seed(seed));
            assert!(
                members.iter().all(|one| hears(&cuts, &members, *one) == 3),
                "{cuts:?}"
            );
        }
    }

    #[test]
    fn both_sides_of_a_bridge_have_a_majority_with_it() {
        let members = [1, 2, 3, 4, 5];
        for seed in 0..50 {
            let (cuts, _) = Shape::Bridge.cuts(&members, 2, &mut Rng::with_seed(seed));
            let mut heard: Vec<usize> = members.iter().map(|one| hears(&cuts, &members, *one)).collect();
            heard.sort_unstable();
            assert_eq!(heard, [3, 3, 3, 3, 5], "{cuts:?}");
            assert_eq!(hears(&cuts, &members, 2), 3, "the leader is on a side");
        }
    }

    #[test]
    fn a_leader_with_one_follower_leaves_a_connected_majority() {
        let members = [1, 2, 3, 4, 5];
        let (cuts, _) = Shape::LeaderAndOne.cuts(&members, 1, &mut Rng::with_seed(1));
        assert_eq!(hears(&cuts, &members, 1), 2);
        assert_eq!((2..=5).filter(|one| hears(&cuts, &members, *one) == 5).count(), 1);
    }

    #[test]
    fn halves_differ_by_seed_and_one_way_cuts_are_one_way() {
        let members = [1, 2, 3];
        let drawn = |seed| Shape::Halves.cuts(&members, 1, &mut Rng::with_seed(seed)).0;
        assert!((1..20).any(|seed| drawn(seed) != drawn(0)));
        assert_eq!(drawn(5), drawn(5));
        let (cuts, _) = Shape::In.cuts(&members, 1, &mut Rng::with_seed(1));
        assert_eq!(cuts.len(), 2);
        assert!(cuts.iter().all(|(from, to)| !cuts.contains(&(*to, *from))));
    }
}
