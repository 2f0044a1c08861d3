//! Effects of the proxy on a connection: the decisions, without any connection.

use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// Conditions of a link. The default is a perfect link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkConditions {
    /// Delay of every portion.
    pub delay: Duration,
    /// Upper bound of an additional random delay, drawn for each portion of each connection: so connections
    /// overtake each other.
    pub jitter: Duration,
    /// Portions in a million that are lost and arrive after a retransmission.
    pub loss_per_million: u32,
    /// Portions in a million at which the connection is reset.
    pub reset_per_million: u32,
    /// Nothing arrives.
    pub cut: bool,
}

/// Fate of one portion of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The portion arrives late, after some losses.
    Arrives {
        /// Delay.
        after: Duration,
        /// Number of losses.
        losses: u32,
    },
    /// The connection is reset.
    Reset,
}

/// Minimum time before Linux retransmits a segment; it doubles with each further retransmission.
const RETRANSMISSION: Duration = Duration::from_millis(200);

/// Limit of successive losses; more would be a cut.
const MAX_LOSSES: u32 = 4;

const MILLION: u32 = 1_000_000;

impl LinkConditions {
    /// Draws the fate of the next portion.
    pub fn fate(&self, rng: &mut Rng) -> Fate {
        if rng.u32(0..MILLION) < self.reset_per_million {
            return Fate::Reset;
        }
        let mut after = self.delay;
        if !self.jitter.is_zero() {
            after += self.jitter.mul_f64(rng.f64());
        }
        let mut losses = 0;
        while losses < MAX_LOSSES && rng.u32(0..MILLION) < self.loss_per_million {
            after += RETRANSMISSION * 2_u32.pow(losses);
            losses += 1;
        }
        Fate::Arrives { after, losses }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_conditions_change_nothing() {
        let mut rng = Rng::with_seed(1);
        let fate = LinkConditions::default().fate(&mut rng);
        assert_eq!(
            fate,
            Fate::Arrives {
                after: Duration::ZERO,
                losses: 0
            }
        );
    }

    #[test]
    fn losses_delay_by_retransmissions_and_resets_end() {
        let mut rng = Rng::with_seed(7);
        let lossy = LinkConditions {
            loss_per_million: 500_000,
            ..LinkConditions::default()
        };
        let fates: Vec<Fate> = (0..1000).map(|_| lossy.fate(&mut rng)).collect();
        let lost = fates
            .iter()
            .filter(|fate| !matches!(fate, Fate::Arrives { losses: 0, .. }))
            .count();
        assert!((400..600).contains(&lost), "{lost}");
        let twice = Fate::Arrives {
            after: RETRANSMISSION * 3,
            losses: 2,
        };
        assert!(fates.contains(&twice));
        let torn = LinkConditions {
            reset_per_million: MILLION,
            ..LinkConditions::default()
        };
        assert_eq!(torn.fate(&mut rng), Fate::Reset);
    }
}
