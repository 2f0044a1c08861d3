//! Sessions and what hangs on them: one that was confirmed lives for its timeout, one that is silent ends within a published
//! bound, what has ended can do nothing more, and ephemeral znodes live exactly as long as their session.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::history::{Nanos, seconds};
use crate::verdict::Verdict;

/// A session, and all that anybody has got to know of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Its name in reports.
    pub id: String,
    /// Its timeout.
    pub ttl: Nanos,
    /// In any order.
    pub evidence: Vec<Evidence>,
}

/// Something that somebody asked, and what the answer says of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The moment before it was asked.
    pub invoked: Nanos,
    /// The moment after it was answered, or given up.
    pub returned: Nanos,
    /// What it says.
    pub fact: Fact,
}

/// What an answer says of a session. What is seen by a look must have been a look at the newest state: one that may be behind
/// says nothing here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// It was opened, or a heartbeat of it was confirmed: from the request on it lives for its timeout.
    Confirmed,
    /// A call of it was carried out.
    Acted,
    /// A call of it, or a heartbeat, has no known outcome. It may be counted as a sign of life.
    Attempted,
    /// Somebody saw it alive.
    SeenAlive,
    /// A call of it was refused because it has ended, or somebody saw it gone.
    Ended,
    /// It was asked to end, and the answer came.
    Closed,
    /// It was asked to end, and no answer came; or somebody else may have ended it. It may end at any time after the request.
    MayClose,
    /// It made this ephemeral znode, which nobody deletes.
    Created(String),
    /// Somebody saw this ephemeral znode of it.
    SeenThere(String),
    /// Somebody saw that this ephemeral znode of it is not there.
    SeenGone(String),
}

/// What ends of sessions depend on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// How long a silent session lives at most, beyond its timeout, in a cluster that nothing happens to.
    pub grace: Nanos,
    /// From when to when something happened to the cluster. Who leads anew gives every session its whole time again, so the
    /// bound begins anew at the end of each.
    pub disturbed: Vec<(Nanos, Nanos)>,
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

/// What follows from the evidence.
struct Known<'a> {
    session: &'a Session,
    /// The first proof that it is over.
    over: Option<&'a Evidence>,
    /// From when on it may be over because it was asked to end.
    may_close: Nanos,
    /// The confirmation that lasts longest.
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

    /// Until when it lives for certain: confirmed until then, and nobody has asked for its end before.
    fn certain_until(&self) -> Nanos {
        self.confirmed
            .map_or(0, |it| it.invoked + self.session.ttl)
            .min(self.may_close)
    }

    fn early_end(&self) -> Option<String> {
        let (over, confirmed) = (self.over?, self.confirmed?);
        (over.returned < self.certain_until()).then(|| {
            format!(
                "it had ended at {}, although a confirmed heartbeat, sent at {}, keeps it until {}",
                seconds(over.returned),
                seconds(confirmed.invoked),
                seconds(confirmed.invoked + self.session.ttl)
            )
        })
    }

    /// It was seen alive when it should have been ended long ago.
    fn late_end(&self, rules: &Rules) -> Option<String> {
        let last_word = self
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
        let bound = self.session.ttl + rules.grace;
        let mut disturbed = rules.disturbed.clone();
        disturbed.sort_unstable();
        let due = disturbed
            .into_iter()
            .fold(last_word + bound, |due, (from, until)| {
                if from <= due { due.max(until + bound) } else { due }
            });
        let late = self
            .session
            .evidence
            .iter()
            .find(|it| it.invoked > due && matches!(it.fact, Fact::SeenAlive | Fact::SeenThere(_)))?;
        Some(format!(
            "it said its last word at {}, should have ended by {}, and is still there at {}: {:?}",
            seconds(last_word),
            seconds(due),
            seconds(late.invoked),
            late.fact
        ))
    }

    /// Something of it after somebody knew that it was over.
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
            "it had ended at {} ({:?}), and at {} there is {:?}",
            seconds(over.returned),
            over.fact,
            seconds(late.invoked),
            late.fact
        ))
    }

    /// Ephemeral znodes that were gone while their session lived for certain.
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
                        "{path} was there at {} and is gone at {}, although the session lives until {}",
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

    /// Asked at this second, answered half a second later.
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

    /// Of a session of ten seconds, which may take five more.
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
            "session s1: it had ended at 14.500000 s, although a confirmed heartbeat, sent at 5.000000 s, keeps it until 15.000000 s",
        );
        // A heartbeat of which nobody knows confirms nothing.
        assert_eq!(
            verdict(vec![
                at(0, Fact::Confirmed),
                at(5, Fact::Attempted),
                at(14, Fact::Ended)
            ]),
            Verdict::Valid
        );
        // Who asks for its end gets it.
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
            "should have ended by 15.500000 s, and is still there at 16.000000 s: SeenAlive",
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
            "it had ended at 12.500000 s (Ended), and at 13.000000 s there is SeenThere(\"/e\")",
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
            "(Closed), and at 3.000000 s",
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
            "/e was there at 1.500000 s and is gone at 5.500000 s, although the session lives until 10.000000 s",
        );
    }
}
