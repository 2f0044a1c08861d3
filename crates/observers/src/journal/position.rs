//! Positions of events.

use std::fmt;
use std::str::FromStr;

use znode_store::Zxid;

/// First number of watches, which come after all other events of the same command.
const FIRST_WATCH: u32 = 1 << 31;

/// Position of an event: the position of its command, and a number within the command. It is the same on every node.
///
/// As a text it is `ZXID.N` for the N-th event of a command, `ZXID.wN` for the N-th watch of the request (from 0), and `ZXID` for all of
/// the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventPosition {
    zxid: Zxid,
    number: u32,
}

impl EventPosition {
    /// Returns the position after all events of the command at `zxid`.
    pub fn all_of(zxid: Zxid) -> Self {
        let number = u32::MAX;
        Self { zxid, number }
    }

    /// Returns the position of an event by its number, counted from 1, within the command at `zxid`.
    pub(crate) fn of_event(zxid: Zxid, number: u32) -> Self {
        Self { zxid, number }
    }

    /// Returns the position of a watch by its number, fired by the command at `zxid`.
    pub fn of_watch(zxid: Zxid, watch: u32) -> Self {
        let number = FIRST_WATCH.saturating_add(watch).min(u32::MAX - 1);
        Self { zxid, number }
    }

    /// Returns the position of the command.
    pub fn zxid(self) -> Zxid {
        self.zxid
    }
}

impl fmt::Display for EventPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zxid = self.zxid.0;
        match self.number {
            u32::MAX => write!(f, "{zxid}"),
            watch @ FIRST_WATCH.. => write!(f, "{zxid}.w{}", watch - FIRST_WATCH),
            number => write!(f, "{zxid}.{number}"),
        }
    }
}

/// Text that is not the position of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not the id of an event")]
pub struct NoPosition;

impl FromStr for EventPosition {
    type Err = NoPosition;

    fn from_str(text: &str) -> Result<Self, NoPosition> {
        // `parse` alone would accept a sign.
        fn number<T: FromStr>(text: &str) -> Result<T, NoPosition> {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| digits).ok_or(NoPosition)
        }
        let Some((zxid, place)) = text.split_once('.') else {
            return Ok(Self::all_of(Zxid(number(text)?)));
        };
        let zxid = Zxid(number(zxid)?);
        let is_watch = place.starts_with('w');
        let place: u32 = number(place.strip_prefix('w').unwrap_or(place))?;
        match (is_watch, place < FIRST_WATCH - 1) {
            (true, true) => Ok(Self::of_watch(zxid, place)),
            (false, true) => Ok(Self { zxid, number: place }),
            (_, false) => Err(NoPosition),
        }
    }
}
