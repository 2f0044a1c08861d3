//! Operations of access control: securing a cluster, tokens, roles, certificates.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{CHANGE, FRESH, GROWS};
use crate::http::access_types::{
    AccessAnswer, CertificateAnswer, CertificateBody, CertificatesAnswer, MadeTokenAnswer, RoleAnswer,
    RoleBody, RolesAnswer, SecureBody, TokenBody, TokensAnswer,
};
use crate::http::extract::ReadQuery;
use crate::http::openapi::operation::Operation;
use crate::http::openapi::words;
use crate::http::problem::Code;
use crate::http::{certificates, roles, tokens};

/// Id of a token in examples, and its text.
const TOKEN: &str = "3f0c96ec5d1b4be2a0fd5a7c0d2b9a11";
const TEXT: &str =
    "lg_3f0c96ec5d1b4be2a0fd5a7c0d2b9a11_0000000000000000000000000000000000000000000000000000000000000000";

/// Returns the operations of this group.
pub fn operations() -> Vec<Operation> {
    let mut all = cluster();
    all.extend(of_tokens());
    all.extend(of_roles());
    all.extend(of_certificates());
    all
}

fn cluster() -> Vec<Operation> {
    vec![
        Operation::get("/v1/access", "lookAtAccess", "Shows whether the cluster is secured, and the caller's identity")
            .says("For everybody; but a token that is shown has to be a good one.")
            .asks::<ReadQuery>(&[])
            .answers::<AccessAnswer>(
                StatusCode::OK,
                "Who the caller is known to be.",
                json!({"secured": true, "you": {
                    "kind": "token",
                    "name": TOKEN,
                    "role": "billing",
                    "grants": [{"path": "/locks/orders", "rights": ["read", "lock"]}],
                }}),
            )
            .fails(&FRESH),
        Operation::post("/v1/access/secure", "secureCluster", "Secures the cluster")
            .says(
                "From then on every request has to be allowed by a policy. It cannot be undone. Only the operator may ask for it, with the \
                 token in the node's data directory. `anonymous` is what everybody may do from then on: for a cluster in use, all \
                 rights at `/`, until all clients have their tokens.",
            )
            .takes::<SecureBody<'_>>(
                false,
                json!({"description": "the first administrator", "anonymous": [all_rights()]}),
            )
            .answers::<MadeTokenAnswer<'_>>(
                StatusCode::CREATED,
                "It is secured. The first administrator's token is shown here and nowhere else.",
                json!({"id": TOKEN, "token": TEXT, "role": "admin", "expires_at": null}),
            )
            .fails(&[Code::Forbidden, Code::AlreadySecured, Code::BadPath, Code::BadLockName, Code::Internal])
            .fails(&CHANGE)
            .fails(&GROWS),
    ]
}

fn of_tokens() -> Vec<Operation> {
    vec![
        Operation::get("/v1/tokens", "listTokens", "Lists tokens")
            .says("Neither their texts nor their hashes are shown. Expired ones are there until the next change.")
            .asks::<tokens::ListQuery>(&[])
            .with_words::<words::PageCount>()
            .with_words::<words::TokenId>()
            .answers::<TokensAnswer<'_>>(
                StatusCode::OK,
                "A page of tokens, by id.",
                json!({"tokens": [token()], "next_after": null}),
            )
            // The parameter `after` is not a valid id.
            .fails(&[Code::NoToken, Code::Forbidden])
            .fails(&FRESH),
        changes(Operation::post("/v1/tokens", "createToken", "Makes a token"))
            .says(
                "Its text is told once. So a request that is sent again under its `request_id` is refused (`request_id_reused`): look for \
                 the token in the list, revoke it, and make another one.",
            )
            .takes::<TokenBody<'_>>(
                true,
                json!({"role": "billing", "description": "nightly jobs", "expires_in_ms": 2_592_000_000_u64}),
            )
            .answers::<MadeTokenAnswer<'_>>(
                StatusCode::CREATED,
                "It is made. Its text is shown here and nowhere else.",
                json!({"id": TOKEN, "token": TEXT, "role": "billing", "expires_at": "2026-12-22T09:30:00.000Z"}),
            )
            .fails(&[Code::NoRole, Code::LimitReached])
            .fails(&GROWS),
        changes(Operation::delete("/v1/tokens/{id}", "revokeToken", "Revokes a token"))
            .says("Its requests in progress are refused; its streams and waits end.")
            .names::<words::TokenId>("id", "The token's id.", json!(TOKEN))
            .asks::<tokens::RevokeQuery>(&[])
            .with_words::<words::RequestId>()
            .answers_nothing("It counts no more.")
            .fails(&[Code::NoToken, Code::LastAdministrator]),
    ]
}

fn of_roles() -> Vec<Operation> {
    vec![
        Operation::get("/v1/roles", "listRoles", "Lists roles")
            .asks::<roles::ListQuery>(&[])
            .with_words::<words::PageCount>()
            .answers::<RolesAnswer>(
                StatusCode::OK,
                "A page of roles, by name.",
                json!({"roles": [role()], "next_after": null}),
            )
            .fails(&[Code::Forbidden])
            .fails(&FRESH),
        of_role(Operation::get(
            "/v1/roles/{role}",
            "lookAtRole",
            "Shows what a role allows",
        ))
        .asks::<ReadQuery>(&[])
        .answers::<RoleAnswer>(StatusCode::OK, "What it allows.", role())
        .fails(&[Code::Forbidden, Code::NoRole])
        .fails(&FRESH),
        changes(of_role(Operation::put(
            "/v1/roles/{role}",
            "setRole",
            "Says what a role allows",
        )))
        .says("The new grants replace all former ones, at once and for every caller with the role.")
        .takes::<RoleBody<'_>>(
            true,
            json!({"grants": [{"locks": "orders", "rights": ["read", "lock"]}, all_rights()]}),
        )
        .answers::<RoleAnswer>(StatusCode::OK, "What it allows now.", role())
        .fails(&[
            Code::RoleBuiltIn,
            Code::LimitReached,
            Code::BadPath,
            Code::BadLockName,
        ])
        .fails(&GROWS),
        changes(of_role(Operation::delete(
            "/v1/roles/{role}",
            "deleteRole",
            "Deletes a role that nobody has",
        )))
        .asks::<roles::DeleteQuery>(&[])
        .with_words::<words::RequestId>()
        .answers_nothing("It is gone.")
        .fails(&[Code::NoRole, Code::RoleInUse, Code::RoleBuiltIn]),
    ]
}

fn of_certificates() -> Vec<Operation> {
    let certificate = json!({"subject": "CN=billing,O=Example", "role": "billing"});
    vec![
        Operation::get(
            "/v1/certificates",
            "listCertificates",
            "Lists the certificates that have a role",
        )
        .asks::<certificates::ListQuery>(&[])
        .with_words::<words::PageCount>()
        .answers::<CertificatesAnswer<'_>>(
            StatusCode::OK,
            "A page of them, by subject.",
            json!({"certificates": [certificate], "next_after": null}),
        )
        .fails(&[Code::Forbidden])
        .fails(&FRESH),
        changes(Operation::put(
            "/v1/certificates",
            "setCertificate",
            "Gives a certificate a role",
        ))
        .takes::<CertificateBody<'_>>(true, certificate.clone())
        .answers::<CertificateAnswer<'_>>(
            StatusCode::OK,
            "Callers with the certificate have the role.",
            certificate,
        )
        .fails(&[Code::NoRole, Code::LimitReached, Code::LastAdministrator])
        .fails(&GROWS),
        changes(Operation::delete(
            "/v1/certificates",
            "deleteCertificate",
            "Takes a certificate its role",
        ))
        .asks::<certificates::DeleteQuery>(&[("subject", json!("CN=billing,O=Example"))])
        .with_words::<words::RequestId>()
        .with_words::<words::Subject>()
        .answers_nothing("It has none any more.")
        .fails(&[Code::NoCertificate, Code::LastAdministrator]),
    ]
}

/// Declares an operation that changes access control.
fn changes(operation: Operation) -> Operation {
    let codes = [
        Code::Forbidden,
        Code::NotSecured,
        Code::RequestIdReused,
        Code::Internal,
    ];
    operation.fails(&codes).fails(&CHANGE)
}

fn of_role(operation: Operation) -> Operation {
    let operation = operation.names::<words::RoleName>("role", "The role's name.", json!("billing"));
    operation.fails(&[Code::BadRequest])
}

fn all_rights() -> Value {
    json!({"path": "/orders/42", "rights": ["read", "lock", "write", "break", "administer"]})
}

fn role() -> Value {
    json!({"role": "billing", "grants": [{"path": "/locks/orders", "rights": ["read", "lock"]}]})
}

fn token() -> Value {
    json!({
        "id": TOKEN,
        "role": "billing",
        "description": "nightly jobs",
        "created_at": "2026-11-22T09:30:00.000Z",
        "expires_at": "2026-12-22T09:30:00.000Z",
    })
}
