//! Writer of the log: each event is one line, and no line controls the terminal that shows it.
//!
//! Names, notes, paths and certificates contain text of other people, and are logged at many places. All
//! lines pass this one writer, which escapes every invisible character; escaping at each place would be
//! forgotten at the next one. Colours are escape sequences too, so the log has none.

use std::fmt::Write as _;
use std::io;

use cli_support::output::is_shown;

/// Syntax of an escape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EscapeStyle {
    /// Rust syntax: `\n`, `\u{202e}`.
    Text,
    /// JSON syntax: `\u000a`, `\u202e`. Characters that JSON itself requires to be escaped are escaped
    /// before.
    Json,
}

/// Writer of whole lines, each in one call of `write`.
#[derive(Debug)]
pub struct EscapingWriter<W> {
    inner: W,
    escapes: EscapeStyle,
}

impl<W> EscapingWriter<W> {
    /// Creates a writer that writes to `to`.
    pub fn new(to: W, escapes: EscapeStyle) -> Self {
        Self { inner: to, escapes }
    }
}

impl<W: io::Write> io::Write for EscapingWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match escape(line, self.escapes) {
            None => self.inner.write_all(line)?,
            Some(escaped) => self.inner.write_all(escaped.as_bytes())?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Returns the line with escapes; `None` if it needs none.
fn escape(line: &[u8], escapes: EscapeStyle) -> Option<String> {
    let (text, end) = match line.strip_suffix(b"\n") {
        Some(text) => (text, "\n"),
        None => (line, ""),
    };
    // Nearly every line is plain ASCII.
    if text.iter().all(|byte| (b' '..=b'~').contains(byte)) {
        return None;
    }
    let text = String::from_utf8_lossy(text);
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match (is_shown(character), escapes) {
            (true, _) => escaped.push(character),
            (false, EscapeStyle::Text) => escaped.extend(character.escape_default()),
            (false, EscapeStyle::Json) => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    write!(escaped, "\\u{unit:04x}").expect("writing to a String cannot fail");
                }
            }
        }
    }
    escaped.push_str(end);
    Some(escaped)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn written(line: &str, escapes: EscapeStyle) -> String {
        let mut log = Vec::new();
        EscapingWriter::new(&mut log, escapes)
            .write_all(line.as_bytes())
            .unwrap();
        String::from_utf8(log).unwrap()
    }

    #[test]
    fn visible_text_is_unchanged() {
        for line in ["INFO all is well\n", "INFO Grüße, 世界 🔒\n", "no end", "\n", ""] {
            assert_eq!(written(line, EscapeStyle::Text), line);
            assert_eq!(written(line, EscapeStyle::Json), line);
        }
    }

    #[test]
    fn control_characters_are_escaped() {
        for (line, text, json) in [
            ("a\nb\n", "a\\nb\n", "a\\u000ab\n"),
            ("a\r\n", "a\\r\n", "a\\u000d\n"),
            ("\x1b[2J", "\\u{1b}[2J", "\\u001b[2J"),
            ("\u{9b}31m", "\\u{9b}31m", "\\u009b31m"),
            ("\u{202e}txt", "\\u{202e}txt", "\\u202etxt"),
            ("\u{7f}\u{0}", "\\u{7f}\\u{0}", "\\u007f\\u0000"),
            ("x\u{2028}y", "x\\u{2028}y", "x\\u2028y"),
            ("\u{e0041}", "\\u{e0041}", "\\udb40\\udc41"),
        ] {
            assert_eq!(written(line, EscapeStyle::Text), text);
            assert_eq!(written(line, EscapeStyle::Json), json);
        }
    }

    #[test]
    fn json_escapes_are_valid_json() {
        let line = format!("\"{}\"", "\u{7f}\u{9b}\u{202e}\u{2028}\u{e0041}");
        let read: String = serde_json::from_str(&written(&line, EscapeStyle::Json)).unwrap();
        assert_eq!(read, "\u{7f}\u{9b}\u{202e}\u{2028}\u{e0041}");
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        let mut log = Vec::new();
        EscapingWriter::new(&mut log, EscapeStyle::Text)
            .write_all(b"a\xffb\n")
            .unwrap();
        assert_eq!(log, "a\u{fffd}b\n".as_bytes());
    }
}
