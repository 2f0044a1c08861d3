//! Secret part of a token: generated, formatted, parsed, compared. Only the token's owner sees it, and only
//! once.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use znode_store::{TokenHash, TokenId};

/// Prefix of all tokens, so that scanners find them where they should not be, such as in logs and
/// repositories.
const PREFIX: &str = "lg_";

/// Text in place of the id in an operator token, which is not part of the cluster's state.
const OPERATOR: &str = "operator";

/// Length of a secret in bytes. An attacker cannot guess 256 random bits, however fast the hash is.
const SECRET_BYTES: usize = 32;

/// Secret of 256 random bits.
#[derive(Clone)]
pub struct Secret([u8; SECRET_BYTES]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl Secret {
    /// Generates a random secret.
    pub fn draw() -> Self {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes).expect("the operating system has random numbers");
        Self(bytes)
    }

    /// Returns the hash, which is all that the cluster stores of the secret.
    pub fn hash(&self) -> TokenHash {
        TokenHash(Sha256::digest(self.0).into())
    }

    /// Returns whether the secret has this hash. The comparison takes the same time wherever they differ.
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

/// Token as its owner has it: `lg_`, its id, and its secret.
#[derive(Debug, Clone)]
pub enum TokenText {
    /// Access token of the cluster.
    Of(TokenId, Secret),
    /// Operator token of one node.
    Operator(Secret),
}

impl TokenText {
    /// Parses a token. A malformed one yields `None` without a reason, so that nothing of a secret is
    /// disclosed.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.rsplit_once('_')?;
        let secret = Secret::parse(secret)?;
        match id {
            OPERATOR => Some(Self::Operator(secret)),
            id => Some(Self::Of(id.parse().ok()?, secret)),
        }
    }

    /// Returns a description of the token without its secret.
    pub fn name(&self) -> String {
        match self {
            Self::Of(id, _) => format!("token {id}"),
            Self::Operator(_) => "an operator's token".to_owned(),
        }
    }

    /// Generates a token for the cluster: its id, its hash, and its text.
    pub fn draw() -> (TokenId, TokenHash, String) {
        let mut id = [0; 16];
        getrandom::fill(&mut id).expect("the operating system has random numbers");
        let (id, secret) = (TokenId(id), Secret::draw());
        let text = format!("{PREFIX}{id}_{}", secret.text());
        (id, secret.hash(), text)
    }
}

/// Operator token of a node, as the node stores it: a hash. Every process that can read the node's own files
/// has the token. No part of this value is secret, and none is in the cluster's state.
///
/// A client that presents the token to this node has all permissions there, including securing the cluster.
/// It also restores access when every administrator's token is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorToken(TokenHash);

impl OperatorToken {
    /// Name of the file in a node's data directory that contains the token while the node runs.
    pub const FILE_NAME: &'static str = "operator.token";

    /// Generates an operator token. The text (`lg_operator_…`) is for a file that only the operator can read.
    pub fn draw() -> (Self, String) {
        let secret = Secret::draw();
        let text = format!("{PREFIX}{OPERATOR}_{}", secret.text());
        (Self(secret.hash()), text)
    }

    /// Parses the text of an operator token; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        match TokenText::parse(text)? {
            TokenText::Operator(secret) => Some(Self(secret.hash())),
            TokenText::Of(..) => None,
        }
    }

    /// Returns whether this is the token's secret.
    pub fn is(&self, secret: &Secret) -> bool {
        secret.has(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_tokens_parse() {
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
    fn malformed_tokens_are_rejected() {
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
    fn changed_secret_does_not_match_the_hash() {
        let secret = Secret::draw();
        assert!(secret.has(&secret.hash()));
        for at in 0..SECRET_BYTES {
            let mut other = secret.clone();
            other.0[at] ^= 1;
            assert!(!other.has(&secret.hash()), "byte {at}");
        }
        // SHA-256 of 32 zero bytes: the stored hash is the plain SHA-256 of FIPS 180-2.
        let zeros = Secret([0; SECRET_BYTES]);
        assert_eq!(zeros.hash().0[..4], [0x66, 0x68, 0x7a, 0xad]);
    }
}
