//! Documents of the lease routes, and the text of a lease.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use znode_store::{ContenderState, LeaseKey, Password, RequestId};

use super::openapi::words;
use super::problem::{Problem, mode_word};
use crate::locks::LeaseStatus;

/// Prefix of the text of every lease.
const LEASE_PREFIX: &str = "ls_";

/// Hexadecimal digits of the password of a lease.
const PASSWORD_DIGITS: usize = 32;

/// Returns the text of a lease: its session and its password.
pub fn lease_text(key: &LeaseKey) -> String {
    let password = u128::from_be_bytes(key.password.0);
    format!("{LEASE_PREFIX}{}_{password:032x}", key.session)
}

/// Parses the text of a lease. A malformed one is reported as an unknown lease.
pub fn lease_key(text: &str) -> Result<LeaseKey, Problem> {
    let key = || {
        let (session, password) = text.strip_prefix(LEASE_PREFIX)?.split_once('_')?;
        let is_hexadecimal = password
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_password = password.len() == PASSWORD_DIGITS && is_hexadecimal;
        let password = u128::from_str_radix(password, 16).ok().filter(|_| is_password)?;
        Some(LeaseKey {
            session: session.parse().ok()?,
            password: Password(password.to_be_bytes()),
        })
    };
    key().ok_or_else(|| znode_store::Refusal::LeaseExpired.into())
}

/// Body of `POST /v1/leases/{lease}/renew`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewBody {
    /// New time to live. Absent: the old one.
    #[schema(value_type = Option<words::LeaseTtlMs>)]
    pub ttl_ms: Option<u64>,
    /// Id of the request, for one that changes the time to live: without it a copy that arrives late takes a later change back.
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
}

/// A lease.
#[derive(Serialize, ToSchema)]
pub struct LeaseAnswer<'a> {
    #[schema(value_type = words::LockName)]
    lock: &'a str,
    #[schema(value_type = words::Holder)]
    holder: &'a str,
    #[schema(value_type = words::Standing)]
    state: &'static str,
    /// Mode of the hold; `null` while the lease waits.
    #[schema(required)]
    mode: Option<&'static str>,
    /// Fencing token of the hold; `null` while the lease waits.
    #[schema(value_type = Option<words::FencingToken>, required)]
    fencing_token: Option<u64>,
    #[schema(value_type = words::Note)]
    note: &'a str,
    /// Time to live without a renewal.
    ttl_ms: u32,
    /// Time until the lease ends unless it is renewed. `null` if this node does not lead, for only the leader knows it; a
    /// renewal always has it.
    #[schema(required)]
    expires_in_ms: Option<u64>,
}

impl<'a> From<&'a LeaseStatus> for LeaseAnswer<'a> {
    fn from(LeaseStatus { view, expires_in }: &'a LeaseStatus) -> Self {
        let (holder, grant) = match &view.contender {
            ContenderState::Holds(grant) | ContenderState::Upgrades(grant) => (&grant.holder, Some(grant)),
            ContenderState::Waits(place) => (&place.holder, None),
        };
        Self {
            lock: view.lock.as_str(),
            holder,
            state: if grant.is_some() { "holds" } else { "waits" },
            mode: grant.map(|grant| mode_word(grant.mode)),
            fencing_token: grant.map(|grant| grant.fencing_token.0),
            note: &view.note,
            ttl_ms: view.timeout_ms,
            expires_in_ms: expires_in.map(|time| time.as_millis() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use znode_store::SessionId;

    use super::*;
    use crate::http::problem::Code;

    #[test]
    fn text_of_a_lease_is_read_back_and_others_are_unknown_leases() {
        let key = LeaseKey {
            session: SessionId(0x1f),
            password: Password([7; 16]),
        };
        let text = lease_text(&key);
        assert_eq!(text, format!("ls_000000000000001f_{}", "07".repeat(16)));
        assert_eq!(lease_key(&text).unwrap(), key);
        let upper = text.replace("1f_", "1F_");
        let longer = format!("{text}0");
        let plus = format!("ls_000000000000001f_+{}", "0".repeat(31));
        for other in [
            "",
            "ls_",
            &text[3..],
            &text[..text.len() - 1],
            &upper,
            &longer,
            &plus,
        ] {
            assert_eq!(
                lease_key(other).unwrap_err().code(),
                Code::LeaseExpired,
                "{other}"
            );
        }
    }
}
