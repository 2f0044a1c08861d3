//! What was acknowledged stays, and is in order: a write that begins after another one was acknowledged takes a later
//! position, and a linearizable read that begins then sees it.

use super::Check;

/// The last position that a client was told of.
#[derive(Default)]
pub struct Acknowledged {
    highest: u64,
    count: u64,
}

impl Acknowledged {
    /// What a call that begins now has to come after.
    pub fn floor(&self) -> u64 {
        self.highest
    }

    /// How many calls were acknowledged.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// A write was acknowledged, which began when `floor` was the last position.
    pub fn write(&mut self, floor: u64, position: u64) -> Check {
        self.count += 1;
        self.highest = self.highest.max(position);
        match position > floor {
            true => Ok(()),
            false => Err(format!(
                "a write was carried out at {position}, and one before it at {floor}"
            )),
        }
    }

    /// A call was acknowledged whose position is not told.
    pub fn other(&mut self) {
        self.count += 1;
    }

    /// A linearizable read has seen the state at `position`.
    pub fn read(&mut self, floor: u64, position: u64) -> Check {
        self.count += 1;
        self.highest = self.highest.max(position);
        self.still_there(floor, position)
    }

    /// The state at the end.
    pub fn at_end(&self, position: u64) -> Check {
        self.still_there(self.highest, position)
    }

    fn still_there(&self, acknowledged: u64, position: u64) -> Check {
        match position >= acknowledged {
            true => Ok(()),
            false => Err(format!(
                "a read has seen {position}, and {acknowledged} was acknowledged before it"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_what_was_acknowledged_is_noticed() {
        let mut acknowledged = Acknowledged::default();
        assert_eq!(acknowledged.write(0, 5), Ok(()));
        assert_eq!(acknowledged.read(5, 5), Ok(()));
        assert!(acknowledged.write(5, 5).is_err());
        assert!(acknowledged.read(5, 4).is_err());
        assert!(acknowledged.at_end(4).is_err());
    }
}
