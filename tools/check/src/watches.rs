//! Checker of one-shot watches, as the client of one connection observes them:
//!
//! - a watch fires at most once, for the first change after it was set;
//! - the client reads no change before the notification of it;
//! - notifications arrive in the order of the changes;
//! - a watch that misses a change is at least reported as lost.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::history::{Nanos, seconds};
use crate::verdict::Verdict;

/// Observations of a client on one connection, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Name of the connection in reports.
    pub name: String,
    /// Observations with their times, in order.
    pub observations: Vec<(Nanos, Observation)>,
}

/// One observation of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Observation {
    /// The client set a watch: it will fire for the first change to the znode after this position.
    Set {
        /// Id of the watch, unique on the connection.
        watch: u64,
        /// Path of the watched znode.
        path: String,
        /// Zxid after which changes count.
        position: u64,
    },
    /// The watch has fired.
    Fired {
        /// Id of the watch.
        watch: u64,
        /// Zxid of the change; `None` if the notification does not contain it.
        zxid: Option<u64>,
    },
    /// The client read the znode as of its last change.
    Read {
        /// Path of the znode.
        path: String,
        /// Zxid of its last change.
        zxid: u64,
    },
    /// The watch ended without firing: its timeout passed, the client removed it, or the server
    /// reported it as lost. If there is a `position`, no change happened up to it.
    Over {
        /// Id of the watch.
        watch: u64,
        /// Position up to which there was no change.
        position: Option<u64>,
    },
    /// The connection closed, and all its watches with it.
    Ended,
}

/// Actual changes to the watched znodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Positions of the changes of each path.
    pub known: BTreeMap<String, BTreeSet<u64>>,
    /// Paths with changes of unknown position: a notification about such a path may be for one of
    /// these.
    pub uncertain: BTreeSet<String>,
}

/// Checks all connections. Assumes that each client observed until all due notifications must have
/// arrived.
pub fn check(connections: &[Connection], changes: &Changes) -> Verdict {
    let verdicts = connections.iter().map(|connection| {
        let mut checker = ConnectionChecker {
            changes,
            set: BTreeMap::new(),
            done: BTreeSet::new(),
            last_fired: 0,
            contradictions: Vec::new(),
        };
        for (at, observations) in &connection.observations {
            checker.observe(*at, observations);
        }
        checker.end();
        Verdict::of(checker.contradictions).about(format_args!("connection {}", connection.name))
    });
    verdicts.fold(Verdict::Valid, Verdict::and)
}

/// Checker of one connection's observations.
struct ConnectionChecker<'a> {
    changes: &'a Changes,
    /// Watches that have not fired: the path of each, and the position after which it was set.
    set: BTreeMap<u64, (&'a str, u64)>,
    done: BTreeSet<u64>,
    last_fired: u64,
    contradictions: Vec<String>,
}

impl<'a> ConnectionChecker<'a> {
    fn observe(&mut self, at: Nanos, observations: &'a Observation) {
        let at = seconds(at);
        match observations {
            Observation::Set {
                watch,
                path,
                position,
            } => {
                self.set.insert(*watch, (path, *position));
            }
            Observation::Fired { watch, zxid } => self.fired(&at, *watch, *zxid),
            // The notification must arrive before the change that it announces becomes visible.
            Observation::Read { path, zxid } => {
                let early = self
                    .set
                    .iter()
                    .filter(|(_, (of, after))| of == path && after < zxid);
                for (watch, (_, after)) in early {
                    self.contradictions.push(format!(
                        "{path} was read at {at} as changed at {zxid}, before watch {watch}, set after {after}, had fired"
                    ));
                }
            }
            Observation::Over { watch, position } => {
                self.done.insert(*watch);
                let Some((path, after)) = self.set.remove(watch) else {
                    return;
                };
                if let Some(position) = position
                    && let Some(change) = self.first_change(path, after).filter(|change| change <= position)
                {
                    self.contradictions.push(format!(
                        "watch {watch} of {path}, set after {after}, ended at {at} without firing, at position {position}, but there was a change at {change}"
                    ));
                }
            }
            Observation::Ended => self.set.clear(),
        }
    }

    fn fired(&mut self, at: &str, watch: u64, zxid: Option<u64>) {
        let Some((path, after)) = self.set.remove(&watch) else {
            let problem = if self.done.contains(&watch) {
                "again, or after its end"
            } else {
                "but had not been set"
            };
            self.contradictions
                .push(format!("watch {watch} fired at {at} {problem}"));
            return;
        };
        self.done.insert(watch);
        let certain = !self.changes.uncertain.contains(path);
        let first = self.first_change(path, after);
        match (zxid, first) {
            (Some(zxid), _) if zxid <= after => self.contradictions.push(format!(
                "watch {watch} of {path}, set after {after}, fired at {at} for an earlier change, at {zxid}"
            )),
            (_, None) if certain => self.contradictions.push(format!(
                "watch {watch} of {path}, set after {after}, fired at {at} without a change"
            )),
            (Some(zxid), Some(first)) if first < zxid => self.contradictions.push(format!(
                "watch {watch} of {path}, set after {after}, fired at {at} for {zxid}, but missed the change at {first}"
            )),
            (Some(zxid), Some(first)) if zxid < first && certain => self.contradictions.push(format!(
                "watch {watch} of {path}, set after {after}, fired at {at} for {zxid}, where there is no change"
            )),
            _ => {}
        }
        if let Some(zxid) = zxid {
            if zxid < self.last_fired {
                self.contradictions.push(format!(
                    "watch {watch} of {path} fired at {at} for {zxid}, after a notification for {}",
                    self.last_fired
                ));
            }
            self.last_fired = self.last_fired.max(zxid);
        }
    }

    /// Returns the first change for which a watch that was set after this position must fire.
    fn first_change(&self, path: &str, after: u64) -> Option<u64> {
        self.changes.known.get(path)?.range(after + 1..).next().copied()
    }

    /// Reports watches that should have fired by the end.
    fn end(&mut self) {
        for (watch, (path, after)) in &self.set {
            if let Some(change) = self.first_change(path, *after) {
                self.contradictions.push(format!(
                    "watch {watch} of {path}, set after {after}, never fired and was not reported as lost: there was a change at {change}"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(watch: u64, position: u64) -> Observation {
        Observation::Set {
            watch,
            path: "/a".into(),
            position,
        }
    }

    fn fired(watch: u64, zxid: u64) -> Observation {
        Observation::Fired {
            watch,
            zxid: Some(zxid),
        }
    }

    fn read(zxid: u64) -> Observation {
        Observation::Read {
            path: "/a".into(),
            zxid,
        }
    }

    /// Returns the verdict on observations of a znode that changed at 5, 8 and 11.
    fn verdict(observations: Vec<Observation>) -> Verdict {
        let changes = Changes {
            known: BTreeMap::from([("/a".into(), BTreeSet::from([5, 8, 11]))]),
            uncertain: BTreeSet::new(),
        };
        let connection = Connection {
            name: "c1".into(),
            observations: (1..).zip(observations).collect(),
        };
        check(&[connection], &changes)
    }

    fn violated(observations: Vec<Observation>, named: &str) {
        match verdict(observations) {
            Verdict::Violated(lines) => assert!(lines.len() == 1 && lines[0].contains(named), "{lines:?}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn notification_before_its_change_is_valid() {
        let observations = vec![
            set(1, 2),
            fired(1, 5),
            read(5),
            set(2, 6),
            fired(2, 8),
            set(3, 8),
            fired(3, 11),
            read(11),
            set(4, 11),
        ];
        assert_eq!(verdict(observations), Verdict::Valid);
    }

    #[test]
    fn ended_watch_need_not_fire() {
        assert_eq!(
            verdict(vec![
                set(1, 2),
                Observation::Over {
                    watch: 1,
                    position: Some(4)
                }
            ]),
            Verdict::Valid
        );
        assert_eq!(
            verdict(vec![
                set(1, 2),
                Observation::Over {
                    watch: 1,
                    position: None
                }
            ]),
            Verdict::Valid
        );
        assert_eq!(verdict(vec![set(1, 2), Observation::Ended]), Verdict::Valid);
    }

    #[test]
    fn lost_watch_is_caught() {
        violated(
            vec![set(1, 6)],
            "watch 1 of /a, set after 6, never fired and was not reported as lost: there was a change at 8",
        );
        violated(
            vec![
                set(1, 6),
                Observation::Over {
                    watch: 1,
                    position: Some(9),
                },
            ],
            "there was a change at 8",
        );
    }

    #[test]
    fn second_firing_is_caught() {
        violated(
            vec![set(1, 2), fired(1, 5), fired(1, 8)],
            "watch 1 fired at 0.000000 s again",
        );
        violated(vec![fired(9, 5)], "but had not been set");
    }

    #[test]
    fn firing_without_a_change_is_caught() {
        violated(vec![set(1, 11), fired(1, 12)], "without a change");
        violated(
            vec![set(1, 5), fired(1, 7)],
            "fired at 0.000000 s for 7, where there is no change",
        );
        violated(vec![set(1, 5), fired(1, 5)], "for an earlier change, at 5");
    }

    #[test]
    fn skipped_change_is_caught() {
        violated(vec![set(1, 2), fired(1, 8)], "for 8, but missed the change at 5");
    }

    #[test]
    fn data_before_its_notification_is_caught() {
        violated(
            vec![set(1, 2), read(5), fired(1, 5)],
            "/a was read at 0.000000 s as changed at 5, before watch 1",
        );
    }

    #[test]
    fn notifications_out_of_order_are_caught() {
        violated(
            vec![set(1, 2), set(2, 6), fired(2, 8), fired(1, 5)],
            "for 5, after a notification for 8",
        );
    }

    #[test]
    fn change_of_unknown_position_explains_a_firing() {
        let changes = Changes {
            known: BTreeMap::new(),
            uncertain: BTreeSet::from(["/a".into()]),
        };
        let connection = Connection {
            name: "c1".into(),
            observations: vec![(1, set(1, 2)), (2, fired(1, 7))],
        };
        assert_eq!(check(&[connection], &changes), Verdict::Valid);
    }
}
