//! Four-letter words: what operators ask with `echo srvr | nc HOST PORT`, in the formats of ZooKeeper 3.8. A word stands in the
//! place of a first frame, whose length it can never be: read as one, it is more than a billion bytes.
//!
//! Everything that is said is true of this node: a line for which Lockgate has nothing is not there. How a word comes in,
//! and its answer goes out, is the handshake's matter.

mod server;
mod monitor;
mod clients;
mod watches;
mod environment;
mod text;

use std::str::FromStr;

use bytes::{Buf, BytesMut};

use crate::front::{Client, Front};

/// What a node says that cannot serve now, to the words that are about what it serves.
const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";

/// A word that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FourLetterWord {
    /// With what the node was started.
    Conf,
    /// Its clients, with what was counted for each.
    Cons,
    /// Begins to count anew for each client.
    Crst,
    /// How large its files are.
    Dirs,
    /// Sessions, their ephemeral znodes, and connections.
    Dump,
    /// Where it runs.
    Envi,
    /// Whether writes are carried out here.
    Isro,
    /// What there is to watch over, a line for each thing.
    Mntr,
    /// Whether anybody is there.
    Ruok,
    /// Begins to count anew for the server.
    Srst,
    /// The server, for people.
    Srvr,
    /// The same, with its clients.
    Stat,
    /// Watches, by session.
    Wchc,
    /// Watches, by path.
    Wchp,
    /// How many watches there are.
    Wchs,
}

impl FourLetterWord {
    /// All of them.
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

    /// As it is asked.
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

/// There is no such word.
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

/// Takes a word, if that is what has come. Whatever follows it is left.
pub(crate) fn take(inbox: &mut BytesMut) -> Option<FourLetterWord> {
    let first = inbox.first_chunk::<4>()?;
    let word = std::str::from_utf8(first).ok()?.parse().ok()?;
    inbox.advance(4);
    Some(word)
}

/// What is said to a word that `asker` has sent. It may wait for the disk, and take its time: it belongs on a thread where
/// nobody waits for it.
pub(crate) fn answer(front: &Front, asker: &Client, word: FourLetterWord) -> String {
    if !front.config().four_letter_words.contains(&word) {
        let word = word.as_str();
        return format!("{word} is not executed because it is not in the whitelist.\n");
    }
    let serves = front.node().not_ready().is_none();
    match word {
        // These say so in their own way, or do not depend on it.
        FourLetterWord::Ruok => server::ruok(),
        FourLetterWord::Isro => server::isro(serves),
        FourLetterWord::Envi => environment::envi(),
        _ if !serves => NOT_SERVING.to_owned(),
        FourLetterWord::Srvr => server::srvr(front),
        FourLetterWord::Stat => server::stat(front, asker),
        FourLetterWord::Srst => server::srst(front),
        FourLetterWord::Mntr => monitor::mntr(front),
        FourLetterWord::Cons => clients::cons(front, asker),
        FourLetterWord::Crst => clients::crst(front),
        FourLetterWord::Dump => clients::dump(front),
        FourLetterWord::Wchs => watches::wchs(front),
        FourLetterWord::Wchc => watches::wchc(front),
        FourLetterWord::Wchp => watches::wchp(front),
        FourLetterWord::Conf => environment::conf(front),
        FourLetterWord::Dirs => environment::dirs(front),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_taken_when_all_of_it_is_there() {
        let mut inbox = BytesMut::new();
        for (letter, expected) in [
            ("s", None),
            ("r", None),
            ("v", None),
            ("r\n", Some(FourLetterWord::Srvr)),
        ] {
            inbox.extend_from_slice(letter.as_bytes());
            assert_eq!(take(&mut inbox), expected);
        }
        assert_eq!(inbox[..], *b"\n");
    }

    #[test]
    fn what_is_no_word_stays_where_it_is() {
        for bytes in [b"xxxx", b"RUOK", b"\0\0\0\x2d", b"\xff\xf4\xff\xfd"] {
            let mut inbox = BytesMut::from(&bytes[..]);
            assert_eq!(take(&mut inbox), None);
            assert_eq!(inbox[..], bytes[..]);
        }
    }

    #[test]
    fn every_word_is_found_by_its_letters() {
        for word in FourLetterWord::ALL {
            assert_eq!(word.as_str().parse(), Ok(word));
        }
        assert_eq!("gtmk".parse::<FourLetterWord>(), Err(NoSuchWord));
    }
}
