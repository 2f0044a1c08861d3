//! Tokens: the secrets by which a cluster knows who calls, where they come from, and where they may be sent.

use std::fmt;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::header::HeaderValue;
use parking_lot::Mutex;
use transport_security::{TlsError, secret_text};

/// Tokens of nodes have 100 characters; those of a proxy in front of them may have more.
const MAX_TOKEN_BYTES: usize = 4096;

/// What the text of a node's own operator begins with.
const OPERATOR: &str = "lg_operator_";

/// A secret that stands for a role in a cluster. It is shown to nobody but servers: not by `Debug`, and not in errors.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<str>);

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The text cannot be one. (It is not repeated: it may be one after all, with a letter too much.)
    #[error("this is no token: letters, digits and -._~+/= without blanks, {MAX_TOKEN_BYTES} at most")]
    Malformed,
    /// The file is not to be had, or open to others.
    #[error(transparent)]
    File(#[from] TlsError),
    /// What is in the file cannot be a token.
    #[error("{}: {}", .0.display(), TokenError::Malformed)]
    MalformedFile(PathBuf),
    /// The program that was to give one has none.
    #[error("{0}")]
    Other(String),
}

impl Token {
    /// Takes a text, without what surrounds it: files end with a line's end.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        match text.len() {
            1..=MAX_TOKEN_BYTES if text.bytes().all(legal) => Ok(Self(text.into())),
            _ => Err(TokenError::Malformed),
        }
    }

    /// Reads it from a file that is nobody else's: under the rules of private keys.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let text = secret_text(path)?;
        Self::parse(&text).map_err(|_| TokenError::MalformedFile(path.to_owned()))
    }

    /// The secret itself, for whoever stores it or sends it. Never log it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether it is that of a node's operator, which counts at that node alone.
    pub fn is_operators(&self) -> bool {
        self.0.starts_with(OPERATOR)
    }

    /// As it is sent.
    pub(crate) fn header(&self) -> HeaderValue {
        let mut header =
            HeaderValue::try_from(format!("Bearer {}", self.0)).expect("its characters were checked");
        header.set_sensitive(true);
        header
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// Where a client's token comes from. It is asked before every request, so it answers from memory: whatever takes time
/// belongs into a task of its own, which leaves its newest token where this finds it.
///
/// A [`Token`] gives itself, a [`TokenFile`] what is in the file now, and any `Fn() -> Result<Token, TokenError>` will do.
pub trait TokenProvider: Send + Sync {
    /// The token as it is now. Without one nothing is sent, and the request is tried again for as long as the client has
    /// patience.
    fn token(&self) -> Result<Token, TokenError>;
}

impl TokenProvider for Token {
    fn token(&self) -> Result<Token, TokenError> {
        Ok(self.clone())
    }
}

impl<F: Fn() -> Result<Token, TokenError> + Send + Sync> TokenProvider for F {
    fn token(&self) -> Result<Token, TokenError> {
        self()
    }
}

/// A token in a file that may be replaced: it is read again when the file has changed. If there is no good token in it then, the
/// earlier one stays in use, and the log says why.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    token: Token,
    seen: Option<Stamp>,
}

/// What tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    mode: u32,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let about = std::fs::metadata(path).ok()?;
        Some(Self {
            inode: about.ino(),
            size: about.size(),
            mode: about.mode(),
            modified: (about.mtime(), about.mtime_nsec()),
            changed: (about.ctime(), about.ctime_nsec()),
        })
    }
}

impl TokenFile {
    /// Reads it for the first time.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, TokenError> {
        let path = path.into();
        // The stamp first: what changes in between is read once too often, and never too seldom.
        let seen = Stamp::of(&path);
        let token = Token::read(&path)?;
        let kept = Mutex::new(Kept { token, seen });
        Ok(Self { path, kept })
    }
}

impl TokenProvider for TokenFile {
    fn token(&self) -> Result<Token, TokenError> {
        let mut kept = self.kept.lock();
        let seen = Stamp::of(&self.path);
        if seen != kept.seen {
            // Also if it cannot be used: it is told once, and read again when it changes again.
            kept.seen = seen;
            match Token::read(&self.path) {
                Ok(token) => kept.token = token,
                Err(error) => tracing::warn!(%error, "the token that was read before stays in use"),
            }
        }
        Ok(kept.token.clone())
    }
}

/// Whether a server at `host:port` is on this machine, so that nobody can listen on the way to it. Of names only `localhost` is
/// (RFC 6761): what others stand for is in other people's hands.
pub fn is_on_this_machine(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    match bare.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical().is_loopback(),
        Err(_) => bare.eq_ignore_ascii_case("localhost"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_shown_to_servers_only() {
        let token = Token::parse(" lg_00_ff\n").unwrap();
        assert_eq!(token.expose(), "lg_00_ff");
        assert_eq!(format!("{token:?}"), "(secret)");
        let header = token.header();
        assert_eq!(header, "Bearer lg_00_ff");
        assert_eq!(format!("{header:?}"), "Sensitive");
        assert!(!token.is_operators() && Token::parse("lg_operator_00").unwrap().is_operators());
        let long = "x".repeat(MAX_TOKEN_BYTES + 1);
        for bad in [
            "",
            " ",
            "two words",
            "a\r\nhost: x",
            "\u{e4}",
            "\"quoted\"",
            &long,
        ] {
            let error = Token::parse(bad).unwrap_err().to_string();
            assert!(bad.trim().is_empty() || !error.contains(bad), "{error}");
        }
    }

    #[test]
    fn a_file_is_read_again_when_it_has_changed_and_refused_when_others_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let put = |text: &str, mode| {
            let new = dir.path().join("new");
            write(&new, text).unwrap();
            set_permissions(&new, Permissions::from_mode(mode)).unwrap();
            std::fs::rename(&new, &path).unwrap();
        };
        put("lg_secret_one\n", 0o644);
        let error = TokenFile::open(&path).unwrap_err().to_string();
        assert!(
            error.contains("others can read or change this secret (mode 644)"),
            "{error}"
        );
        put("lg_secret_one\n", 0o600);
        let file = TokenFile::open(&path).unwrap();
        assert_eq!(file.token().unwrap().expose(), "lg_secret_one");
        put("lg_secret_two\n", 0o640);
        assert_eq!(file.token().unwrap().expose(), "lg_secret_two");
        for (text, mode) in [("lg_secret_three\n", 0o604), ("no token\n", 0o600)] {
            put(text, mode);
            assert_eq!(file.token().unwrap().expose(), "lg_secret_two");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.token().unwrap().expose(), "lg_secret_two");
        put("lg_secret_four\n", 0o600);
        assert_eq!(file.token().unwrap().expose(), "lg_secret_four");
        assert!(!format!("{file:?}").contains("lg_secret"));
    }

    #[test]
    fn nobody_listens_on_the_way_to_this_machine() {
        for (address, is) in [
            ("127.0.0.1:7401", true),
            ("127.9.9.9:1", true),
            ("[::1]:7401", true),
            ("[::ffff:127.0.0.1]:7401", true),
            ("localhost:7401", true),
            ("LOCALHOST:7401", true),
            ("192.0.2.1:7401", false),
            ("0.0.0.0:7401", false),
            ("[2001:db8::1]:7401", false),
            ("localhost.example:7401", false),
            ("lock-1:7401", false),
        ] {
            assert_eq!(is_on_this_machine(address), is, "{address}");
        }
    }
}
