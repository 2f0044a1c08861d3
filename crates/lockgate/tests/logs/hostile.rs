//! Hostile text: characters that could forge log lines or control a terminal.

/// Mark of hostile text in a log, escaped or not.
pub const MARK: &str = "forged-by-an-attacker";

/// Secrets that no log may contain: a bearer token, the password of a digest, and that of a session.
pub const SECRETS: [&str; 3] = [TOKEN, DIGEST_PASSWORD, SESSION_PASSWORD];
pub const TOKEN: &str = "lg_00112233445566778899aabbccddeeff_5ec7e75ec7e75ec7e75ec7e75ec7e7aa";
pub const DIGEST_PASSWORD: &str = "pass-phrase-of-alice";
/// Sixteen bytes, like ZooKeeper's passwords.
pub const SESSION_PASSWORD: &str = "sixteen-bytes-pw";

/// Returns lines that look like a new event or a JSON object, escape sequences that clear a screen or set a
/// title, and text with direction marks.
pub fn texts() -> Vec<String> {
    [
        "\n2026-11-22T00:00:00Z  INFO lock_node: MARK",
        "\r\n{\"level\":\"ERROR\",\"message\":\"MARK\"}",
        "\u{1b}[2J\u{1b}]0;MARK\u{7}",
        "\u{9b}31mMARK",
        "\u{202e}MARK\u{2066}",
        "MARK\u{2028}INFO\u{85}INFO\u{b}INFO\u{c}",
        "MARK\u{7f}\u{8}\u{8}\u{8}",
        "\"MARK\" level=ERROR \\",
    ]
    .iter()
    .map(|text| text.replace("MARK", MARK))
    .collect()
}
