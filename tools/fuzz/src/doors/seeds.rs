//! The first inputs of the target `doors`: requests that a caller may make in its own subtree, and the same
//! requests elsewhere.

use crate::http::script::SEPARATOR;
use crate::http::seeds as open;

/// Paths in the worker's own subtree, and paths outside it.
const LOCK_NAMES: [&str; 4] = ["team%2Fa", "team%2Fa%2Fx", "team%2Fab", "vault"];

/// Returns inputs for [`super::run`].
pub fn scripts() -> Vec<Vec<u8>> {
    let callers = ["{worker}", "{blind}", "lg_none"];
    let of_open = callers.iter().flat_map(|caller| {
        open::scripts()
            .into_iter()
            .map(move |script| by(caller, &script, ""))
    });
    let at_places = LOCK_NAMES.iter().flat_map(|place| {
        open::scripts()
            .into_iter()
            .map(move |script| by("{worker}", &script, place))
    });
    let about_access = ACCESS
        .iter()
        .map(|request| by("{worker}", request.as_bytes(), ""));
    of_open.chain(at_places).chain(about_access).collect()
}

/// Requests about permissions, and about the data of other callers.
const ACCESS: &[&str] = &[
    "GET /v1/access",
    "POST /v1/access/secure\n\n{\"description\": \"again\"}",
    "GET /v1/tokens",
    "POST /v1/tokens\n\n{\"role\": \"admin\"}",
    "PUT /v1/roles/worker\n\n{\"grants\": [{\"path\": \"/\", \"rights\": [\"administer\"]}]}",
    "DELETE /v1/roles/blind",
    "PUT /v1/certificates\n\n{\"subject\": \"CN=worker\", \"role\": \"admin\"}",
    "POST /v1/znodes/team/a/x\n\n{\"data\": \"own\", \"parents\": true}",
    "GET /v1/znodes/team?children=true",
    // Lists and reads, which would reveal data of others.
    "GET /v1/locks",
    "GET /v1/locks?prefix=vault&holders=true",
    "GET /v1/locks/vault",
    "GET /v1/locks/vault/history",
    "GET /v1/sessions",
    "GET /v1/events?last=100",
    "GET /v1/mirror",
    "GET /v1/znodes/?children=true&descendants=true",
    "GET /v1/znodes/private?children=true",
    "GET /v1/acl/private",
    "POST /v1/read\n\n{\"reads\": [{\"children\": {\"path\": \"/\"}}, {\"children\": {\"path\": \"/private\"}}, {\"get\": {\"path\": \"/team/ab\"}}]}",
    // Writes, which would change data of others.
    "POST /v1/znodes/private/x\n\n{\"data\": \"mine\"}",
    "PUT /v1/znodes/team/ab\n\n{\"data\": \"mine\"}",
    "PUT /v1/acl/team/ab\n\n{\"acl\": [{\"scheme\": \"world\", \"id\": \"anyone\", \"perms\": \"r\"}]}",
    "DELETE /v1/znodes/private?recursive=true",
    "DELETE /v1/znodes/team/ab",
    "POST /v1/locks/vault/break\n\n{\"reason\": \"stuck\"}",
    "POST /v1/locks/vault/release-request\n\n{\"reason\": \"please\"}",
    "PATCH /v1/locks/vault\n\n{\"draining\": true}",
    "PUT /v1/namespaces/vault\n\n{\"locks\": 0}",
    "DELETE /v1/namespaces/team",
    "GET /v1/namespaces/vault",
    "POST /v1/mirror\n\n{\"steps\": [{\"remove\": {\"path\": \"/team/ab\"}}]}",
    "POST /v1/txn\n\n{\"ops\": [{\"check\": {\"path\": \"/team/a\"}}, {\"set\": {\"path\": \"/team/ab\", \"data\": \"mine\"}}]}",
];

/// Returns the requests of a script as sent by `caller`, at `place` unless that is empty.
fn by(caller: &str, script: &[u8], place: &str) -> Vec<u8> {
    let script = String::from_utf8_lossy(script).into_owned();
    let script = match place {
        "" => script,
        place => script
            .replace("/locks/a/", &format!("/locks/{place}/"))
            .replace("/locks/s/", &format!("/locks/{place}/"))
            .replace("/znodes/a/", &format!("/znodes/{}/", place.replace("%2F", "/")))
            .replace(
                "\"name\": \"a\"",
                &format!("\"name\": \"{}\"", place.replace("%2F", "/")),
            )
            .replace("\"/t\"", &format!("\"/{}/t\"", place.replace("%2F", "/"))),
    };
    let requests = script.split(char::from(SEPARATOR)).map(|request| {
        let (first, rest) = match request.split_once('\n') {
            Some((first, rest)) => (first, rest),
            None => (request, ""),
        };
        let rest = match rest {
            "" => String::new(),
            rest => format!("\n{rest}"),
        };
        format!("{first}\nauthorization: Bearer {caller}{rest}")
    });
    let requests: Vec<_> = requests.collect();
    requests.join(&char::from(SEPARATOR).to_string()).into_bytes()
}
