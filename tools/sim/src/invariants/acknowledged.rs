//! Acknowledged calls persist and are ordered: a write that begins after the acknowledgement of another one
//! has a later position, and a linearizable read or a refusal that begins then reflects it.

use znode_store::Applied;

use super::Check;

/// Checker of acknowledged positions, with the highest one so far.
#[derive(Default)]
pub struct Acknowledged {
    highest: u64,
    count: u64,
}

impl Acknowledged {
    /// Returns the position after which a call that begins now must take effect.
    pub fn floor(&self) -> u64 {
        self.highest
    }

    /// Returns the number of acknowledged calls.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Records an answered command that began when `floor` was the highest acknowledged position. A node may refuse a caller without rights by its
    /// state, as it answers a linearizable read.
    pub fn command(&mut self, floor: u64, applied: &Applied) -> Check {
        match applied.outcome {
            Ok(_) => self.write(floor, applied.zxid.0),
            Err(_) => self.read(floor, applied.zxid.0),
        }
    }

    /// Records an acknowledged write that began when `floor` was the highest acknowledged position.
    fn write(&mut self, floor: u64, position: u64) -> Check {
        self.count += 1;
        self.highest = self.highest.max(position);
        match position > floor {
            true => Ok(()),
            false => Err(format!(
                "a write was applied at {position}, although {floor} was acknowledged before it began"
            )),
        }
    }

    /// Records an acknowledged call without a position.
    pub fn other(&mut self) {
        self.count += 1;
    }

    /// Checks a linearizable read that reflected the state at `position`.
    pub fn read(&mut self, floor: u64, position: u64) -> Check {
        self.count += 1;
        self.highest = self.highest.max(position);
        self.check_not_lost(floor, position)
    }

    /// Checks the state at the end.
    pub fn at_end(&self, position: u64) -> Check {
        self.check_not_lost(self.highest, position)
    }

    fn check_not_lost(&self, acknowledged: u64, position: u64) -> Check {
        match position >= acknowledged {
            true => Ok(()),
            false => Err(format!(
                "a read or a refusal reflected {position}, although {acknowledged} was acknowledged before it"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_before_an_acknowledged_one_is_a_violation() {
        let mut acknowledged = Acknowledged::default();
        assert_eq!(acknowledged.write(0, 5), Ok(()));
        assert_eq!(acknowledged.read(5, 5), Ok(()));
        assert!(acknowledged.write(5, 5).is_err());
        assert!(acknowledged.read(5, 4).is_err());
        assert!(acknowledged.at_end(4).is_err());
    }
}
