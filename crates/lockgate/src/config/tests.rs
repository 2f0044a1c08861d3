//! Tests of the file and the environment, and of the sample files.

use std::collections::BTreeSet;
use std::time::Duration;

use transport_security::{ClientCertificates, OldestVersion};

use super::settings::{self, DefaultValue, Setting};
use super::*;

const SMALLEST: &str = "node_id = 1\n[members.1]\npeer = \"127.0.0.1:7500\"\nhttp = \"127.0.0.1:7400\"\n";

fn parse(text: &str, environment: &[(&str, &str)]) -> Result<ServeConfig, Vec<String>> {
    let environment = Environment::new(environment.iter().copied(), Some("lockgate-2"));
    match ServeConfig::parse(text, Path::new("/base"), &environment) {
        Ok(loaded) => Ok(loaded.config),
        Err(errors) => Err(errors.0.iter().map(ConfigProblem::to_string).collect()),
    }
}

/// Table of the members, for files with other lines before it.
const MEMBER: &str = "[members.1]\npeer = \"127.0.0.1:7500\"\nhttp = \"127.0.0.1:7400\"\n";

#[test]
fn smallest_file_has_the_documented_defaults() {
    let config = parse(SMALLEST, &[]).unwrap();
    assert_eq!(config.http_listen, "127.0.0.1:7400");
    assert_eq!(config.node.raft.data_dir, Path::new("/base/data"));
    assert_eq!(config.node.raft.timing, lock_node::RaftTiming::default());
    assert_eq!(config.node.sessions, lock_node::SessionBounds::default());
    assert_eq!(config.node.limits, znode_store::Limits::default());
    assert_eq!(config.workers, default_workers());
}

#[test]
fn each_front_end_has_its_own_path_bounds() {
    let default = parse(SMALLEST, &[]).unwrap();
    assert_eq!(default.zookeeper.paths, znode_store::PathBounds::ALL);
    let http = znode_store::PathBounds {
        bytes: 8192,
        depth: 4096,
    };
    assert_eq!((default.http.paths, default.admin.paths), (http, http));
    let set = "[http]\nmax_path_bytes = 100\nmax_path_depth = 5\n[zookeeper]\nmax_path_bytes = 200\nmax_path_depth = 6\n";
    let config = parse(&format!("{SMALLEST}{set}"), &[]).unwrap();
    let bounds = |bytes, depth| znode_store::PathBounds { bytes, depth };
    assert_eq!(config.http.paths, bounds(100, 5));
    assert_eq!(config.admin.paths, bounds(100, 5));
    assert_eq!(config.zookeeper.paths, bounds(200, 6));
    for (set, error) in [
        (
            "[http]\nmax_path_bytes = 8193",
            "line 6: http.max_path_bytes: must be a whole number, 1 to 8192, and is 8193",
        ),
        (
            "[zookeeper]\nmax_path_depth = 0",
            "line 6: zookeeper.max_path_depth: must be a whole number, 1 to 524288, and is 0",
        ),
    ] {
        let wrong = parse(&format!("{SMALLEST}{set}\n"), &[]).unwrap_err();
        assert_eq!(wrong, [error]);
    }
}

#[test]
fn limits_have_bounds() {
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
        (
            "children = 0",
            "line 6: limits.children: must be a whole number, 1 to 4294967295, and is 0",
        ),
        (
            "sessions = 4294967296",
            "line 6: limits.sessions: must be a whole number, 1 to 4294967295, and is 4294967296",
        ),
        ("child = 5", "line 6: limits.child: unknown setting"),
        (
            "data_bytes = 1048576",
            "line 6: limits.data_bytes: must be a whole number, 1 to 1048575, and is 1048576",
        ),
    ] {
        assert_eq!(with(limits).unwrap_err(), [error], "{limits}");
    }
}

#[test]
fn resume_threshold_of_the_disk_follows_low_water() {
    let with = |disk: &str| parse(&format!("{SMALLEST}[disk]\n{disk}\n"), &[]);
    assert_eq!(
        parse(SMALLEST, &[]).unwrap().node.raft.disk,
        lock_node::DiskConfig::default()
    );
    let disk = with("low_water_bytes = 1000\nstall_ms = 30")
        .unwrap()
        .node
        .raft
        .disk;
    assert_eq!((disk.low_water_bytes, disk.resume_bytes), (1000, 1250));
    assert_eq!(disk.stall, Duration::from_millis(30));
    for (disk, error) in [
        (
            "low_water_bytes = 1000\nresume_bytes = 999",
            "line 7: disk.resume_bytes: must be at least disk.low_water_bytes (1000), and is 999",
        ),
        (
            "segment_bytes = 1000",
            "line 6: disk.segment_bytes: must be a whole number, 4194304 to 268435456, and is 1000",
        ),
    ] {
        assert_eq!(with(disk).unwrap_err(), [error], "{disk}");
    }
}

#[test]
fn environment_overrides_the_file() {
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
    assert_eq!(config.node.raft.timing.heartbeat, Duration::from_millis(70));
    assert_eq!(config.node.raft.node_id, 2);
    assert_eq!(config.node.raft.members[&2].peer, "b:1");
    assert_eq!(config.http_listen, "b:2");
    assert_eq!(config.node.raft.data_dir, Path::new("/elsewhere"));
}

#[test]
fn launcher_and_node_read_the_same_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let settings = local_cluster::secured::SETTINGS;
    let mut nodes =
        local_cluster::layout::create(dir.path(), 2, local_cluster::Ports::Free, settings).unwrap();
    nodes.push(local_cluster::layout::add(&nodes, 3).unwrap());
    let mut without_zookeeper = nodes[0].clone();
    let file = without_zookeeper.config_file();
    let text = std::fs::read_to_string(&file).unwrap();
    let own = without_zookeeper.zookeeper.take().unwrap();
    std::fs::write(&file, text.replace(&own, NOT_SERVED)).unwrap();
    nodes[0] = without_zookeeper;
    // A configuration without the address has the default one.
    let file = nodes[1].config_file();
    let text = std::fs::read_to_string(&file).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("zookeeper_listen"));
    std::fs::write(&file, lines.collect::<Vec<_>>().join("\n")).unwrap();
    nodes[1].zookeeper = Some(format!("127.0.0.1:{ZOOKEEPER_PORT}"));

    assert_eq!(
        local_cluster::layout::read(&dir.path().canonicalize().unwrap()).unwrap(),
        nodes
    );
    for node in nodes {
        let text = std::fs::read_to_string(node.config_file()).unwrap();
        let config = parse(&text, &[]).unwrap();
        assert_eq!(config.node.raft.node_id, node.id);
        assert_eq!(config.http_listen, node.http);
        assert_eq!(config.node.raft.members[&node.id].peer, node.peer);
        assert_eq!(config.zookeeper_listen, node.zookeeper);
        assert_eq!(config.access_required, Some(true));
        assert!(node.requires_access);
    }
}

/// All nodes of a set have the same environment, except for their host names.
#[test]
fn node_id_comes_from_the_host_name() {
    let environment = [
        ("LOCKGATE_NODE_ID", "hostname"),
        (
            "LOCKGATE_MEMBERS",
            "1..3=lockgate-{ordinal}.peers:7500/lockgate-{ordinal}.peers:7400",
        ),
    ];
    let node = parse("", &environment).unwrap().node;
    assert_eq!(node.raft.node_id, 3, "lockgate-2 is the third");
    assert_eq!(node.raft.members.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(node.raft.members[&1].peer, "lockgate-0.peers:7500");
    assert_eq!(node.raft.members[&3].http, "lockgate-2.peers:7400");
    let in_file = "node_id = \"hostname\"\n[members.3]\npeer = \"a:1\"\nhttp = \"a:2\"\n";
    assert_eq!(parse(in_file, &[]).unwrap().node.raft.node_id, 3);
    for wrong in [
        "0..2=a:1/a:2",
        "3..1=a:1/a:2",
        "1..1000=a:1/a:2",
        "1=a:1",
        "a=a:1/a:2",
    ] {
        let errors = parse("node_id = 1", &[("LOCKGATE_MEMBERS", wrong)]).unwrap_err();
        assert_eq!(
            errors,
            [format!(
                "LOCKGATE_MEMBERS: members: {wrong:?} is not of the form ID=PEER/HTTP or FIRST..LAST=PEER/HTTP"
            )]
        );
    }
    let nameless = Environment::new([("LOCKGATE_NODE_ID", "hostname")], Some("database"));
    let errors = ServeConfig::parse(MEMBER, Path::new(""), &nameless).unwrap_err();
    assert_eq!(
        errors.to_string(),
        "LOCKGATE_NODE_ID: node_id: is \"hostname\", but this machine's name, \"database\", does not end in a number"
    );
}

#[test]
fn all_errors_are_reported_at_once() {
    let text = "node_id = 4\nworker = 2\nworkers = 0\n[raft]\nheartbeat_ms = 500\nheartbeet_ms = 1\n\
                [sessions]\nmin_ms = \"2s\"\nmax_ms = 1.5\n[rafft]\nx = 1\n[members.1]\npeer = \"nowhere\"\nhttp = \"a:1\"\n\
                [members.x]\n[members.2]\npeer = \"a:3\"\nhtpp = \"a:4\"\n";
    let environment = [
        ("LOCKGATE_RAFT_ELECTION_MIN_MS", "soon"),
        ("LOCKGATE_SERVICE_HOST", "10.0.0.1"),
    ];
    assert_eq!(
        parse(text, &environment).unwrap_err(),
        [
            "line 2: worker: unknown setting; did you mean workers?",
            "line 3: workers: must be a whole number, 1 to 1024, and is 0",
            "line 6: raft.heartbeet_ms: unknown setting; did you mean raft.heartbeat_ms?",
            "line 8: sessions.min_ms: must be a whole number of milliseconds, 1 to 31536000000, and is \"2s\"",
            "line 9: sessions.max_ms: must be a whole number of milliseconds, 1 to 31536000000, and is 1.5",
            "line 10: rafft: unknown setting",
            "line 12: members.1: \"nowhere\" is not of the form HOST:PORT",
            "line 15: members.x: the id of a node is a number from 1",
            "line 16: members.2: has no http, which must be \"HOST:PORT\"",
            "line 18: members.2.htpp: unknown setting: a member has peer and http",
            "LOCKGATE_RAFT_ELECTION_MIN_MS: raft.election_min_ms: must be a whole number of milliseconds, 1 to 31536000000, \
             and is soon",
        ]
    );
    assert_eq!(
        parse("", &[]).unwrap_err(),
        ["node_id: is required", "members: at least one is required"]
    );
    let broken = parse("node_id = = 1\nname = 'a\n", &[]).unwrap_err();
    assert!(broken.len() >= 2, "{broken:?}");
    assert!(broken[0].starts_with("line 1: not TOML: "), "{broken:?}");
    assert!(
        broken.last().unwrap().starts_with("line 2: not TOML: "),
        "{broken:?}"
    );
}

#[test]
fn contradiction_names_both_settings() {
    for (lines, errors) in [
        (
            "[raft]\nheartbeat_ms = 500",
            &["raft.election_min_ms: must be at least three times raft.heartbeat_ms (500), and is 300"][..],
        ),
        (
            "[raft]\nelection_max_ms = 250\nelection_min_ms = 260",
            &["line 3: raft.election_max_ms: must be more than raft.election_min_ms (260), and is 250"],
        ),
        (
            "[raft]\nelection_min_ms = 3000\nelection_max_ms = 11000",
            &[
                "propose_timeout_ms: must be at least raft.election_max_ms (11000), and is 10000: a proposal has to outlast an \
                 election",
                "sessions.min_ms: must be at least twice raft.election_max_ms (11000), and is 2000",
            ],
        ),
        (
            "[sessions]\ndefault_ms = 1000",
            &[
                "line 3: sessions.default_ms: must lie between sessions.min_ms (2000) and sessions.max_ms (300000), and is 1000",
            ],
        ),
        (
            "admin_listen = \"localhost:7400\"\nzookeeper_listen = \"0.0.0.0:7500\"",
            &[
                "line 2: admin_listen: HTTP and administration would both listen at localhost:7400",
                "line 3: zookeeper_listen: peers and clients of ZooKeeper would both listen at 0.0.0.0:7500",
            ],
        ),
        (
            "[http]\nmax_large_bodies_bytes = 1000000",
            &[
                "line 3: http.max_large_bodies_bytes: http.max_data_body_bytes (2097152) is more than \
               http.max_large_bodies_bytes (1000000), so the largest never fits",
            ],
        ),
    ] {
        let found = parse(&format!("node_id = 1\n{lines}\n{MEMBER}"), &[]).unwrap_err();
        assert_eq!(found, errors, "{lines}");
    }
    let two = "node_id = 1\nadmin_listen = \"a:4\"\n[members.1]\npeer = \"a:1\"\nhttp = \"a:2\"\n\
               [members.2]\npeer = \"a:3\"\nhttp = \"a:4\"\n[members.3]\npeer = \"a:2\"\nhttp = \"a:5\"\n";
    assert_eq!(
        parse(two, &[]).unwrap_err(),
        ["line 9: members.3: has an address of member 1"]
    );
    let two = two.replace("a:2\"\nhttp = \"a:5", "a:6\"\nhttp = \"a:5");
    assert_eq!(
        parse(&two, &[]).unwrap_err(),
        ["line 2: admin_listen: a:4 is an address of member 2"]
    );
}

#[test]
fn setting_without_effect_is_a_warning() {
    let warnings = |text: &str, environment: &[(&str, &str)]| {
        let environment = Environment::new(environment.iter().copied(), None);
        let loaded = ServeConfig::parse(text, Path::new(""), &environment).unwrap();
        let warnings = loaded.warnings.iter().map(ConfigProblem::to_string);
        warnings.collect::<Vec<_>>()
    };
    let text = format!(
        "{SMALLEST}[http]\nmax_connections = 10\nmax_connections_per_address = 20\n[admin]\nmax_connections = 5\n"
    );
    let environment = [
        ("LOCKGATE_RAFT_HEARTBEET_MS", "1"),
        ("LOCKGATE_PORT_7400_TCP_ADDR", "10.0.0.1"),
        ("LOCKGATE_TOKEN", "secret"),
    ];
    assert_eq!(
        warnings(&text, &environment),
        [
            "line 7: http.max_connections_per_address: is more than http.max_connections (10) and has no effect",
            "line 9: admin.max_connections: has no effect without admin_listen",
            "LOCKGATE_RAFT_HEARTBEET_MS: unknown setting; did you mean LOCKGATE_RAFT_HEARTBEAT_MS?",
        ]
    );
}

#[test]
fn access_is_required_as_configured() {
    let with = |access: &str| parse(&format!("{SMALLEST}[access]\n{access}\n"), &[]);
    assert_eq!(parse(SMALLEST, &[]).unwrap().access_required, None);
    assert_eq!(with("required = true").unwrap().access_required, Some(true));
    assert_eq!(with("required = false").unwrap().access_required, Some(false));
    let wrong = with("required = \"yes\"").unwrap_err();
    assert_eq!(
        wrong,
        ["line 6: access.required: must be true or false, and is \"yes\""]
    );
    let environment = [("LOCKGATE_ACCESS_REQUIRED", "true")];
    assert_eq!(parse(SMALLEST, &environment).unwrap().access_required, Some(true));
}

#[test]
fn tls_needs_all_of_its_files() {
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
            "tls.key: is required: certificate, key and ca belong together",
        ),
        (
            "certificate = \"c\"\nkey = \"k\"",
            "tls.ca: is required: certificate, key and ca belong together",
        ),
        (
            "client_ca = \"c\"",
            "tls.certificate: is required if another setting of [tls] is given",
        ),
        (
            "zookeeper_oldest_version = \"1.2\"",
            "tls.certificate: is required if another setting of [tls] is given",
        ),
        (
            "zookeeper_oldest_version = \"1.1\"",
            "line 6: tls.zookeeper_oldest_version: must be \"1.3\" or \"1.2\", and is \"1.1\"",
        ),
        (
            "peer_key = \"k\"",
            "tls.peer_certificate: is required: peer_certificate, peer_key and peer_ca belong together",
        ),
    ] {
        assert_eq!(
            parse(&format!("{base}[tls]\n{lines}\n"), &[]).unwrap_err(),
            [wrong]
        );
    }
    assert_eq!(tls.zookeeper_oldest, OldestVersion::Tls13);
    let older = "zookeeper_oldest_version = \"1.2\"\n";
    let tls = parse(&format!("{base}{whole}{older}"), &[]).unwrap().tls.unwrap();
    assert_eq!(tls.zookeeper_oldest, OldestVersion::Tls12);
    let wrong = parse(&format!("{base}{whole}client_certificates = \"some\"\n"), &[]).unwrap_err();
    assert_eq!(
        wrong,
        [
            "line 9: tls.client_certificates: must be \"optional\", \"required\" or \"ignored\", and is \"some\""
        ]
    );
}

#[test]
fn plain_zookeeper_port_needs_tls() {
    let with = |plain: &str, tls: &str| {
        let text = format!(
            "node_id = 1\nhttp_listen = \"10.0.0.1:7400\"\n{plain}\n[members.1]\npeer = \"a:1\"\nhttp = \"a:2\"\n{tls}"
        );
        parse(&text, &[])
    };
    let tls = "[tls]\ncertificate = \"c\"\nkey = \"k\"\nca = \"a\"\n";
    assert_eq!(with("", tls).unwrap().zookeeper_plain_listen, None);
    assert_eq!(
        with("zookeeper_plain_listen = \"off\"", "")
            .unwrap()
            .zookeeper_plain_listen,
        None
    );
    let config = with("zookeeper_plain_listen = \"10.0.0.1:2182\"", tls).unwrap();
    assert_eq!(config.zookeeper_listen.as_deref(), Some("10.0.0.1:2181"));
    assert_eq!(config.zookeeper_plain_listen.as_deref(), Some("10.0.0.1:2182"));
    for (plain, tls, wrong) in [
        (
            "10.0.0.1:2182",
            "",
            "needs [tls]: without it zookeeper_listen has no TLS either",
        ),
        (
            "10.0.0.1:2181",
            tls,
            "clients of ZooKeeper and clients of ZooKeeper without TLS would both listen at 10.0.0.1:2181",
        ),
        (
            "0.0.0.0:7400",
            tls,
            "HTTP and clients of ZooKeeper without TLS would both listen at 0.0.0.0:7400",
        ),
        ("nowhere", tls, "\"nowhere\" is not of the form HOST:PORT"),
    ] {
        let errors = with(&format!("zookeeper_plain_listen = \"{plain}\""), tls).unwrap_err();
        assert_eq!(errors, [format!("line 3: zookeeper_plain_listen: {wrong}")]);
    }
    // Missing files of certificates are the error to fix, not the port.
    let errors = with(
        "zookeeper_plain_listen = \"10.0.0.1:2182\"",
        "[tls]\nkey = \"k\"\n",
    )
    .unwrap_err();
    assert!(errors.iter().all(|error| error.contains("tls.")), "{errors:?}");
}

fn root(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Checks that the files that are printed from the table are current; `UPDATE_GOLDENFILES=1` writes them.
#[test]
fn printed_files_are_current() {
    let mut files = vec![(
        "docs/reference/configuration.md".to_owned(),
        reference::markdown(),
    )];
    files.extend((1..=3).map(|id| (format!("cluster/node-{id}.toml"), reference::sample(id))));
    for (path, printed) in files {
        if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
            std::fs::write(root(&path), &printed).unwrap();
        }
        let there = std::fs::read_to_string(root(&path)).unwrap_or_default();
        assert!(
            there == printed,
            "{path} differs from the table: UPDATE_GOLDENFILES=1 writes it"
        );
    }
}

/// Checks that the reader and the table have the same settings.
#[test]
fn table_has_a_row_for_each_setting() {
    let environment = Environment::empty();
    let mut settings = SettingsReader::new(SMALLEST, &environment);
    settings.read(Path::new(""));
    let rows: BTreeSet<_> = settings::all()
        .map(|setting| setting.name)
        .chain(["members"])
        .collect();
    assert_eq!(settings.read, rows);
    assert_eq!(settings::all().count() + 1, rows.len(), "a name occurs twice");
    for Setting {
        name,
        meaning,
        default,
        ..
    } in settings::all()
    {
        assert!(
            meaning.ends_with(['.', ')']) && meaning.len() > 20,
            "{name} is not explained"
        );
        let literal = match default {
            DefaultValue::Literal(literal) => literal,
            _ => continue,
        };
        let read = format!("x = {literal}").parse::<toml::Table>();
        assert!(read.is_ok(), "the default of {name} is no TOML");
    }
    for section in settings::SECTIONS {
        let prefix = section.name;
        let belongs =
            |setting: &Setting| setting.name.split_once('.').map_or("", |(section, _)| section) == prefix;
        assert!(
            section.settings.iter().all(belongs),
            "a setting of [{prefix}] has another section in its name"
        );
    }
}

/// Checks that the samples in `cluster/` can be used unchanged, have every setting, and show defaults in
/// lines that are commented out.
#[test]
fn sample_files_show_the_defaults() {
    let load = |text: &str| ServeConfig::parse(text, Path::new(""), &Environment::empty()).unwrap();
    for id in 1..=3 {
        let text = reference::sample(id);
        let unchanged = load(&text);
        assert_eq!(unchanged.warnings, []);
        let unchanged = unchanged.config;
        assert_eq!(unchanged.node.raft.node_id, id);
        assert_eq!(unchanged.node.raft.members.len(), 3);

        // A setting that is commented out is "#key = value", prose is "# like this".
        let uncommented: String = text
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(setting) if !setting.is_empty() && !setting.starts_with(' ') => setting,
                _ => line,
            })
            .flat_map(|line| [line, "\n"])
            .collect();
        let Loaded { config, set, .. } = load(&uncommented);
        for setting in settings::all() {
            assert!(
                set.contains_key(setting.name),
                "node-{id}.toml does not mention {}",
                setting.name
            );
        }
        let mut with_defaults = config;
        // These have no fixed default; the samples show an example.
        with_defaults.pid_file = None;
        with_defaults.node.raft.peer_listen = None;
        with_defaults.workers = unchanged.workers;
        with_defaults.access_required = None;
        assert_eq!(format!("{with_defaults:?}"), format!("{unchanged:?}"));
    }
}
