//! Several kinds of faults at a time, each with times and targets of its own.

use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Field, Kind, Need, Nemesis};

/// What overlaps in `chaos`. Each of them leaves the others something to do: none hits all nodes.
pub const CHAOS: &[&str] = &[
    "partition-halves",
    "one-way-in",
    "kill-one",
    "pause-leader",
    "slow-network",
    "clock-jump",
];

/// The same where nodes have disks of their own.
pub const CHAOS_DISKS: &[&str] = &[
    "isolate-leader",
    "flapping",
    "power-cut-one",
    "slow-disk",
    "pause-one",
];

/// Both kinds.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            name: "chaos",
            about: "partitions, one-way cuts, kills, pauses, a slow network and jumping clocks, all overlapping",
            nodes: 3,
            needs: &[Need::FakeTime],
            make: || Box::new(Whole),
        },
        Kind {
            name: "chaos-disks",
            about: "partitions, flapping links, power cuts, stalling disks and pauses, all overlapping",
            nodes: 3,
            needs: &[Need::Disks],
            make: || Box::new(Whole),
        },
    ]
}

/// The kinds that overlap in this one; one of them alone is just itself.
pub fn parts(name: &str) -> Option<&'static [&'static str]> {
    match name {
        "chaos" => Some(CHAOS),
        "chaos-disks" => Some(CHAOS_DISKS),
        _ => None,
    }
}

/// The whole does nothing beside its parts; by itself it would be no fault.
struct Whole;

impl Nemesis for Whole {
    fn begin<'a>(&'a mut self, _: &'a Field, _: &'a mut Rng) -> BoxFuture<'a, anyhow::Result<String>> {
        async { Ok("nothing: its parts were not begun".to_owned()) }.boxed()
    }

    fn heal<'a>(&'a mut self, _: &'a Field) -> BoxFuture<'a, anyhow::Result<Option<String>>> {
        async { Ok(None) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_stop_everybody_exists() {
        for name in super::super::MAY_STOP_ALL {
            super::super::find(name).expect("the nemesis exists");
        }
    }

    #[test]
    fn all_parts_exist_and_need_no_more_than_the_whole() {
        for whole in kinds() {
            for part in parts(whole.name).expect("each kind here has parts") {
                let part = super::super::find(part).expect("the part exists");
                assert_eq!(part.nodes, whole.nodes, "{}", part.name);
                assert!(
                    part.needs.iter().all(|need| whole.needs.contains(need)),
                    "{}",
                    part.name
                );
            }
        }
    }
}
