//! One-shot watches, as the client of one connection saw them: each fires at most once, for the first change after it was
//! set; a client never sees a change before the notice of it; notices come in the order of changes; and what was not told
//! was at least said to be lost.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::history::{Nanos, seconds};
use crate::verdict::Verdict;

/// What a client heard on one connection, in the order in which it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Its name in reports.
    pub name: String,
    /// What was heard, one after the other.
    pub observations: Vec<(Nanos, Observation)>,
}

/// One thing that a client heard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Observation {
    /// A watch is set: of what happens to this znode after this position, the first thing will be told.
    Set {
        /// Unlike all other watches of the connection.
        watch: u64,
        /// Of which znode.
        path: String,
        /// After which zxid.
        position: u64,
    },
    /// The watch has fired.
    Fired {
        /// Which one.
        watch: u64,
        /// For the change at this zxid; none if the notice does not say.
        zxid: Option<u64>,
    },
    /// The znode as it was after its last change, at this zxid.
    Read {
        /// Which one.
        path: String,
        /// The position of its last change.
        zxid: u64,
    },
    /// The watch is over, and has not fired: its time was up, it was taken back, or it was said to be lost. If `position` is
    /// given, nothing had happened up to there.
    Over {
        /// Which one.
        watch: u64,
        /// Up to where nothing was to be told.
        position: Option<u64>,
    },
    /// The connection is over, and with it all its watches.
    Ended,
}

/// What really happened to the znodes that were watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// By path, the position of each change.
    pub known: BTreeMap<String, BTreeSet<u64>>,
    /// Paths to which things happened of which nobody knows the position: a notice about them may be of one of these.
    pub uncertain: BTreeSet<String>,
}

/// Checks all connections. It is taken that each was listened to until all that had happened must have been told.
pub fn check(connections: &[Connection], changes: &Changes) -> Verdict {
    let verdicts = connections.iter().map(|connection| {
        let mut listener = ConnectionChecker {
            changes,
            set: BTreeMap::new(),
            done: BTreeSet::new(),
            last_fired: 0,
            contradictions: Vec::new(),
        };
        for (at, observations) in &connection.observations {
            listener.observe(*at, observations);
        }
        listener.end();
        Verdict::of(listener.contradictions).about(format_args!("connection {}", connection.name))
    });
    verdicts.fold(Verdict::Valid, Verdict::and)
}

/// Follows what one client hears.
struct ConnectionChecker<'a> {
    changes: &'a Changes,
    /// Watches that have not fired: of which znode, after which position.
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
            // The notice has to come before what it is about.
            Observation::Read { path, zxid } => {
                let early = self
                    .set
                    .iter()
                    .filter(|(_, (of, after))| of == path && after < zxid);
                for (watch, (_, after)) in early {
                    self.contradictions.push(format!(
                        "{path} was seen at {at} as changed at {zxid}, before watch {watch}, set after {after}, had fired"
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
                        "watch {watch} of {path}, set after {after}, was over at {at} without having fired, at position {position}, and there was a change at {change}"
                    ));
                }
            }
            Observation::Ended => self.set.clear(),
        }
    }

    fn fired(&mut self, at: &str, watch: u64, zxid: Option<u64>) {
        let Some((path, after)) = self.set.remove(&watch) else {
            let what = if self.done.contains(&watch) {
                "again, or after its end"
            } else {
                "and had not been set"
            };
            self.contradictions
                .push(format!("watch {watch} fired at {at} {what}"));
            return;
        };
        self.done.insert(watch);
        let certain = !self.changes.uncertain.contains(path);
        let first = self.first_change(path, after);
        match (zxid, first) {
            (Some(zxid), _) if zxid <= after => self.contradictions.push(format!(
                "watch {watch} of {path}, set after {after}, fired at {at} for what happened before, at {zxid}"
            )),
            (_, None) if certain => self.contradictions.push(format!(
                "watch {watch} of {path}, set after {after}, fired at {at} for nothing"
            )),
            (Some(zxid), Some(first)) if first < zxid => self.contradictions.push(format!(
                "watch {watch} of {path}, set after {after}, fired at {at} for {zxid}, and missed the change at {first}"
            )),
            (Some(zxid), Some(first)) if zxid < first && certain => self.contradictions.push(format!(
                "watch {watch} of {path}, set after {after}, fired at {at} for {zxid}, when nothing happened"
            )),
            _ => {}
        }
        if let Some(zxid) = zxid {
            if zxid < self.last_fired {
                self.contradictions.push(format!(
                    "watch {watch} of {path} fired at {at} for {zxid}, after a notice of {}",
                    self.last_fired
                ));
            }
            self.last_fired = self.last_fired.max(zxid);
        }
    }

    /// The first change of which a watch that is set after this position has to tell.
    fn first_change(&self, path: &str, after: u64) -> Option<u64> {
        self.changes.known.get(path)?.range(after + 1..).next().copied()
    }

    /// What should have fired long ago is lost.
    fn end(&mut self) {
        for (watch, (path, after)) in &self.set {
            if let Some(change) = self.first_change(path, *after) {
                self.contradictions.push(format!(
                    "watch {watch} of {path}, set after {after}, never fired, and nobody said so: there was a change at {change}"
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

    /// Of a znode that was changed at 5, 8 and 11.
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
            "watch 1 of /a, set after 6, never fired, and nobody said so: there was a change at 8",
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
        violated(vec![fired(9, 5)], "and had not been set");
    }

    #[test]
    fn firing_without_a_change_is_caught() {
        violated(vec![set(1, 11), fired(1, 12)], "for nothing");
        violated(
            vec![set(1, 5), fired(1, 7)],
            "fired at 0.000000 s for 7, when nothing happened",
        );
        violated(vec![set(1, 5), fired(1, 5)], "for what happened before, at 5");
    }

    #[test]
    fn skipped_change_is_caught() {
        violated(vec![set(1, 2), fired(1, 8)], "for 8, and missed the change at 5");
    }

    #[test]
    fn data_before_its_notification_is_caught() {
        violated(
            vec![set(1, 2), read(5), fired(1, 5)],
            "/a was seen at 0.000000 s as changed at 5, before watch 1",
        );
    }

    #[test]
    fn notifications_out_of_order_are_caught() {
        violated(
            vec![set(1, 2), set(2, 6), fired(2, 8), fired(1, 5)],
            "for 5, after a notice of 8",
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
