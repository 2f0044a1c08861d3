//! Tokens: the secrets that prove a caller's role, their sources, and the servers to which they may be sent.

use std::fmt;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::header::HeaderValue;
use parking_lot::Mutex;
use transport_security::{TlsError, secret_text};

/// Maximum length. Tokens of nodes have 100 characters; those of a proxy may have more.
const MAX_TOKEN_BYTES: usize = 4096;

/// Prefix of the token of a node's operator.
const OPERATOR: &str = "lg_operator_";

/// Secret that proves a role in a cluster. `Debug` and errors do not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<str>);

/// Error of a token source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The text is malformed. (The error does not repeat it: it may be a token with one letter too many.)
    #[error("this is no token: letters, digits and -._~+/= without blanks, {MAX_TOKEN_BYTES} at most")]
    Malformed,
    /// The file cannot be read, or others can read it.
    #[error(transparent)]
    File(#[from] TlsError),
    /// The text in the file is malformed.
    #[error("{}: {}", .0.display(), TokenError::Malformed)]
    MalformedFile(PathBuf),
    /// The provider has no token, for this reason.
    #[error("{0}")]
    Other(String),
}

impl Token {
    /// Parses a token, without surrounding white space, because files end with a line feed.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        match text.len() {
            1..=MAX_TOKEN_BYTES if text.bytes().all(legal) => Ok(Self(text.into())),
            _ => Err(TokenError::Malformed),
        }
    }

    /// Reads a token from a file that only its owner may read: under the rules of private keys.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let text = secret_text(path)?;
        Self::parse(&text).map_err(|_| TokenError::MalformedFile(path.to_owned()))
    }

    /// Returns the secret itself, to store or send it. Never log it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns whether it is the token of a node's operator, which is valid at that node alone.
    pub fn is_operators(&self) -> bool {
        self.0.starts_with(OPERATOR)
    }

    /// Returns the header of requests.
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

/// Source of a client's token. The client calls it before every request, so it answers from memory; do slow work in a task of your own.
///
/// A [`Token`] is a provider of itself, a [`TokenFile`] provides the current text of its file, and any `Fn() -> Result<Token, TokenError>`
/// is a provider.
pub trait TokenProvider: Send + Sync {
    /// Returns the current token. Without one the client sends nothing, and retries within its patience.
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

/// Token in a file that may be replaced. The file is read again when it has changed. If the new text is no token, the earlier one stays in
/// use, and the log says why.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    cached: Mutex<CachedToken>,
}

#[derive(Debug)]
struct CachedToken {
    token: Token,
    seen: Option<Stamp>,
}

/// Identity of one version of a file.
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
    /// Reads the file for the first time.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, TokenError> {
        let path = path.into();
        // The stamp first: a change in between causes one more read, and is never missed.
        let seen = Stamp::of(&path);
        let token = Token::read(&path)?;
        let cached = Mutex::new(CachedToken { token, seen });
        Ok(Self { path, cached })
    }
}

impl TokenProvider for TokenFile {
    fn token(&self) -> Result<Token, TokenError> {
        let mut cached = self.cached.lock();
        let seen = Stamp::of(&self.path);
        if seen != cached.seen {
            // Also if it cannot be used: the log says it once, and the next change is read again.
            cached.seen = seen;
            match Token::read(&self.path) {
                Ok(token) => cached.token = token,
                Err(error) => tracing::warn!(%error, "the token that was read before stays in use"),
            }
        }
        Ok(cached.token.clone())
    }
}

/// Returns whether a server at `host:port` is on this machine, so that nobody can listen on the network path. Of names only `localhost` is
/// (RFC 6761), because others resolve to addresses that somebody else chooses.
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
    fn loopback_addresses_are_on_this_machine() {
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
