//! The first inputs of the target `doors`: what callers may do at their own place, and the same elsewhere.

use crate::http::script::BETWEEN;
use crate::http::seeds as open;

/// Places that are the worker's own, and places that are not.
const PLACES: [&str; 4] = ["team%2Fa", "team%2Fa%2Fx", "team%2Fab", "vault"];

/// Inputs for [`super::run`].
pub fn scripts() -> Vec<Vec<u8>> {
    let callers = ["{worker}", "{blind}", "lg_none"];
    let of_open = callers.iter().flat_map(|caller| {
        open::scripts()
            .into_iter()
            .map(move |script| by(caller, &script, ""))
    });
    let at_places = PLACES.iter().flat_map(|place| {
        open::scripts()
            .into_iter()
            .map(move |script| by("{worker}", &script, place))
    });
    let about_access = ACCESS
        .iter()
        .map(|request| by("{worker}", request.as_bytes(), ""));
    of_open.chain(at_places).chain(about_access).collect()
}

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
];

/// The requests of a script, by somebody; at another place than it says, if one is named.
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
    let requests = script.split(char::from(BETWEEN)).map(|request| {
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
    requests.join(&char::from(BETWEEN).to_string()).into_bytes()
}
