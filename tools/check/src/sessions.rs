//! Checker of sessions. A confirmed session lives for its timeout, a silent one ends within a
//! documented bound, and an ended one has no further effect. Ephemeral znodes live exactly as long
//! as their session.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::history::{Nanos, seconds};
use crate::verdict::Verdict;

/// Session, with all evidence about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Name of the session in reports.
    pub id: String,
    /// Timeout of the session.
    pub ttl: Nanos,
    /// Evidence, in any order.
    pub evidence: Vec<Evidence>,
}

/// One request, and what its answer says of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Time just before the request was sent.
    pub invoked: Nanos,
    /// Time just after the answer arrived, or at which the client gave up.
    pub returned: Nanos,
    /// Fact that the answer shows.
    pub fact: Fact,
}

/// Fact about a session. A `Seen…` fact must come from a linearizable read: a local read, which may
/// lag, proves nothing here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// The session was opened, or a heartbeat was confirmed: from the request on it lives for its
    /// timeout.
    Confirmed,
    /// A call of the session took effect.
    Acted,
    /// The client sent a call or a heartbeat of the session, and its outcome is unknown or proves
    /// nothing. The server may have renewed the session.
    Attempted,
    /// A read found the session alive.
    SeenAlive,
    /// The server rejected a call because the session had ended, or a read found it ended.
    Ended,
    /// The client closed the session and got the answer.
    Closed,
    /// The client closed the session and got no answer, or another client may have ended it. It may
    /// end at any time after the request.
    MayClose,
    /// The session created this ephemeral znode, which no client deletes.
    Created(String),
    /// A read found this ephemeral znode of the session.
    SeenThere(String),
    /// A read found this ephemeral znode of the session absent.
    SeenGone(String),
}

/// Conditions on which the bounds depend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Maximum life of a silent session beyond its timeout, in an undisturbed cluster.
    pub grace: Nanos,
    /// Intervals in which the cluster was disturbed. A new leader grants every session its full
    /// timeout again, so the bound starts again at the end of each interval.
    pub disturbed: Vec<(Nanos, Nanos)>,
}

impl Rules {
    /// Returns the latest end of what began at `from` and lasts for `time` in an undisturbed cluster.
    pub(crate) fn due(&self, from: Nanos, time: Nanos) -> Nanos {
        let bound = time + self.grace;
        let mut disturbed = self.disturbed.clone();
        disturbed.sort_unstable();
        disturbed.into_iter().fold(from + bound, |due, (from, until)| {
            if from <= due { due.max(until + bound) } else { due }
        })
    }
}

/// Checks every session.
pub fn check(sessions: &[Session], rules: &Rules) -> Verdict {
    let lines = sessions.iter().flat_map(|session| {
        let known = Known::of(session);
        let mut lines: Vec<String> = known.early_end().into_iter().collect();
        lines.extend(known.late_end(rules));
        lines.extend(known.activity_after_end());
        lines.extend(known.ephemerals());
        lines
            .into_iter()
            .map(|line| format!("session {}: {line}", session.id))
    });
    Verdict::of(lines.collect())
}

/// Conclusions from the evidence about one session.
struct Known<'a> {
    session: &'a Session,
    /// First proof of the session's end.
    over: Option<&'a Evidence>,
    /// Time from which the session may have ended because a client closed it.
    may_close: Nanos,
    /// Confirmation with the latest expiry.
    confirmed: Option<&'a Evidence>,
}

impl<'a> Known<'a> {
    fn of(session: &'a Session) -> Self {
        let with = |wanted: fn(&Fact) -> bool| session.evidence.iter().filter(move |it| wanted(&it.fact));
        Self {
            session,
            over: with(|fact| matches!(fact, Fact::Ended | Fact::Closed)).min_by_key(|it| it.returned),
            may_close: with(|fact| matches!(fact, Fact::Closed | Fact::MayClose))
                .map(|it| it.invoked)
                .min()
                .unwrap_or(Nanos::MAX),
            confirmed: with(|fact| matches!(fact, Fact::Confirmed)).max_by_key(|it| it.invoked),
        }
    }

    /// Returns the time until which the session certainly lives: confirmed until then, and no
    /// earlier request to close it.
    fn certain_until(&self) -> Nanos {
        self.confirmed
            .map_or(0, |it| it.invoked + self.session.ttl)
            .min(self.may_close)
    }

    fn early_end(&self) -> Option<String> {
        let (over, confirmed) = (self.over?, self.confirmed?);
        (over.returned < self.certain_until()).then(|| {
            format!(
                "it had ended at {}, although a confirmed heartbeat, sent at {}, extends it to {}",
                seconds(over.returned),
                seconds(confirmed.invoked),
                seconds(confirmed.invoked + self.session.ttl)
            )
        })
    }

    /// Reports a session that a read found alive after it was due to end.
    fn late_end(&self, rules: &Rules) -> Option<String> {
        let last_activity = self
            .session
            .evidence
            .iter()
            .filter(|it| {
                matches!(
                    it.fact,
                    Fact::Confirmed | Fact::Acted | Fact::Attempted | Fact::Created(_) | Fact::MayClose
                )
            })
            .map(|it| it.returned)
            .max()?;
        let due = rules.due(last_activity, self.session.ttl);
        let late = self
            .session
            .evidence
            .iter()
            .find(|it| it.invoked > due && matches!(it.fact, Fact::SeenAlive | Fact::SeenThere(_)))?;
        Some(format!(
            "its last activity was at {}, it should have ended by {}, and it is still alive at {}: {:?}",
            seconds(last_activity),
            seconds(due),
            seconds(late.invoked),
            late.fact
        ))
    }

    /// Reports activity of the session after its end was known.
    fn activity_after_end(&self) -> Option<String> {
        let over = self.over?;
        let late = self.session.evidence.iter().find(|it| {
            it.invoked > over.returned
                && matches!(
                    it.fact,
                    Fact::Confirmed | Fact::Acted | Fact::SeenAlive | Fact::Created(_) | Fact::SeenThere(_)
                )
        })?;
        Some(format!(
            "it had ended at {} ({:?}), but at {} there is {:?}",
            seconds(over.returned),
            over.fact,
            seconds(late.invoked),
            late.fact
        ))
    }

    /// Reports ephemeral znodes that were gone while their session certainly lived.
    fn ephemerals(&self) -> Vec<String> {
        let mut created: BTreeMap<&str, Nanos> = BTreeMap::new();
        for it in &self.session.evidence {
            if let Fact::Created(path) = &it.fact {
                created.insert(path, it.returned);
            }
        }
        let certain_until = self.certain_until();
        self.session
            .evidence
            .iter()
            .filter_map(|it| {
                let Fact::SeenGone(path) = &it.fact else {
                    return None;
                };
                let created = *created.get(path.as_str())?;
                (created < it.invoked && it.returned < certain_until).then(|| {
                    format!(
                        "{path} existed at {} and is gone at {}, although the session lives until {}",
                        seconds(created),
                        seconds(it.returned),
                        seconds(certain_until)
                    )
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    /// Evidence whose request was sent at this second and answered half a second later.
    fn at(second: Nanos, fact: Fact) -> Evidence {
        Evidence {
            invoked: second * SECOND,
            returned: second * SECOND + SECOND / 2,
            fact,
        }
    }

    fn node() -> String {
        "/e".into()
    }

    fn verdict(evidence: Vec<Evidence>) -> Verdict {
        verdict_when_disturbed(evidence, &[])
    }

    /// Returns the verdict on a session with a timeout of 10 s and a grace of 5 s.
    fn verdict_when_disturbed(evidence: Vec<Evidence>, disturbed: &[(Nanos, Nanos)]) -> Verdict {
        let session = Session {
            id: "s1".into(),
            ttl: 10 * SECOND,
            evidence,
        };
        let rules = Rules {
            grace: 5 * SECOND,
            disturbed: disturbed
                .iter()
                .map(|(from, until)| (from * SECOND, until * SECOND))
                .collect(),
        };
        check(&[session], &rules)
    }

    fn violated(evidence: Vec<Evidence>, named: &str) {
        match verdict(evidence) {
            Verdict::Violated(lines) => assert!(lines.len() == 1 && lines[0].contains(named), "{lines:?}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn regular_session_life_is_valid() {
        let life = vec![
            at(0, Fact::Confirmed),
            at(1, Fact::Created(node())),
            at(5, Fact::Confirmed),
            at(6, Fact::Attempted),
            at(8, Fact::SeenThere(node())),
            at(20, Fact::SeenAlive),
            at(30, Fact::SeenGone(node())),
            at(30, Fact::Ended),
        ];
        assert_eq!(verdict(life), Verdict::Valid);
    }

    #[test]
    fn early_end_is_caught() {
        violated(
            vec![
                at(0, Fact::Confirmed),
                at(5, Fact::Confirmed),
                at(14, Fact::Ended),
            ],
            "session s1: it had ended at 14.500000 s, although a confirmed heartbeat, sent at 5.000000 s, extends it to 15.000000 s",
        );
        // A heartbeat of unknown outcome confirms nothing.
        assert_eq!(
            verdict(vec![
                at(0, Fact::Confirmed),
                at(5, Fact::Attempted),
                at(14, Fact::Ended)
            ]),
            Verdict::Valid
        );
        // A session that its client closes may end early.
        assert_eq!(
            verdict(vec![
                at(0, Fact::Confirmed),
                at(5, Fact::MayClose),
                at(6, Fact::Ended)
            ]),
            Verdict::Valid
        );
        assert_eq!(
            verdict(vec![
                at(0, Fact::Confirmed),
                at(5, Fact::Closed),
                at(6, Fact::Ended)
            ]),
            Verdict::Valid
        );
    }

    #[test]
    fn late_end_is_caught() {
        let evidence = vec![at(0, Fact::Confirmed), at(16, Fact::SeenAlive)];
        violated(
            evidence.clone(),
            "should have ended by 15.500000 s, and it is still alive at 16.000000 s: SeenAlive",
        );
        assert_eq!(
            verdict_when_disturbed(evidence.clone(), &[(3, 4)]),
            Verdict::Valid
        );
        assert!(matches!(
            verdict_when_disturbed(evidence, &[(16, 17)]),
            Verdict::Violated(_)
        ));
    }

    #[test]
    fn orphaned_ephemeral_is_caught() {
        violated(
            vec![
                at(0, Fact::Confirmed),
                at(12, Fact::Ended),
                at(13, Fact::SeenThere(node())),
            ],
            "it had ended at 12.500000 s (Ended), but at 13.000000 s there is SeenThere(\"/e\")",
        );
    }

    #[test]
    fn activity_of_an_ended_session_is_caught() {
        violated(
            vec![at(0, Fact::Confirmed), at(20, Fact::Ended), at(21, Fact::Acted)],
            "there is Acted",
        );
        violated(
            vec![at(0, Fact::Confirmed), at(2, Fact::Closed), at(3, Fact::Acted)],
            "(Closed), but at 3.000000 s",
        );
        let confirmed_again = vec![
            at(0, Fact::Confirmed),
            at(20, Fact::Ended),
            at(21, Fact::Confirmed),
        ];
        assert!(matches!(verdict(confirmed_again), Verdict::Violated(_)));
    }

    #[test]
    fn ephemeral_deleted_before_its_session_ends_is_caught() {
        violated(
            vec![
                at(0, Fact::Confirmed),
                at(1, Fact::Created(node())),
                at(5, Fact::SeenGone(node())),
            ],
            "/e existed at 1.500000 s and is gone at 5.500000 s, although the session lives until 10.000000 s",
        );
    }
}
