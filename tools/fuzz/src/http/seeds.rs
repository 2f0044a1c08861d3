//! The first inputs of the target `http`: every route, and some sequences in which a request needs the
//! response to an earlier one.

use super::script::SEPARATOR;

const SESSION: &str = "POST /v1/sessions\n\n{\"ttl_ms\": 10000, \"name\": \"worker\"}";

/// Returns inputs for [`super::run`].
pub fn scripts() -> Vec<Vec<u8>> {
    let alone = SINGLE_REQUESTS.iter().map(|request| joined(&[request]));
    let behind_a_session = WITH_SESSION.iter().map(|requests| {
        let mut all = vec![SESSION];
        all.extend_from_slice(requests);
        joined(&all)
    });
    alone.chain(behind_a_session).collect()
}

fn joined(requests: &[&str]) -> Vec<u8> {
    requests.join(&char::from(SEPARATOR).to_string()).into_bytes()
}

const SINGLE_REQUESTS: &[&str] = &[
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
    "GET /docs",
    "GET /v1/openapi.json",
    "GET /v1/cluster",
    "GET /v1/snapshot",
    "GET /v1/sessions?limit=2",
    "GET /v1/locks?prefix=a&cursor=b&limit=3",
    "GET /v1/lock-graph",
    "GET /v1/locks/a%2Fb/check?fencing_token=7",
    "GET /v1/locks/a/history?cursor=9&limit=2",
    "GET /v1/znodes/?children=true&linearizable=true",
    "GET /v1/acl/",
    "GET /v1/watch/zookeeper?kind=children&timeout_ms=1",
    "HEAD /v1/znodes/zookeeper",
    "PUT /v1/locks/a",
    "POST /v1/locks/a/acquire\n\n{\"ttl_ms\": 4000, \"mode\": \"shared\", \"min_hold_ms\": 1}",
    "POST /v1/leases/ls_000000000000001f_07070707070707070707070707070707/renew",
    "GET /v1/version",
    "GET /v1/nothing\norigin: http://elsewhere.example\nhost: localhost",
    "POST /v1/locks/a/break\n\n{\"holder\": \"x\", \"reason\": \"stuck\"}",
    "POST /v1/locks/a/release-request\n\n{\"reason\": \"please\"}",
    "PATCH /v1/locks/a\n\n{\"limit\": 2, \"draining\": false}",
    "POST /v1/read\n\n{\"reads\": [{\"get\": {\"path\": \"/\"}}, {\"children\": {\"path\": \"/\"}}]}",
];

const WITH_SESSION: &[&[&str]] = &[
    &[
        "GET /v1/sessions/{session}",
        "POST /v1/sessions/{session}/heartbeat",
        "GET /v1/sessions/{session}/ephemerals",
        "GET /v1/sessions/{session}/events",
        "DELETE /v1/sessions/{session}",
    ],
    &[
        "POST /v1/locks/a/acquire\n\n{\"session\": \"{session}\", \"wait_ms\": 0, \"note\": \"me\", \"request_id\": \"1\"}",
        "GET /v1/locks/a",
        "GET /v1/locks/a/check?fencing_token={token}",
        "POST /v1/locks/a/acquire\n\n{\"session\": \"{session}\", \"mode\": \"shared\", \"wait_ms\": 5, \"owner\": \"o\"}",
        "POST /v1/locks/a/downgrade\n\n{\"session\": \"{session}\", \"holder\": \"{holder}\"}",
        "POST /v1/locks/a/upgrade\n\n{\"session\": \"{session}\", \"holder\": \"{holder}\", \"wait_ms\": 0}",
        "POST /v1/locks/a/release-request\n\n{\"reason\": \"please\"}",
        "POST /v1/locks/a/release\n\n{\"session\": \"{session}\", \"holder\": \"{holder}\"}",
    ],
    &[
        "POST /v1/locks/s/acquire\n\n{\"session\": \"{session}\", \"mode\": \"semaphore\", \"limit\": 3, \"permits\": 2, \"wait_ms\": 0, \"lock_delay_ms\": 50}",
        "POST /v1/locks/s/break\n\n{\"holder\": \"{holder}\", \"reason\": \"stuck\"}",
    ],
    &[
        "POST /v1/locks/a/acquire\nidempotency-key: l\n\n{\"ttl_ms\": 4000, \"note\": \"nightly\", \"min_hold_ms\": 20, \"max_hold_ms\": 60000}",
        "POST /v1/locks/a/acquire\nidempotency-key: l\n\n{\"ttl_ms\": 4000, \"note\": \"nightly\", \"min_hold_ms\": 20, \"max_hold_ms\": 60000, \"retry\": 1}",
        "GET /v1/leases/{lease}?linearizable=true",
        "POST /v1/leases/{lease}/renew",
        "POST /v1/leases/{lease}/renew\n\n{\"ttl_ms\": 8000, \"request_id\": \"r\"}",
        "GET /v1/locks/a/holders/{holder}",
        "DELETE /v1/leases/{lease}?request_id=d",
        "DELETE /v1/leases/{lease}",
        "GET /v1/leases/{lease}",
    ],
    &[
        "POST /v1/locks/queue/acquire\n\n{\"session\": \"{session}\", \"max_hold_ms\": 60000}",
        "POST /v1/locks/queue/acquire\nidempotency-key: q\n\n{\"ttl_ms\": 4000, \"wait\": \"queue\"}",
        "GET /v1/locks/queue/holders/{holder}?wait_ms=5",
        "POST /v1/locks/queue/acquire\nidempotency-key: s\n\n{\"session\": \"{session}\", \"wait\": \"queue\", \"reentrant\": false, \"owner\": \"o\"}",
        "GET /v1/locks/queue/holders/{holder}?wait_ms=5",
        "DELETE /v1/leases/{lease}",
        "POST /v1/locks/queue/acquire\nidempotency-key: s\n\n{\"session\": \"{session}\", \"wait_ms\": 0, \"reentrant\": false, \"owner\": \"o\", \"retry\": 1}",
        "GET /v1/locks/queue/holders/{holder}",
    ],
    &[
        "POST /v1/multilock/acquire\n\n{\"session\": \"{session}\", \"locks\": [{\"name\": \"a\"}, {\"name\": \"b/c\", \"mode\": \"shared\"}], \"wait_ms\": 0}",
        "POST /v1/multilock/release\n\n{\"session\": \"{session}\", \"holders\": [{\"lock\": \"a\", \"holder\": \"{holder}\"}]}",
    ],
    &[
        "POST /v1/batch\n\n{\"requests\": [{\"path\": \"/v1/locks/a/acquire\", \"body\": {\"ttl_ms\": 5000}}, {\"path\": \"/v1/locks/b%2Fc/acquire\", \"body\": {\"session\": \"{session}\"}}, {\"path\": \"/v1/sessions/{session}/heartbeat\"}]}",
        "POST /v1/batch\n\n{\"requests\": [{\"path\": \"/v1/locks/a/release\", \"body\": {\"session\": \"{session}\", \"holder\": \"{holder}\"}}, {\"method\": \"DELETE\", \"path\": \"/v1/leases/ls_1\"}, {\"path\": \"/v1/leases/ls_1/renew\"}]}",
    ],
    &[
        "POST /v1/znodes/a/b\n\n{\"data\": \"text\", \"parents\": true}",
        "POST /v1/znodes/a/n-\n\n{\"mode\": \"ephemeral_sequential\", \"session\": \"{session}\", \"data_base64\": \"AAEC\"}",
        "PUT /v1/znodes/a/b?version=0\n\n{\"data\": \"other\"}",
        "GET /v1/znodes/a?children=true",
        "PUT /v1/acl/a/b\n\n{\"acl\": [{\"scheme\": \"world\", \"id\": \"anyone\", \"perms\": [\"read\"]}]}",
        "DELETE /v1/znodes/a?recursive=true",
    ],
    &[
        "POST /v1/txn\n\n{\"session\": \"{session}\", \"ops\": [{\"op\": \"create\", \"path\": \"/t\", \"data\": \"x\"}, {\"op\": \"set\", \"path\": \"/t\", \"data\": \"y\", \"version\": 0}, {\"op\": \"check\", \"path\": \"/t\", \"version\": 1}, {\"op\": \"delete\", \"path\": \"/t\"}]}",
        "POST /v1/znodes/c\n\n{\"mode\": \"container\"}",
        "POST /v1/znodes/c/t\n\n{\"mode\": \"ttl\", \"ttl_ms\": 1000}",
    ],
];
