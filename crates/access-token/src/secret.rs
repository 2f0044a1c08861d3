//! The secret part of a token: drawn, written, read, compared. It is shown to nobody but its owner, and to its owner once.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use znode_store::{TokenHash, TokenId};

/// What all tokens begin with, so that they are found where they should not be: in logs, in repositories.
const PREFIX: &str = "lg_";

/// What stands where an id would in the token of an operator, which is no token of the cluster's.
const OPERATOR: &str = "operator";

/// The bytes of a secret: nobody finds 256 random bits by trying, however fast the hash is.
const SECRET_BYTES: usize = 32;

/// 256 random bits.
#[derive(Clone)]
pub struct Secret([u8; SECRET_BYTES]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl Secret {
    /// Draws one.
    pub fn draw() -> Self {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes).expect("the operating system has random numbers");
        Self(bytes)
    }

    /// What is known of it where it is not known.
    pub fn hash(&self) -> TokenHash {
        TokenHash(Sha256::digest(self.0).into())
    }

    /// Whether it is the one with this hash. It takes the same time whatever differs.
    pub fn has(&self, hash: &TokenHash) -> bool {
        self.hash().0.ct_eq(&hash.0).into()
    }

    fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        let mut bytes = [0; SECRET_BYTES];
        if digits.len() != 2 * SECRET_BYTES {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(bytes))
    }

    fn text(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// A token as its owner has it: `lg_`, its id, and its secret.
#[derive(Debug, Clone)]
pub enum TokenText {
    /// One of the cluster's.
    Of(TokenId, Secret),
    /// The operator's of one node.
    Operator(Secret),
}

impl TokenText {
    /// Reads it. What is none is not told more about.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.rsplit_once('_')?;
        let secret = Secret::parse(secret)?;
        match id {
            OPERATOR => Some(Self::Operator(secret)),
            id => Some(Self::Of(id.parse().ok()?, secret)),
        }
    }

    /// What it says it is, without its secret.
    pub fn name(&self) -> String {
        match self {
            Self::Of(id, _) => format!("token {id}"),
            Self::Operator(_) => "an operator's token".to_owned(),
        }
    }

    /// Draws one for the cluster.
    pub fn draw() -> (TokenId, TokenHash, String) {
        let mut id = [0; 16];
        getrandom::fill(&mut id).expect("the operating system has random numbers");
        let (id, secret) = (TokenId(id), Secret::draw());
        let text = format!("{PREFIX}{id}_{}", secret.text());
        (id, secret.hash(), text)
    }
}

/// What a node knows of its operator's token: whoever can read the node's own files has it. Nothing of it is secret, or in
/// the cluster's state.
///
/// Whoever shows it to this node may do everything there, also secure the cluster, and is how one gets back in when every
/// administrator's token is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorToken(TokenHash);

impl OperatorToken {
    /// Name of the file in a node's data directory that has the token while the node runs.
    pub const FILE_NAME: &'static str = "operator.token";

    /// Draws one; the text (`lg_operator_…`) is for a file that nobody but the operator can read.
    pub fn draw() -> (Self, String) {
        let secret = Secret::draw();
        let text = format!("{PREFIX}{OPERATOR}_{}", secret.text());
        (Self(secret.hash()), text)
    }

    /// The one with this text; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        match TokenText::parse(text)? {
            TokenText::Operator(secret) => Some(Self(secret.hash())),
            TokenText::Of(..) => None,
        }
    }

    /// Whether this is its secret.
    pub fn is(&self, secret: &Secret) -> bool {
        secret.has(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_is_read_again() {
        let (id, hash, text) = TokenText::draw();
        assert_eq!(text.len(), 3 + 32 + 1 + 64, "{text}");
        match TokenText::parse(&text) {
            Some(TokenText::Of(own, secret)) => assert!(own == id && secret.has(&hash)),
            other => panic!("{other:?}"),
        }
        let (operator, text) = OperatorToken::draw();
        assert_eq!(OperatorToken::parse(&text), Some(operator.clone()));
        match TokenText::parse(&text) {
            Some(TokenText::Operator(secret)) => assert!(operator.is(&secret)),
            other => panic!("{other:?}"),
        }
        let (other, _) = OperatorToken::draw();
        assert_ne!(operator, other);
    }

    #[test]
    fn what_is_no_token_is_none() {
        let (_, _, good) = TokenText::draw();
        let longer = format!("{good}0");
        let upper = good.to_uppercase();
        let no_digit = format!("{}g", &good[..good.len() - 1]);
        for bad in [
            "",
            "lg_",
            "lg__",
            "lg_operator_",
            &good[..good.len() - 1],
            &good[3..],
            &longer,
            &upper,
            &no_digit,
            &format!(" {good}"),
            &good.replace("lg_", "lg_0"),
            &"é".repeat(50),
        ] {
            assert!(TokenText::parse(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let (_, _, text) = TokenText::draw();
        let (_, secret) = text.rsplit_once('_').unwrap();
        let shown = format!("{:?}", TokenText::parse(&text));
        assert!(!shown.contains(&secret[..8]), "{shown}");
    }

    #[test]
    fn only_the_same_secret_has_the_hash() {
        let secret = Secret::draw();
        assert!(secret.has(&secret.hash()));
        for at in 0..SECRET_BYTES {
            let mut other = secret.clone();
            other.0[at] ^= 1;
            assert!(!other.has(&secret.hash()), "byte {at}");
        }
        // FIPS 180-2's own example of nothing: what is stored is the plain SHA-256.
        let zeros = Secret([0; SECRET_BYTES]);
        assert_eq!(zeros.hash().0[..4], [0x66, 0x68, 0x7a, 0xad]);
    }
}
