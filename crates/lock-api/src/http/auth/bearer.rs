//! Token of a request, from the header `Authorization` alone: as `Bearer …`, or as the password of `Basic …`, for programs that know
//! only user and password. The certificate belongs to the connection.

use std::borrow::Cow;

use access_token::TokenText;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::super::problem::{Code, Problem};

/// Scheme of the header `Authorization` that carries a token (RFC 6750).
const BEARER: &str = "bearer";

/// Scheme with a token as its password (RFC 7617). The user name has no meaning.
const BASIC: &str = "basic";

/// Returns the token of a request, or `None` without one.
///
/// A malformed token is rejected in an open cluster as well: its caller believes to be authenticated, and an anonymous
/// request would not do what the caller meant.
pub fn shown(headers: &HeaderMap) -> Result<Option<TokenText>, Problem> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let Some(first) = all.next() else {
        return Ok(None);
    };
    if all.next().is_some() {
        return Err(refused("duplicate Authorization header"));
    }
    let text = first
        .to_str()
        .map_err(|_| refused("the Authorization header is not text"))?;
    let (scheme, token) = text.trim().split_once(' ').unwrap_or((text, ""));
    let token = match scheme {
        _ if scheme.eq_ignore_ascii_case(BEARER) => Cow::Borrowed(token.trim()),
        _ if scheme.eq_ignore_ascii_case(BASIC) => Cow::Owned(password(token.trim())),
        _ => return Err(refused("a token is sent as `Authorization: Bearer TOKEN`")),
    };
    match TokenText::parse(&token) {
        Some(token) => Ok(Some(token)),
        None => Err(refused("the text in the Authorization header is not a token")),
    }
}

/// Returns the password of `user:password` in base64. A malformed text has none, which is no token either.
fn password(credentials: &str) -> String {
    let decoded = BASE64.decode(credentials).unwrap_or_default();
    let text = String::from_utf8(decoded).unwrap_or_default();
    let (_, password) = text.split_once(':').unwrap_or_default();
    password.to_owned()
}

fn refused(why: &str) -> Problem {
    Problem::new(Code::Unauthenticated, why)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(values: &[&[u8]]) -> HeaderMap {
        let value = |value: &&[u8]| (AUTHORIZATION, HeaderValue::from_bytes(value).unwrap());
        values.iter().map(value).collect()
    }

    #[test]
    fn the_scheme_is_one_word_in_any_case() {
        let (_, _, token) = TokenText::draw();
        for good in ["Bearer ", "bearer ", "BEARER  ", "  bEaReR "] {
            let headers = headers(&[format!("{good}{token}").as_bytes()]);
            assert!(matches!(shown(&headers), Ok(Some(TokenText::Of(..)))), "{good:?}");
        }
        assert!(matches!(shown(&HeaderMap::new()), Ok(None)));
    }

    #[test]
    fn the_password_of_basic_credentials_is_a_token() {
        let (_, _, token) = TokenText::draw();
        for user in ["", "terraform"] {
            let credentials = BASE64.encode(format!("{user}:{token}"));
            for scheme in ["Basic", "basic"] {
                let headers = headers(&[format!("{scheme} {credentials}").as_bytes()]);
                assert!(matches!(shown(&headers), Ok(Some(TokenText::Of(..)))), "{user}");
            }
        }
    }

    #[test]
    fn other_credentials_are_rejected_and_not_echoed() {
        let (_, _, token) = TokenText::draw();
        let good = format!("Bearer {token}");
        for bad in [
            &[&b"Basic dXNlcjpwYXNz"[..]][..],
            &[b""],
            &[b"Bearer"],
            &[b"Bearer "],
            &[b"Bearer x"],
            &[b"Basic"],
            &[b"Basic x"],
            &[format!("Basic {token}").as_bytes()],
            &[format!("Basic {}", BASE64.encode(token.as_bytes())).as_bytes()],
            &[token.as_bytes()],
            &[b"Bearer \xff"],
            &[format!("Bearer {token} {token}").as_bytes()],
            &[good.as_bytes(), good.as_bytes()],
        ] {
            let problem = shown(&headers(bad)).expect_err("it is no token");
            assert_eq!(problem.code(), Code::Unauthenticated);
            assert!(!format!("{problem:?}").contains(&token[..20]), "{problem:?}");
        }
    }
}
