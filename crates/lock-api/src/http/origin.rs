//! Checks of the `Host` and `Origin` of requests. They prevent a page of another site, in the browser of a user who
//! can reach this node, from calling it. Only browsers send an `Origin`, so for all other callers only the name is
//! checked.
//!
//! A page cannot set its browser's `Host`, `Origin` and `Sec-Fetch-Site`. An unknown host name belongs to a page whose
//! owner has pointed that name to this node (DNS rebinding); a foreign origin is a page that calls across sites. The
//! headers of proxies (`X-Forwarded-Host`, `Forwarded`) can be forged by any caller, and this server ignores them.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::extract::Request;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_TYPE, HOST, ORIGIN, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use transport_security::ServerTls;

use super::Api;
use super::http_request_id::HttpRequestId;
use super::problem::{Code, Problem};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Host names that this node accepts, beside those that it knows by itself: addresses, `localhost`, and the hosts of
/// the members.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownNames {
    /// Other hosts: `locks.example`, `*.locks.example` for all names with one more part, or `*` for any.
    pub hosts: Vec<String>,
    /// Origins of pages that may call, as browsers send them: `https://console.example`. They are for a proxy that
    /// serves this node under another name. This server never allows a page to read answers across sites.
    pub origins: Vec<String>,
    /// Certificate of this node; the names in it are accepted.
    pub certificate: Option<ServerTls>,
}

/// Adds security headers to every answer: no cache, no content sniffing, no frame, and no referrer. A page adds a
/// policy for everything else.
pub fn set_security_headers(headers: &mut HeaderMap) {
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let is_page = headers
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
    if is_page {
        headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    }
}

/// Checks that a request may continue to its route.
pub fn check(api: &Api, request: &Request) -> Result<(), Problem> {
    judge(api, request).inspect_err(|problem| {
        // Logged as debug, because a page that calls again and again would otherwise fill the log.
        tracing::debug!(
            refused = problem.detail(),
            http_request = HttpRequestId::current(),
            "http: rejected a request"
        );
    })
}

fn judge(api: &Api, request: &Request) -> Result<(), Problem> {
    let config = api.config();
    if is_plain(request, &config.names) {
        return Ok(());
    }
    let headers = request.headers();
    let host = called_as(request)?;
    if let Some(host) = &host
        && !config.names.know(host.host())
        && !is_members(api, host.host())
    {
        return Err(wrong_host(host.as_str()));
    }
    if let Some(origin) = headers.get(ORIGIN) {
        let origin = origin.to_str().map_err(|_| foreign("that is no text"))?;
        let listed = &config.names.origins;
        if listed.iter().any(|listed| listed.eq_ignore_ascii_case(origin)) {
            return Ok(());
        }
        if !is_own(origin, host.as_ref()) {
            return Err(foreign(origin));
        }
    }
    match headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        // A user follows a link to this node's own page.
        Some(_) if request.method() == Method::GET && has(headers, &SEC_FETCH_MODE, b"navigate") => Ok(()),
        Some(_) => Err(foreign("of another site")),
    }
}

/// Returns whether a request is of the most frequent kind: no headers of a browser, and one known host in plain form.
/// This is only a shortcut: [`judge`] decides about all others.
fn is_plain(request: &Request, names: &KnownNames) -> bool {
    let headers = request.headers();
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    if request.uri().authority().is_some()
        || headers.contains_key(ORIGIN)
        || headers.contains_key(SEC_FETCH_SITE)
    {
        return false;
    }
    let Ok(host) = host.to_str() else { return false };
    let name = match host.split_once(':') {
        // A port has no sign, although Rust parses numbers with one.
        Some((name, port)) if !port.starts_with('+') && port.parse::<u16>().is_ok() => name,
        Some(_) => return false,
        None => host,
    };
    let is_simple = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-';
    !name.is_empty() && name.bytes().all(is_simple) && names.know(name)
}

fn has(headers: &HeaderMap, name: &HeaderName, value: &[u8]) -> bool {
    headers.get(name).is_some_and(|header| header.as_bytes() == value)
}

/// Returns the host name in a request. `None`: the request has none, as from HTTP/1.0 programs but never from browsers.
fn called_as(request: &Request) -> Result<Option<Authority>, Problem> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (None, _) => None,
        (Some(host), None) => Some(parse_host(host)?),
        (Some(_), Some(_)) => return Err(Problem::bad_request("duplicate Host header")),
    };
    match (request.uri().authority(), host) {
        // A request in the form for proxies has the host in its address, which takes precedence over the header (RFC
        // 9112, 3.2.2). Both must be valid.
        (Some(inside), Some(host)) if *inside != host => Err(wrong_host(inside.as_str())),
        (Some(inside), _) => Ok(Some(inside.clone())),
        (None, host) => Ok(host),
    }
}

fn parse_host(host: &HeaderValue) -> Result<Authority, Problem> {
    let bad = || Problem::bad_request("the Host is not of the form name:port");
    let authority = Authority::try_from(host.as_bytes()).map_err(|_| bad())?;
    // The type accepts an invalid port and user information before the host.
    let behind = authority
        .as_str()
        .strip_prefix(authority.host())
        .ok_or_else(bad)?;
    match behind.is_empty() || authority.port_u16().is_some() {
        true => Ok(authority),
        false => Err(bad()),
    }
}

fn is_members(api: &Api, host: &str) -> bool {
    let host = plain(host);
    let same = |place: &str| {
        place
            .rsplit_once(':')
            .is_some_and(|(name, _)| plain(name) == host)
    };
    let configured = api.node.config().raft.members.values();
    configured.map(|member| &member.http).any(|http| same(http))
        || api.node.status().members.iter().any(|member| same(&member.http))
}

/// Returns whether a page comes from this node itself: from the host name and port of the request.
fn is_own(origin: &str, host: Option<&Authority>) -> bool {
    let Some(host) = host else { return false };
    let (place, usual_port) = match origin.split_once("://") {
        Some(("http", place)) => (place, 80),
        Some(("https", place)) => (place, 443),
        // For example `null`, from a page that hides its origin.
        _ => return false,
    };
    let Ok(page) = Authority::try_from(place) else {
        return false;
    };
    let port = |authority: &Authority| authority.port_u16().unwrap_or(usual_port);
    plain(page.host()) == plain(host.host()) && port(&page) == port(host)
}

/// Normalizes a host name for comparison: in lower case, and without a trailing dot.
fn plain(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

impl KnownNames {
    /// Returns whether a host may have this name, independent of the members' names.
    fn know(&self, host: &str) -> bool {
        // Most callers use a node's address, which is compared without normalizing the name.
        let bare = host.strip_suffix('.').unwrap_or(host);
        if is_address(bare) || bare.eq_ignore_ascii_case("localhost") {
            return true;
        }
        let host = plain(host);
        let listed = |listed: &String| fits(&plain(listed), &host);
        host.ends_with(".localhost")
            || self.hosts.iter().any(listed)
            || self
                .certificate
                .as_ref()
                .is_some_and(|tls| tls.hosts().iter().any(listed))
    }
}

/// A host that is an address cannot be pointed elsewhere by DNS, so it needs no check.
fn is_address(host: &str) -> bool {
    let inside = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match inside {
        Some(inside) => inside.parse::<Ipv6Addr>().is_ok(),
        None => host.parse::<Ipv4Addr>().is_ok(),
    }
}

fn fits(listed: &str, host: &str) -> bool {
    match listed.strip_prefix('*') {
        None => listed == host,
        Some("") => true,
        Some(rest) => host.split_once('.').is_some_and(|(first, _)| {
            !first.is_empty() && rest.starts_with('.') && host[first.len()..] == *rest
        }),
    }
}

fn wrong_host(host: &str) -> Problem {
    let detail = format!(
        "{host:?} is not a name of this node. To allow it, add it to http.allowed_hosts in the node's configuration"
    );
    Problem::new(Code::WrongHost, detail)
}

fn foreign(origin: &str) -> Problem {
    Problem::new(
        Code::ForeignOrigin,
        format!("the origin {origin:?} may not call this node; to allow it, add it to http.allowed_origins"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_known() {
        let names = KnownNames {
            hosts: vec!["Locks.Example".into(), "*.nodes.example".into()],
            ..KnownNames::default()
        };
        for known in [
            "127.0.0.1",
            "192.0.2.7",
            "[::1]",
            "[2001:db8::1]",
            "localhost",
            "LOCALHOST",
            "app.localhost",
            "localhost.",
            "locks.example",
            "LOCKS.example.",
            "a.nodes.example",
        ] {
            assert!(names.know(known), "{known}");
        }
        for stranger in [
            "",
            ".",
            "evil.example",
            "locks.example.evil.example",
            "evillocks.example",
            "nodes.example",
            ".nodes.example",
            "a.b.nodes.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "notlocalhost",
            "127.1",
            "0x7f.0.0.1",
            "::1",
            "[::1",
            "*",
            "*.nodes.example.evil",
        ] {
            assert!(!names.know(stranger), "{stranger}");
        }
        let any = KnownNames {
            hosts: vec!["*".into()],
            ..KnownNames::default()
        };
        assert!(any.know("evil.example"));
    }

    #[test]
    fn plain_requests_take_the_short_cut() {
        let names = KnownNames::default();
        let plain = |address: &str, headers: &[(&str, &str)]| {
            let mut request = Request::new(axum::body::Body::empty());
            *request.uri_mut() = address.parse().unwrap();
            for (name, value) in headers {
                let name: HeaderName = name.parse().unwrap();
                request.headers_mut().append(name, value.parse().unwrap());
            }
            is_plain(&request, &names)
        };
        for host in ["127.0.0.1:7400", "localhost", "LOCALHOST:1", "app.localhost:80"] {
            assert!(plain("/v1/locks", &[("host", host)]), "{host}");
        }
        for (address, headers) in [
            ("/", &[][..]),
            ("/", &[("host", "evil.example")]),
            ("/", &[("host", "localhost:")]),
            ("/", &[("host", "localhost:65536")]),
            ("/", &[("host", "localhost:1x")]),
            ("/", &[("host", "localhost:+80")]),
            ("/", &[("host", "user@localhost")]),
            ("/", &[("host", "localhost/")]),
            ("/", &[("host", "")]),
            ("/", &[("host", ":80")]),
            ("/", &[("host", "[::1]:80")]),
            ("/", &[("host", "localhost"), ("host", "localhost")]),
            ("/", &[("host", "localhost"), ("origin", "http://localhost")]),
            ("/", &[("host", "localhost"), ("sec-fetch-site", "cross-site")]),
            ("http://evil.example/", &[("host", "localhost")]),
        ] {
            assert!(!plain(address, headers), "{address} {headers:?}");
        }
    }

    #[test]
    fn own_page_is_recognized_by_name_and_port() {
        let own = |origin: &str, host: &str| is_own(origin, Some(&host.parse().unwrap()));
        for (origin, host) in [
            ("http://localhost:7400", "localhost:7400"),
            ("https://locks.example", "LOCKS.example"),
            ("https://locks.example:443", "locks.example"),
            ("http://locks.example", "locks.example:80"),
            ("http://[::1]:7400", "[::1]:7400"),
        ] {
            assert!(own(origin, host), "{origin} {host}");
        }
        for (origin, host) in [
            ("null", "localhost:7400"),
            ("http://localhost:3000", "localhost:7400"),
            ("http://localhost", "localhost:7400"),
            ("http://evil.example:7400", "localhost:7400"),
            ("https://locks.example", "locks.example:80"),
            ("file://localhost:7400", "localhost:7400"),
            ("http://localhost:7400.evil.example", "localhost:7400"),
            ("", "localhost:7400"),
        ] {
            assert!(!own(origin, host), "{origin} {host}");
        }
        assert!(!is_own("http://localhost:7400", None));
    }
}
