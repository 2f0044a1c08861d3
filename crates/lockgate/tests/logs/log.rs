//! Log in memory, written like the program's log.

use std::io;
use std::sync::{Arc, Mutex};

use lockgate::log_writer::{EscapeStyle, EscapingWriter};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

/// Level: everything except openraft's events per entry, which contain no client text and would fill the
/// memory.
const LEVEL: &str = "trace,openraft=info";

/// Log; clones share it.
#[derive(Clone)]
pub struct Log {
    bytes: Arc<Mutex<Vec<u8>>>,
    escapes: EscapeStyle,
}

/// Writes all events of this process to both logs.
pub fn start(text: &Log, json: &Log) {
    let (text, json) = (text.clone(), json.clone());
    tracing_subscriber::registry()
        .with(LEVEL.parse::<Targets>().unwrap())
        .with(
            fmt::layer()
                .with_ansi(false)
                .with_writer(move || EscapingWriter::new(text.clone(), EscapeStyle::Text)),
        )
        .with(
            fmt::layer()
                .json()
                .with_writer(move || EscapingWriter::new(json.clone(), EscapeStyle::Json)),
        )
        .init();
}

impl Log {
    pub fn new(escapes: EscapeStyle) -> Self {
        Self {
            bytes: Arc::default(),
            escapes,
        }
    }

    pub fn written(&self) -> String {
        String::from_utf8(self.bytes.lock().unwrap().clone()).unwrap()
    }

    /// Asserts that every line is one event without control characters.
    pub fn check_lines(&self) {
        let written = self.written();
        assert!(written.ends_with('\n'));
        for line in written.split_terminator('\n') {
            let control = line.chars().find(|character| {
                character.is_control() || matches!(character, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            });
            assert_eq!(control, None, "{line:?}");
            match self.escapes {
                EscapeStyle::Text => {
                    let time = line.split(' ').next().unwrap();
                    assert!(is_time(time), "this line is no event: {line}");
                    // No line begins with the time in the hostile text.
                    assert!(!line.starts_with("2026-11-22T00:00:00Z"), "{line}");
                }
                EscapeStyle::Json => {
                    let event: serde_json::Value = serde_json::from_str(line).unwrap();
                    assert!(event["timestamp"].is_string(), "{line}");
                }
            }
        }
    }
}

/// Returns whether a text is a time with microseconds, as in the log.
fn is_time(text: &str) -> bool {
    text.len() == "2026-01-01T00:00:00.000000Z".len() && text.ends_with('Z') && text.as_bytes()[10] == b'T'
}

/// Returns the forms in which bytes may be logged.
pub fn forms(bytes: &[u8]) -> Vec<String> {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    vec![format!("{bytes:?}"), hex.to_uppercase(), hex]
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
