//! What a connection through the proxy suffers: the decisions, without any connection.

use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// How a link is. The default is a link that is as good as none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Weather {
    /// Everything comes so much later.
    pub delay: Duration,
    /// And up to so much more, each connection and each portion for itself: so connections overtake each other.
    pub jitter: Duration,
    /// How many of a million portions are lost on their way, and come when they are sent again.
    pub loss_per_million: u32,
    /// How many of a million portions are the last ones of their connection.
    pub reset_per_million: u32,
    /// Nothing comes.
    pub cut: bool,
}

/// What happens to one portion of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It comes so much later, and was lost so often before.
    Comes {
        /// How much later.
        after: Duration,
        /// How often it was lost.
        losses: u32,
    },
    /// The connection is reset.
    Reset,
}

/// What Linux waits at least before it sends a segment again; each further time it waits twice as long.
const RETRANSMISSION: Duration = Duration::from_millis(200);

/// More than this in a row would be a cut.
const MOST_LOSSES: u32 = 4;

const MILLION: u32 = 1_000_000;

impl Weather {
    /// What becomes of the next portion.
    pub fn fate(&self, rng: &mut Rng) -> Fate {
        if rng.u32(0..MILLION) < self.reset_per_million {
            return Fate::Reset;
        }
        let mut after = self.delay;
        if !self.jitter.is_zero() {
            after += self.jitter.mul_f64(rng.f64());
        }
        let mut losses = 0;
        while losses < MOST_LOSSES && rng.u32(0..MILLION) < self.loss_per_million {
            after += RETRANSMISSION * 2_u32.pow(losses);
            losses += 1;
        }
        Fate::Comes { after, losses }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fine_weather_changes_nothing() {
        let mut rng = Rng::with_seed(1);
        let fate = Weather::default().fate(&mut rng);
        assert_eq!(
            fate,
            Fate::Comes {
                after: Duration::ZERO,
                losses: 0
            }
        );
    }

    #[test]
    fn losses_delay_by_retransmissions_and_resets_end() {
        let mut rng = Rng::with_seed(7);
        let lossy = Weather {
            loss_per_million: 500_000,
            ..Weather::default()
        };
        let fates: Vec<Fate> = (0..1000).map(|_| lossy.fate(&mut rng)).collect();
        let lost = fates
            .iter()
            .filter(|fate| !matches!(fate, Fate::Comes { losses: 0, .. }))
            .count();
        assert!((400..600).contains(&lost), "{lost}");
        let twice = Fate::Comes {
            after: RETRANSMISSION * 3,
            losses: 2,
        };
        assert!(fates.contains(&twice));
        let torn = Weather {
            reset_per_million: MILLION,
            ..Weather::default()
        };
        assert_eq!(torn.fate(&mut rng), Fate::Reset);
    }
}
