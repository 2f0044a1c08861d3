//! Conclusions from the evidence about one contender, and the rules for its own life.

use super::{Contender, End, Evidence, Fact};
use crate::history::{Nanos, seconds};
use crate::sessions::Rules;

/// Grant of a contender.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    /// Fencing token.
    pub token: u64,
    /// Time after which it was granted.
    pub after: Nanos,
    /// Time by which it was granted.
    pub by: Nanos,
}

/// Life of a contender.
pub(super) struct Life<'a> {
    pub contender: &'a Contender,
    pub granted: Option<Granted>,
    /// Latest time until which a server promised its life.
    pub promised: Nanos,
    /// First request of its client to release or withdraw it.
    pub leaving: Option<Nanos>,
    /// Latest time at which it certainly waited.
    pub waiting: Option<Nanos>,
    /// Latest time at which it was certainly alive.
    pub known_alive: Nanos,
    /// First proof of its end.
    gone: Option<&'a Evidence>,
}

impl<'a> Life<'a> {
    pub fn of(contender: &'a Contender) -> Self {
        let with = |wanted: fn(&Fact) -> bool| contender.evidence.iter().filter(move |it| wanted(&it.fact));
        let latest = |wanted| with(wanted).map(|it| it.invoked).max();
        let leaving = with(|fact| matches!(fact, Fact::Leaving))
            .map(|it| it.invoked)
            .min();
        let waiting = latest(|fact| matches!(fact, Fact::Waiting));
        let alive =
            latest(|fact| matches!(fact, Fact::Promised(_) | Fact::Alive | Fact::Waiting | Fact::Left));
        let granted = contender.evidence.iter().filter_map(|it| match it.fact {
            Fact::Granted(token) => Some(Granted {
                token,
                after: contender.requested.max(waiting.unwrap_or(0)),
                by: it.returned,
            }),
            _ => None,
        });
        let promised = contender.evidence.iter().filter_map(|it| match it.fact {
            Fact::Promised(until) => Some(until),
            _ => None,
        });
        Self {
            contender,
            granted: granted.min_by_key(|granted| granted.by),
            promised: promised.max().unwrap_or(0),
            leaving,
            waiting,
            known_alive: alive.unwrap_or(0),
            gone: with(|fact| matches!(fact, Fact::Gone(_) | Fact::Left)).min_by_key(|it| it.returned),
        }
    }

    pub fn name(&self) -> String {
        let Contender { holder, client, .. } = self.contender;
        match self.granted {
            Some(granted) => format!("{holder} of client {client}, token {}", granted.token),
            None => format!("{holder} of client {client}"),
        }
    }

    /// Returns the earliest time at which its maximum time can be over.
    pub fn max_hold_over(&self) -> Nanos {
        match (self.granted, self.contender.max_hold) {
            (Some(granted), Some(max)) => granted.after + max,
            // The client may not have learned of the grant.
            (None, Some(max)) => self.contender.requested + max,
            (_, None) => Nanos::MAX,
        }
    }

    /// Returns every contradiction of its own life.
    pub fn contradictions(&self, rules: &Rules) -> Vec<String> {
        let lines = [
            self.early_end(),
            self.illegal_end(),
            self.life_after_end(),
            self.late_expiry(rules),
            self.late_max_hold(rules),
            self.second_grant(),
        ];
        let lines = lines.into_iter().flatten();
        lines.map(|line| format!("{}: {line}", self.name())).collect()
    }

    fn early_end(&self) -> Option<String> {
        let gone = self.gone?;
        let certain_until = self
            .promised
            .min(self.leaving.unwrap_or(Nanos::MAX))
            .min(self.max_hold_over());
        (gone.returned < certain_until).then(|| {
            format!(
                "it was gone at {} ({:?}), although it was promised to live until {}",
                seconds(gone.returned),
                gone.fact,
                seconds(certain_until)
            )
        })
    }

    /// Reports an end for a reason that cannot be the right one.
    fn illegal_end(&self) -> Option<String> {
        let illegal = |it: &&Evidence| match &it.fact {
            Fact::Gone(Some(End::ByClient)) => self.leaving.is_none_or(|leaving| leaving > it.returned),
            Fact::Gone(Some(End::Expired)) => it.returned < self.promised,
            Fact::Gone(Some(End::MaxHold)) => it.returned < self.max_hold_over(),
            Fact::Gone(Some(End::Other(_))) => true,
            _ => false,
        };
        let found = self.contender.evidence.iter().find(illegal)?;
        Some(format!(
            "{:?} at {} is no legal reason: it was promised to live until {}, its client {}",
            found.fact,
            seconds(found.returned),
            seconds(self.promised),
            match self.leaving {
                Some(leaving) => format!("left at {}", seconds(leaving)),
                None => "did not leave".to_owned(),
            }
        ))
    }

    fn life_after_end(&self) -> Option<String> {
        let gone = self.gone?;
        let late = self.first_alive_after(gone.returned)?;
        Some(format!(
            "it was gone at {} ({:?}), but at {} there is {:?}",
            seconds(gone.returned),
            gone.fact,
            seconds(late.invoked),
            late.fact
        ))
    }

    /// Reports a silent contender that was alive after it was due to end.
    fn late_expiry(&self, rules: &Rules) -> Option<String> {
        let ttl = self.contender.ttl?;
        let renewals = self
            .contender
            .evidence
            .iter()
            .filter(|it| matches!(it.fact, Fact::Promised(_) | Fact::Attempted));
        let last = renewals.map(|it| it.returned).max()?;
        let due = rules.due(last, ttl);
        let late = self.first_alive_after(due)?;
        Some(format!(
            "its last renewal was at {}, it should have ended by {}, and at {} there is {:?}",
            seconds(last),
            seconds(due),
            seconds(late.invoked),
            late.fact
        ))
    }

    /// Reports a hold that lasted longer than its maximum time. A leader that was restarted during
    /// the hold may count from its start.
    fn late_max_hold(&self, rules: &Rules) -> Option<String> {
        let (granted, max) = (self.granted?, self.contender.max_hold?);
        let due = rules.due(granted.by, max);
        let late = self.first_alive_after(due)?;
        Some(format!(
            "its hold of at most {} began by {}, it should have ended by {}, and at {} there is {:?}",
            seconds(max),
            seconds(granted.by),
            seconds(due),
            seconds(late.invoked),
            late.fact
        ))
    }

    fn second_grant(&self) -> Option<String> {
        let first = self.granted?.token;
        let other = self.contender.evidence.iter().find_map(|it| match it.fact {
            Fact::Granted(token) if token != first => Some(token),
            _ => None,
        })?;
        Some(format!("it was granted the lock again, with the token {other}"))
    }

    fn first_alive_after(&self, time: Nanos) -> Option<&'a Evidence> {
        let alive = |it: &&Evidence| matches!(it.fact, Fact::Promised(_) | Fact::Alive | Fact::Waiting);
        let late = self
            .contender
            .evidence
            .iter()
            .filter(alive)
            .filter(|it| it.invoked > time);
        late.min_by_key(|it| it.invoked)
    }
}
