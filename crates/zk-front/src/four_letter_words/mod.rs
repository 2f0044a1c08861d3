//! Four-letter words, which operators send with `echo srvr | nc HOST PORT`, in the formats of ZooKeeper 3.8.
//! A word takes the place of the first frame's length, which would be more than a billion bytes and therefore
//! cannot be meant.
//!
//! All answers are true of this node; lines that have no counterpart in Lockgate are omitted. The handshake
//! receives the words and sends the answers.

mod server;
mod monitor;
mod clients;
mod watches;
mod environment;
mod text;

use bytes::{Buf, BytesMut};

use crate::four_letter_word::FourLetterWord;
use crate::front::{Client, Front};

/// Answer of a node that cannot serve, to the words about its service.
const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";

/// Takes a word from the beginning of `inbox`, if it is one. Bytes behind it stay.
pub(crate) fn take(inbox: &mut BytesMut) -> Option<FourLetterWord> {
    let first = inbox.first_chunk::<4>()?;
    let word = std::str::from_utf8(first).ok()?.parse().ok()?;
    inbox.advance(4);
    Some(word)
}

/// Returns the answer to a word from `peer`. It may block on the disk and take its time, so it must run on a
/// blocking thread.
pub(crate) fn answer(front: &Front, peer: &Client, word: FourLetterWord) -> String {
    if !front.config().four_letter_words.contains(&word) {
        let word = word.as_str();
        return format!("{word} is not executed because it is not in the whitelist.\n");
    }
    let serves = front.node().not_ready().is_none();
    match word {
        // These words report it in their own way, or do not depend on it.
        FourLetterWord::Ruok => server::ruok(),
        FourLetterWord::Isro => server::isro(serves),
        FourLetterWord::Envi => environment::envi(),
        _ if !serves => NOT_SERVING.to_owned(),
        FourLetterWord::Srvr => server::srvr(front),
        FourLetterWord::Stat => server::stat(front, peer),
        FourLetterWord::Srst => server::srst(front),
        FourLetterWord::Mntr => monitor::mntr(front),
        FourLetterWord::Cons => clients::cons(front, peer),
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
    fn word_is_taken_when_complete() {
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
    fn other_bytes_are_left_in_the_inbox() {
        for bytes in [b"xxxx", b"RUOK", b"\0\0\0\x2d", b"\xff\xf4\xff\xfd"] {
            let mut inbox = BytesMut::from(&bytes[..]);
            assert_eq!(take(&mut inbox), None);
            assert_eq!(inbox[..], bytes[..]);
        }
    }
}
