//! Four-letter words that this server knows, by name. `four_letter_words` answers them.

use std::str::FromStr;

/// Four-letter word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FourLetterWord {
    /// Configuration of the server.
    Conf,
    /// Connections, with their sessions and counters.
    Cons,
    /// Resets the counters of all connections.
    Crst,
    /// Sizes of the server's files.
    Dirs,
    /// Sessions, their ephemeral znodes, and connections.
    Dump,
    /// Environment of the process.
    Envi,
    /// Reply `rw` if the server accepts writes, else `ro`.
    Isro,
    /// State of the server for monitoring programs, one value per line.
    Mntr,
    /// Liveness of the server.
    Ruok,
    /// Resets the counters of the server.
    Srst,
    /// State of the server for people.
    Srvr,
    /// State of the server for people, with its clients.
    Stat,
    /// Watches by session.
    Wchc,
    /// Watches by path.
    Wchp,
    /// Number of watches.
    Wchs,
}

impl FourLetterWord {
    /// All words.
    pub const ALL: [Self; 15] = [
        Self::Conf,
        Self::Cons,
        Self::Crst,
        Self::Dirs,
        Self::Dump,
        Self::Envi,
        Self::Isro,
        Self::Mntr,
        Self::Ruok,
        Self::Srst,
        Self::Srvr,
        Self::Stat,
        Self::Wchc,
        Self::Wchp,
        Self::Wchs,
    ];

    /// Returns the word as clients send it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Conf => "conf",
            Self::Cons => "cons",
            Self::Crst => "crst",
            Self::Dirs => "dirs",
            Self::Dump => "dump",
            Self::Envi => "envi",
            Self::Isro => "isro",
            Self::Mntr => "mntr",
            Self::Ruok => "ruok",
            Self::Srst => "srst",
            Self::Srvr => "srvr",
            Self::Stat => "stat",
            Self::Wchc => "wchc",
            Self::Wchp => "wchp",
            Self::Wchs => "wchs",
        }
    }
}

/// Error for an unknown four-letter word.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no such four-letter word")]
pub struct NoSuchWord;

impl FromStr for FourLetterWord {
    type Err = NoSuchWord;

    fn from_str(text: &str) -> Result<Self, NoSuchWord> {
        Self::ALL
            .into_iter()
            .find(|word| word.as_str() == text)
            .ok_or(NoSuchWord)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_found_by_its_letters() {
        for word in FourLetterWord::ALL {
            assert_eq!(word.as_str().parse(), Ok(word));
        }
        assert_eq!("gtmk".parse::<FourLetterWord>(), Err(NoSuchWord));
    }
}
