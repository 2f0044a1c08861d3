//! Operations of access control: securing a cluster, tokens, roles, certificates.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{CHANGE, FRESH, GROWS};
use crate::http::access_types::{
    AccessAnswer, CertificateAnswer, CertificateBody, CertificatesAnswer, MadeTokenAnswer, RoleAnswer,
    RoleBody, RolesAnswer, SecureBody, TokenBody, TokensAnswer,
};
use crate::http::extract::ReadQuery;
use crate::http::names_query::NamesQuery;
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
        Operation::get("/v1/access", "getAccess", "Shows whether the cluster is secured, and the caller's identity")
            .describe("No authentication is required, but a token in the request must be valid.")
            .query_parameters::<ReadQuery>(&[])
            .answers::<AccessAnswer>(
                StatusCode::OK,
                "State of access control, and identity of the caller.",
                json!({"secured": true, "you": {
                    "kind": "token",
                    "name": TOKEN,
                    "role": "billing",
                    "grants": [{"path": "/locks/orders", "rights": ["read", "lock"]}],
                }}),
            )
            .fails(&FRESH),
        Operation::post("/v1/access/secure", "secureCluster", "Secures the cluster")
            .describe(
                "From then on a policy has to permit every request. This cannot be undone. It requires the operator's token, which is in the node's data directory. `anonymous` has the rights of every caller from then on. For a cluster in use, grant all rights at `/` until all clients have their tokens.",
            )
            .request_body::<SecureBody<'_>>(
                false,
                json!({"description": "the first administrator", "anonymous": [all_rights()]}),
            )
            .answers::<MadeTokenAnswer<'_>>(
                StatusCode::CREATED,
                "The cluster is secured. Only this answer contains the first administrator's token.",
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
            .describe("The list has neither their texts nor their hashes. Expired tokens are listed until the next change.")
            .query_parameters::<tokens::ListQuery>(&[])
            .with_words::<words::PageLimit>()
            .with_words::<words::TokenId>()
            .answers::<TokensAnswer<'_>>(
                StatusCode::OK,
                "A page of tokens, by id.",
                json!({"tokens": [token()], "next_cursor": null}),
            )
            // The parameter `after` is not a valid id.
            .fails(&[Code::NoToken, Code::Forbidden])
            .fails(&FRESH),
        changes(Operation::post("/v1/tokens", "createToken", "Creates a token"))
            .describe(
                "Only the answer contains the token's text. A repetition under the same `request_id` is rejected (`request_id_reused`): find the token in the list, revoke it, and create another one.",
            )
            .request_body::<TokenBody<'_>>(
                true,
                json!({"role": "billing", "description": "nightly jobs", "expires_in_ms": 2_592_000_000_u64}),
            )
            .answers::<MadeTokenAnswer<'_>>(
                StatusCode::CREATED,
                "The token is created. Only this answer contains its text.",
                json!({"id": TOKEN, "token": TEXT, "role": "billing", "expires_at": "2026-12-22T09:30:00.000Z"}),
            )
            .fails(&[Code::NoRole, Code::LimitReached])
            .fails(&GROWS),
        changes(Operation::delete("/v1/tokens/{id}", "revokeToken", "Revokes a token"))
            .describe("Requests in progress with this token are rejected; its streams and waits end.")
            .names::<words::TokenId>("id", "Id of the token.", json!(TOKEN))
            .query_parameters::<tokens::RevokeQuery>(&[])
            .with_words::<words::RequestId>()
            .answers_nothing("The token is revoked.")
            .fails(&[Code::NoToken, Code::LastAdministrator]),
    ]
}

fn of_roles() -> Vec<Operation> {
    vec![
        Operation::get("/v1/roles", "listRoles", "Lists roles")
            .query_parameters::<NamesQuery>(&[])
            .with_words::<words::PageLimit>()
            .answers::<RolesAnswer>(
                StatusCode::OK,
                "A page of roles, by name.",
                json!({"roles": [role()], "next_cursor": null}),
            )
            .fails(&[Code::Forbidden])
            .fails(&FRESH),
        of_role(Operation::get(
            "/v1/roles/{role}",
            "getRole",
            "Shows the grants of a role",
        ))
        .query_parameters::<ReadQuery>(&[])
        .answers::<RoleAnswer>(StatusCode::OK, "The grants.", role())
        .fails(&[Code::Forbidden, Code::NoRole])
        .fails(&FRESH),
        changes(of_role(Operation::put(
            "/v1/roles/{role}",
            "setRole",
            "Sets the grants of a role",
        )))
        .describe("The new grants replace all former ones, immediately and for every caller with the role.")
        .request_body::<RoleBody<'_>>(
            true,
            json!({"grants": [{"locks": "orders", "rights": ["read", "lock"]}, all_rights()]}),
        )
        .answers::<RoleAnswer>(StatusCode::OK, "The new grants.", role())
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
            "Deletes an unassigned role",
        )))
        .query_parameters::<roles::DeleteQuery>(&[])
        .with_words::<words::RequestId>()
        .answers_nothing("The role is deleted.")
        .fails(&[Code::NoRole, Code::RoleInUse, Code::RoleBuiltIn]),
    ]
}

fn of_certificates() -> Vec<Operation> {
    let certificate = json!({"subject": "CN=billing,O=Example", "role": "billing"});
    vec![
        Operation::get(
            "/v1/certificates",
            "listCertificates",
            "Lists the certificates with a role",
        )
        .query_parameters::<certificates::ListQuery>(&[])
        .with_words::<words::PageLimit>()
        .answers::<CertificatesAnswer<'_>>(
            StatusCode::OK,
            "A page of certificates, by subject.",
            json!({"certificates": [certificate], "next_cursor": null}),
        )
        .fails(&[Code::Forbidden])
        .fails(&FRESH),
        changes(Operation::put(
            "/v1/certificates",
            "setCertificate",
            "Assigns a role to a certificate",
        ))
        .request_body::<CertificateBody<'_>>(true, certificate.clone())
        .answers::<CertificateAnswer<'_>>(StatusCode::OK, "The role is assigned.", certificate)
        .fails(&[Code::NoRole, Code::LimitReached, Code::LastAdministrator])
        .fails(&GROWS),
        changes(Operation::delete(
            "/v1/certificates",
            "deleteCertificate",
            "Removes the role of a certificate",
        ))
        .query_parameters::<certificates::DeleteQuery>(&[("subject", json!("CN=billing,O=Example"))])
        .with_words::<words::RequestId>()
        .with_words::<words::Subject>()
        .answers_nothing("The role is removed.")
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
    let operation = operation.names::<words::RoleName>("role", "Name of the role.", json!("billing"));
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
