//! What a file and the environment may say, and that the samples tell the truth.

use super::*;

const SMALLEST: &str = "node_id = 1\n[members.1]\npeer = \"127.0.0.1:7500\"\nhttp = \"127.0.0.1:7400\"\n";

fn parse(text: &str, environment: &[(&str, &str)]) -> Result<ServeConfig, Vec<String>> {
    let look = |name: &str| {
        environment
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| (*value).to_owned())
    };
    ServeConfig::parse(text, Path::new("/base"), &look).map_err(|errors| errors.0)
}

#[test]
fn the_smallest_file_has_the_documented_defaults() {
    let config = parse(SMALLEST, &[]).unwrap();
    assert_eq!(config.http_listen, "127.0.0.1:7400");
    assert_eq!(config.node.data_dir, Path::new("/base/data"));
    assert_eq!(config.node.timing, raft_node::RaftTiming::default());
    assert_eq!(config.node.sessions, raft_node::SessionBounds::default());
    assert_eq!(config.node.limits, znode_store::Limits::default());
    assert_eq!(config.workers, default_workers());
}

#[test]
fn limits_are_counted_within_bounds() {
    let with = |limits: &str| parse(&format!("{SMALLEST}[limits]\n{limits}\n"), &[]);
    let config = with("data_bytes = 1000\nchildren = 5\nephemerals = 6\nsessions = 7").unwrap();
    let limits = znode_store::Limits {
        data_bytes: 1000,
        children: 5,
        ephemerals: 6,
        sessions: 7,
    };
    assert_eq!(config.node.limits, limits);
    let environment = [("LOCKGATE_LIMITS_SESSIONS", "9")];
    assert_eq!(parse(SMALLEST, &environment).unwrap().node.limits.sessions, 9);
    for (limits, error) in [
        ("children = 0", "limits.children: must be at least 1"),
        (
            "sessions = 4294967296",
            "limits.sessions: must be at most 4294967295",
        ),
        ("child = 5", "limits.child: there is no such setting"),
        (
            "data_bytes = 1048576",
            "the most data of a znode must be 1 to 1048575 bytes",
        ),
    ] {
        assert_eq!(with(limits).unwrap_err(), [error], "{limits}");
    }
}

#[test]
fn the_marks_of_a_disk_follow_each_other() {
    let with = |disk: &str| parse(&format!("{SMALLEST}[disk]\n{disk}\n"), &[]);
    assert_eq!(
        parse(SMALLEST, &[]).unwrap().node.disk,
        raft_node::DiskConfig::default()
    );
    let disk = with("low_water_bytes = 1000\nstall_ms = 30").unwrap().node.disk;
    assert_eq!((disk.low_water_bytes, disk.resume_bytes), (1000, 1250));
    assert_eq!(disk.stall, Duration::from_millis(30));
    for (disk, error) in [
        (
            "low_water_bytes = 1000\nresume_bytes = 999",
            "disk.resume_bytes must be at least disk.low_water_bytes",
        ),
        (
            "segment_bytes = 1000",
            "disk.segment_bytes: must be 4194304 to 268435456",
        ),
    ] {
        assert_eq!(with(disk).unwrap_err(), [error], "{disk}");
    }
}

#[test]
fn the_environment_overrides_the_file() {
    let config = parse(
        SMALLEST,
        &[
            ("LOCKGATE_RAFT_HEARTBEAT_MS", "70"),
            ("LOCKGATE_NODE_ID", "2"),
            ("LOCKGATE_MEMBERS", "1=a:1/a:2, 2=b:1/b:2"),
            ("LOCKGATE_DATA_DIR", "/elsewhere"),
        ],
    )
    .unwrap();
    assert_eq!(config.node.timing.heartbeat, Duration::from_millis(70));
    assert_eq!(config.node.node_id, 2);
    assert_eq!(config.node.members[&2].peer, "b:1");
    assert_eq!(config.http_listen, "b:2");
    assert_eq!(config.node.data_dir, Path::new("/elsewhere"));
}

#[test]
fn all_problems_are_named_at_once() {
    let text = "node_id = 4\nworker = 2\nworkers = 0\n[raft]\nheartbeat_ms = 500\nheartbeet_ms = 1\n\
                [sessions]\nmin_ms = \"2s\"\n[members.1]\npeer = \"nowhere\"\nhttp = \"a:1\"\n";
    assert_eq!(
        parse(text, &[]).unwrap_err(),
        [
            "members.1: \"nowhere\" is not of the form HOST:PORT",
            "sessions.min_ms: must be a whole number, not negative",
            "node 4 is not among the members; the shortest election timeout must be at least three heartbeats",
            "workers: must be 1 to 1024",
            "raft.heartbeet_ms: there is no such setting",
            "worker: there is no such setting",
        ]
    );
    assert_eq!(
        parse("", &[]).unwrap_err(),
        ["node_id: is required", "members: at least one is required"]
    );
    let broken = parse("node_id = = 1", &[]).unwrap_err();
    assert!(broken[0].contains("line 1"), "{broken:?}");
}

#[test]
fn access_is_required_or_not_or_as_it_is_exposed() {
    let with = |access: &str| parse(&format!("{SMALLEST}[access]\n{access}\n"), &[]);
    assert_eq!(parse(SMALLEST, &[]).unwrap().access_required, None);
    assert_eq!(with("required = true").unwrap().access_required, Some(true));
    assert_eq!(with("required = false").unwrap().access_required, Some(false));
    let wrong = with("required = \"yes\"").unwrap_err();
    assert_eq!(wrong, ["access.required: must be true or false"]);
    let environment = [("LOCKGATE_ACCESS_REQUIRED", "true")];
    assert_eq!(parse(SMALLEST, &environment).unwrap().access_required, Some(true));
}

#[test]
fn tls_is_there_as_a_whole_or_not_at_all() {
    let base = "node_id = 1\n[members.1]\npeer = \"a:1\"\nhttp = \"a:2\"\n";
    assert_eq!(parse(base, &[]).unwrap().tls, None);
    let whole = "[tls]\ncertificate = \"c\"\nkey = \"k\"\nca = \"a\"\n";
    let tls = parse(&format!("{base}{whole}"), &[]).unwrap().tls.unwrap();
    assert_eq!(tls.clients, ClientCertificates::Optional(tls.files.ca.clone()));
    let more = "client_ca = \"/b\"\nclient_certificates = \"required\"\n";
    let tls = parse(&format!("{base}{whole}{more}"), &[]).unwrap().tls.unwrap();
    assert_eq!(tls.clients, ClientCertificates::Required("/b".into()));
    for (lines, wrong) in [
        (
            "certificate = \"c\"\nca = \"a\"",
            "tls.key: is required with the others of certificate, key and ca",
        ),
        (
            "certificate = \"c\"\nkey = \"k\"",
            "tls.ca: is required with the others of certificate, key and ca",
        ),
        (
            "client_ca = \"c\"",
            "tls.certificate: is required where other settings of [tls] are given",
        ),
        (
            "peer_key = \"k\"",
            "tls.peer_certificate: is required with the others of peer_certificate, peer_key and peer_ca",
        ),
    ] {
        assert_eq!(
            parse(&format!("{base}[tls]\n{lines}\n"), &[]).unwrap_err(),
            [wrong]
        );
    }
    let wrong = parse(&format!("{base}{whole}client_certificates = \"some\"\n"), &[]).unwrap_err();
    assert_eq!(
        wrong,
        ["tls.client_certificates: is \"optional\", \"required\" or \"ignored\""]
    );
}

/// The samples in `cluster/`: as they stand they work, every setting there is stands in them, and what
/// they give as the default in a line that is commented out is the default.
#[test]
fn the_sample_files_tell_the_truth() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cluster");
    for id in 1..=3 {
        let text = std::fs::read_to_string(samples.join(format!("node-{id}.toml"))).unwrap();
        let none = |_: &str| None;
        let as_it_stands = ServeConfig::parse(&text, Path::new(""), &none).unwrap();
        assert_eq!(as_it_stands.node.node_id, id);
        assert_eq!(as_it_stands.node.members.len(), 3);

        // A setting that is commented out is "#key = value", prose is "# like this".
        let uncommented: String = text
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(setting) if !setting.is_empty() && !setting.starts_with(' ') => setting,
                _ => line,
            })
            .flat_map(|line| [line, "\n"])
            .collect();
        let (uncommented_config, known) = ServeConfig::parse_known(&uncommented, Path::new(""), &none);
        let mut with_defaults = uncommented_config.unwrap();
        let table = uncommented.parse::<toml::Table>().unwrap();
        for key in known {
            let value = match key.split_once('.') {
                None => table.get(key),
                Some((section, key)) => table.get(section).and_then(|section| section.get(key)),
            };
            assert!(value.is_some(), "node-{id}.toml does not mention {key}");
        }
        // These have no fixed default; the samples show an example.
        with_defaults.pid_file = None;
        with_defaults.node.peer_listen = None;
        with_defaults.workers = as_it_stands.workers;
        with_defaults.access_required = None;
        assert_eq!(format!("{with_defaults:?}"), format!("{as_it_stands:?}"));
    }
}
