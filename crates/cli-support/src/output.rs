//! Output of commands on standard output and standard error, and escaping of untrusted text in it.
//!
//! Names, notes, paths and reasons are written by clients. [`shown`] makes them safe for a terminal.

use std::fmt::Write as _;
use std::io::{ErrorKind, IsTerminal as _, Write as _};

use anyhow::Context;

/// Prints a line on standard output. A closed pipe (`lockgate … | head`) is no error: the command continues.
pub fn say(text: impl AsRef<str>) -> anyhow::Result<()> {
    say_to_reader(text).map(drop)
}

/// Prints a line on standard output. Returns whether the pipe still has a reader; a command without another
/// purpose ends if not.
pub fn say_to_reader(text: impl AsRef<str>) -> anyhow::Result<bool> {
    write(format!("{}\n", text.as_ref()).as_bytes())
}

/// Writes bytes to standard output as they are. A closed pipe is no error.
pub fn say_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    write(bytes).map(drop)
}

fn write(bytes: &[u8]) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("writing to standard output"),
    }
}

/// Prints a line on standard error and ignores a closed pipe, on which `eprintln!` panics.
pub fn tell(text: impl AsRef<str>) {
    let _ = std::io::stderr()
        .lock()
        .write_all(format!("{}\n", text.as_ref()).as_bytes());
}

/// Returns an error and its causes on one line, joined by colons. Some errors show their cause in their own text; such a cause is not
/// repeated.
pub fn with_causes(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// Escapes a text from a client for a terminal: one line, on which every character is visible and has no
/// other effect. Control characters, line separators, bidirectional controls and invisible characters are
/// escaped as in Rust: `\n`, `\u{202e}`.
pub fn shown(text: &str) -> String {
    escaped(text, is_shown)
}

/// Escapes a text like [`shown`], but leaves line feeds.
pub fn shown_lines(text: &str) -> String {
    escaped(text, |character| character == '\n' || is_shown(character))
}

/// Escapes a text like [`shown`] if standard output is a terminal. Otherwise returns it unchanged, as a
/// script may pass it to another command.
pub fn shown_on_terminal(text: &str) -> String {
    match std::io::stdout().is_terminal() {
        true => shown(text),
        false => text.to_owned(),
    }
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match stays(character) {
            true => shown.push(character),
            false => write!(shown, "{}", character.escape_default()).expect("memory takes it"),
        }
    }
    shown
}

/// Returns whether a character is visible and has no effect on a terminal.
pub fn is_shown(character: char) -> bool {
    if character.is_ascii() {
        return !character.is_ascii_control();
    }
    // Unicode's default-ignorable characters, which are invisible, and its other format controls (categories
    // Cc, Cf, Zl and Zp). Arabic and Syriac signs of category Cf are visible, and not among them.
    let is_hidden = matches!(character,
        // Control characters of ISO 8859.
        '\u{80}'..='\u{9f}'
        // Soft hyphen, grapheme joiner.
        | '\u{ad}' | '\u{34f}'
        // Bidirectional controls: they make a line look like another one.
        | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        // Separators of lines and of paragraphs.
        | '\u{2028}' | '\u{2029}'
        // Spaces without width, joiners, invisible operators, deprecated format controls, marks of byte order.
        | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{feff}'
        // Fillers and vowels without a shape: Hangul, Khmer, Mongolian.
        | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        // Variation selectors, and characters that are reserved for the like.
        | '\u{fe00}'..='\u{fe0f}' | '\u{fff0}'..='\u{fff8}' | '\u{e0000}'..='\u{e0fff}'
        // Annotations; format controls of hieroglyphs, shorthand and music.
        | '\u{fff9}'..='\u{fffb}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}');
    !is_hidden
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_not_repeated() {
        let cause = std::io::Error::other("no such certificate");
        let error = anyhow::Error::new(cause).context("TLS: a.crt: no such certificate");
        assert_eq!(with_causes(&error), "TLS: a.crt: no such certificate");
        let error = error.context("the node does not start");
        assert_eq!(
            with_causes(&error),
            "the node does not start: TLS: a.crt: no such certificate"
        );
    }

    #[test]
    fn visible_text_is_unchanged() {
        for text in [
            "",
            "orders/42",
            "a\\nb 'c' \"d\"",
            "Grüße, 世界 🔒",
            "नमस्ते",
            "שלום",
            "e\u{301}",
        ] {
            assert_eq!(shown(text), text);
            assert_eq!(shown_lines(text), text);
        }
    }

    #[test]
    fn characters_that_move_break_or_hide_text_are_escaped() {
        for (text, expected) in [
            ("a\n\u{1b}[2Jb", "a\\n\\u{1b}[2Jb"),
            ("\u{7f}\u{9b}", "\\u{7f}\\u{9b}"),
            ("x\u{202e}txt", "x\\u{202e}txt"),
            ("\u{2066}a\u{2069}", "\\u{2066}a\\u{2069}"),
            ("one\u{2028}two\u{2029}", "one\\u{2028}two\\u{2029}"),
            ("a\u{ad}b\u{200b}c\u{feff}", "a\\u{ad}b\\u{200b}c\\u{feff}"),
            (
                "\u{3164}\u{fe0f}\u{e0041}\u{e0100}",
                "\\u{3164}\\u{fe0f}\\u{e0041}\\u{e0100}",
            ),
        ] {
            assert_eq!(shown(text), expected);
        }
        assert_eq!(shown_lines("a\nb\r\u{2028}"), "a\nb\\r\\u{2028}");
    }
}
