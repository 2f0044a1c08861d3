//! Nemeses that run several kinds of faults at a time, each with times and targets of its own.

use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Kind, Need, Nemesis, Testbed};

/// Faults that overlap in `chaos`. None of them hits all nodes, so each leaves room for the others.
pub const CHAOS: &[&str] = &[
    "partition-halves",
    "one-way-in",
    "kill-one",
    "pause-leader",
    "slow-network",
    "clock-jump",
];

/// Faults that overlap in `chaos-disks`, where nodes have disks of their own.
pub const CHAOS_DISKS: &[&str] = &[
    "isolate-leader",
    "flapping",
    "power-cut-one",
    "slow-disk",
    "pause-one",
];

/// Returns both kinds.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            name: "chaos",
            about: "partitions, one-way cuts, kills, pauses, a slow network and jumping clocks, all overlapping",
            nodes: 3,
            needs: &[Need::FakeTime],
            make: || Box::new(Combined),
        },
        Kind {
            name: "chaos-disks",
            about: "partitions, flapping links, power cuts, stalling disks and pauses, all overlapping",
            nodes: 3,
            needs: &[Need::Disks],
            make: || Box::new(Combined),
        },
    ]
}

/// Returns the kinds that overlap in this nemesis; `None` for a simple nemesis.
pub fn parts(name: &str) -> Option<&'static [&'static str]> {
    match name {
        "chaos" => Some(CHAOS),
        "chaos-disks" => Some(CHAOS_DISKS),
        _ => None,
    }
}

/// The combined nemesis itself, which injects nothing beside its parts.
struct Combined;

impl Nemesis for Combined {
    fn begin<'a>(&'a mut self, _: &'a Testbed, _: &'a mut Rng) -> BoxFuture<'a, anyhow::Result<String>> {
        async { Ok("nothing: the parts were not started".to_owned()) }.boxed()
    }

    fn heal<'a>(&'a mut self, _: &'a Testbed) -> BoxFuture<'a, anyhow::Result<Option<String>>> {
        async { Ok(None) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nemeses_that_may_stop_all_clients_exist() {
        for name in super::super::MAY_STOP_ALL {
            super::super::find(name).expect("the nemesis exists");
        }
    }

    #[test]
    fn all_parts_exist_and_need_no_more_than_their_combination() {
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
