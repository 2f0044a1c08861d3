//! Audit log: a line for each change that one caller makes to others, with the outcome, and without secrets.

use std::io;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tracing_subscriber::fmt::MakeWriter;

use crate::matrix::House;
use crate::matrix::callers::Caller;

/// Captured log lines.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Returns the new audit lines, without their common parts.
    fn account(&self) -> Vec<String> {
        let text = self.text();
        self.0.lock().unwrap().clear();
        let lines = text
            .lines()
            .filter_map(|line| line.split_once("lockgate::audit"))
            .map(|(before, line)| {
                let line = line.strip_prefix("::refused").unwrap_or(line);
                (
                    before,
                    line.strip_prefix(": ").expect("the fields follow the target"),
                )
            });
        let own = |(_, line): (_, &str)| match line.split_once(" http_request=") {
            Some((own, id)) if id.trim_matches('"').len() == 16 => own.to_owned(),
            _ => panic!("a line without the id of its request: {line}"),
        };
        lines.map(own).collect()
    }
}

#[tokio::test]
async fn actions_on_other_callers_objects_are_in_the_audit_log() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_ansi(false)
        .with_max_level(tracing::Level::TRACE)
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let house = House::open().await;
    // A test that logged for the first time while the subscriber was installed may have cached that no subscriber is
    // interested.
    tracing::callsite::rebuild_interest_cache();
    let operator = Caller::with_token("operator", &house.operator);
    let secured = house
        .must(
            &operator,
            "POST",
            "/v1/access/secure",
            json!({"description": "first"}),
            201,
        )
        .await;
    let (id, text) = (
        secured["id"].as_str().unwrap(),
        secured["token"].as_str().unwrap(),
    );
    let from = "from=127.0.0.1:9";
    assert_eq!(
        log.account(),
        [format!(
            "by=the operator {from} action=\"secure\" what=\"secure the cluster, with token {id} for role admin \\\"first\\\"\" outcome=\"done\""
        )]
    );

    let admin = Caller::with_token("admin", text);
    let session = house.session_of(&operator).await;
    let acquire = json!({"session": session});
    let held = house
        .must(&operator, "POST", "/v1/locks/a/acquire", acquire, 200)
        .await;
    let holder = held["holder"].as_str().unwrap();
    assert_eq!(
        log.account(),
        Vec::<String>::new(),
        "locking is everybody's daily business"
    );

    let by = format!("by=token {id} {from}");
    let evil = "r\n2026-01-01 INFO lockgate::audit: by=nobody \u{1b}[2J\u{202e}";
    let close = format!("/v1/sessions/{session}");
    for (method, path, body, status, expected) in [
        (
            "POST",
            "/v1/locks/a/release-request",
            json!({"reason": evil}),
            200,
            "action=\"release_request\" what=\"all holders of the lock a: r\\n2026-01-01 INFO lockgate::audit: by=nobody \\u{1b}[2J\\u{202e}\" outcome=\"done\"".to_owned(),
        ),
        (
            "POST",
            "/v1/locks/a/break",
            json!({"holder": holder, "reason": "stuck"}),
            204,
            format!("action=\"break\" what=\"{holder} in the lock a: stuck\" outcome=\"done\""),
        ),
        (
            "POST",
            "/v1/locks/a/break",
            json!({"holder": "none", "reason": "stuck"}),
            409,
            "action=\"break\" what=\"none in the lock a: stuck\" outcome=\"not_holder\"".to_owned(),
        ),
        (
            "DELETE",
            &*close,
            Value::Null,
            204,
            format!("action=\"close_session\" what=\"session {session} of the operator\" outcome=\"done\""),
        ),
        (
            "PUT",
            "/v1/roles/team",
            json!({"grants": [{"path": "/team", "rights": ["read"]}]}),
            200,
            "action=\"set_role\" what=\"let role team read at /team\" outcome=\"done\"".to_owned(),
        ),
        (
            "DELETE",
            "/v1/roles/team",
            Value::Null,
            204,
            "action=\"delete_role\" what=\"delete role team\" outcome=\"done\"".to_owned(),
        ),
        (
            "PUT",
            "/v1/certificates",
            json!({"subject": "CN=\u{1b}x", "role": "admin"}),
            200,
            "action=\"set_certificate\" what=\"give certificate \\\"CN=\\\\u{1b}x\\\" the role admin\" outcome=\"done\"".to_owned(),
        ),
        (
            "DELETE",
            &*format!("/v1/tokens/{:032x}", 1),
            Value::Null,
            404,
            format!("action=\"revoke_token\" what=\"revoke token {:032x}\" outcome=\"no_token\"", 1),
        ),
        (
            "POST",
            "/v1/cluster/members/2/promote",
            Value::Null,
            404,
            "action=\"promote_member\" what=\"node 2\" outcome=\"no_member\"".to_owned(),
        ),
        (
            "DELETE",
            "/v1/cluster/members/2?force=true",
            Value::Null,
            404,
            "action=\"remove_member\" what=\"node 2, by force\" outcome=\"no_member\"".to_owned(),
        ),
        (
            "POST",
            "/v1/cluster/leader",
            json!({"node_id": 2}),
            404,
            "action=\"move_leader\" what=\"to node 2\" outcome=\"no_member\"".to_owned(),
        ),
        (
            "GET",
            "/v1/snapshot",
            Value::Null,
            200,
            "action=\"download_backup\" what=\"of node 1\" outcome=\"done\"".to_owned(),
        ),
        (
            "POST",
            "/v1/cluster/snapshot",
            Value::Null,
            200,
            "action=\"make_snapshot\" what=\"on node 1\" outcome=\"done\"".to_owned(),
        ),
        (
            "PATCH",
            "/v1/locks/a",
            json!({"draining": true}),
            204,
            "action=\"configure\" what=\"the lock a: limit None, draining Some(true)\" outcome=\"done\"".to_owned(),
        ),
    ] {
        house.must(&admin, method, path, body, status).await;
        let left_out = match expected.ends_with("\"done\"") {
            true => "",
            false => " others_left_out=0",
        };
        assert_eq!(
            log.account(),
            [format!("{by} {expected}{left_out}")],
            "{method} {path}"
        );
    }

    // A rejected caller is logged, with the name that it claimed.
    let made_up = format!("lg_{:032x}_{:064x}", 1, 0xfeed_beef_u64);
    let stranger = Caller::with_token("stranger", &made_up);
    house
        .must(&stranger, "GET", "/v1/znodes/a", Value::Null, 401)
        .await;
    let refused = |by: &str, what: &str, outcome: &str, shown: &str, why: &str| {
        format!(
            "by={by} {from} action=\"refused\" what=\"{what}\" outcome=\"{outcome}\" shown=\"{shown}\" \
             why=\"{why}\" others_left_out=0"
        )
    };
    let what = "GET /v1/znodes/a";
    let name = format!("token {:032x}", 1);
    let why = "the token is not known, or was revoked";
    assert_eq!(
        log.account(),
        [refused("nobody", what, "unauthenticated", &name, why)]
    );
    house
        .must(&Caller::nobody(), "GET", "/v1/znodes/a", Value::Null, 401)
        .await;
    let why = "this needs a token, or a certificate that has a role";
    assert_eq!(
        log.account(),
        [refused("nobody", what, "unauthenticated", "no token", why)]
    );
    house
        .must(&admin, "PUT", "/v1/roles/weak", json!({"grants": []}), 200)
        .await;
    let weak = house
        .must(&admin, "POST", "/v1/tokens", json!({"role": "weak"}), 201)
        .await;
    log.account();
    let caller = Caller::with_token("weak", weak["token"].as_str().unwrap());
    house.must(&caller, "GET", "/metrics", Value::Null, 403).await;
    let by = format!("token {}", weak["id"].as_str().unwrap());
    let why = "this needs the right to read at /zookeeper/config";
    assert_eq!(
        log.account(),
        [refused(&by, "GET /metrics", "forbidden", &by, why)]
    );

    // Repeated forbidden requests, rejected early or late, do not fill the disk.
    let mut lines = 0;
    for _ in 0..100 {
        house.must(&caller, "GET", "/metrics", Value::Null, 403).await;
        let revoke = json!({"reason": "\u{1b}".repeat(1_000)});
        house
            .must(&caller, "POST", "/v1/locks/a/release-request", revoke, 403)
            .await;
        let told = log.account();
        assert!(told.iter().all(|line| line.len() < 2_000), "{told:?}");
        lines += told.len();
    }
    // Two periods, if the machine is slow.
    assert!(lines <= 40, "{lines} lines of 200 refusals");
    house.close().await;
}

/// Checks that no log line of any level contains a secret after all operations on tokens.
#[tokio::test]
async fn secrets_are_in_no_log() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_ansi(false)
        .with_max_level(tracing::Level::TRACE)
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let house = House::open().await;
    // A test that logged for the first time while the subscriber was installed may have cached that no subscriber is
    // interested.
    tracing::callsite::rebuild_interest_cache();
    let operator = Caller::with_token("operator", &house.operator);
    let secured = house
        .must(&operator, "POST", "/v1/access/secure", json!({}), 201)
        .await;
    let admin = secured["token"].as_str().unwrap();
    let caller = Caller::with_token("admin", admin);
    let made = house
        .must(&caller, "POST", "/v1/tokens", json!({"role": "admin"}), 201)
        .await;
    let made = made["token"].as_str().unwrap();
    house
        .must(
            &Caller::with_token("made", made),
            "GET",
            "/v1/tokens",
            Value::Null,
            200,
        )
        .await;
    let mixed = format!("{}{}", &admin[..35], &made[35..]);
    house
        .must(
            &Caller::with_token("mixed", &mixed),
            "GET",
            "/v1/tokens",
            Value::Null,
            401,
        )
        .await;
    house.close().await;
    let text = log.text();
    assert!(text.contains("lockgate::audit"), "something was logged");
    for secret in [house_secret(admin), house_secret(made)] {
        assert!(!text.contains(&secret), "a secret is in the log");
    }
}

fn house_secret(token: &str) -> String {
    let (_, secret) = token.rsplit_once('_').unwrap();
    secret[..16].to_owned()
}
