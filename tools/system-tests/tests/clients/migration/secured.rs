//! Source with TLS and required client certificates: a ZooKeeper server with a `secureClientPort`.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use local_cluster::ports::free_ports;
use tempfile::TempDir;

use super::client::Client;
use super::writers::create;
use super::{Running, Target, assert_same, has, wait_until};
use crate::expectations::skip;
use crate::installed::Java;

/// TLS settings for servers before 3.9, which otherwise speak only 1.2; clients without 1.3 are still served.
const NEWEST_PROTOCOL: &str = "ssl.protocol=TLSv1.3\n\
                          ssl.enabledProtocols=TLSv1.3,TLSv1.2\n\
                          ssl.ciphersuites=TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,\
                          TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\n";

/// TLS settings for servers that speak only 1.2, as those before 3.9 do by default.
const ONLY_1_2: &str = "ssl.protocol=TLSv1.2\nssl.enabledProtocols=TLSv1.2\n";

/// A single server with a plain and a TLS port.
struct Secured {
    process: Child,
    plain: String,
    protected: String,
    directory: TempDir,
}

impl Secured {
    /// Starts the server with certificates of its own authority.
    async fn start(tls: &str) -> Result<Self, String> {
        let java = Java::find()?;
        let directory = tempfile::Builder::new()
            .prefix("zookeeper-clients-")
            .tempdir()
            .unwrap();
        certificates(directory.path());
        let ports = free_ports(2).unwrap();
        let place = directory.path().display();
        let configuration = format!(
            "tickTime=500\n\
             minSessionTimeout=1000\n\
             maxSessionTimeout=60000\n\
             dataDir={place}/data\n\
             4lw.commands.whitelist=*\n\
             admin.enableServer=false\n\
             clientPort={}\n\
             clientPortAddress=127.0.0.1\n\
             secureClientPort={}\n\
             secureClientPortAddress=127.0.0.1\n\
             serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider\n\
             {tls}ssl.keyStore.location={place}/server.pem\n\
             ssl.trustStore.location={place}/ca.pem\n",
            ports[0], ports[1]
        );
        fs::create_dir(directory.path().join("data")).unwrap();
        fs::write(directory.path().join("zoo.cfg"), configuration).unwrap();
        let properties = [
            // The client with `super:secret` has all permissions.
            "-Dzookeeper.DigestAuthenticationProvider.superDigest=super:lK75jTNcA+U9vtVEw5vB51mj/w4=",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        ];
        let log = File::create(directory.path().join("log")).unwrap();
        let process = java
            .server(&properties, "org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(directory.path().join("zoo.cfg"))
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .process_group(0)
            .spawn()
            .unwrap();
        let server = Self {
            process,
            plain: format!("127.0.0.1:{}", ports[0]),
            protected: format!("localhost:{}", ports[1]),
            directory,
        };
        wait_until("the server serves", async || {
            Client::try_open(&server.plain).await.is_ok()
        })
        .await;
        Ok(server)
    }

    fn file(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }
}

impl Drop for Secured {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Issues certificates of an authority, the server and a client, and those of an untrusted authority.
fn certificates(place: &Path) {
    let other = place.join("other");
    fs::create_dir(&other).unwrap();
    let (place, other) = (place.to_str().unwrap(), other.to_str().unwrap());
    let node = [
        "--cluster",
        "zookeeper",
        "--node",
        "1",
        "--host",
        "localhost,127.0.0.1",
    ];
    for arguments in [
        &["ca", "--dir", place][..],
        &["ca", "--dir", other],
        &[&["node", "--dir", place], &node[..]].concat(),
        &["client", "--dir", place, "--name", "migrate"],
    ] {
        let program = env!("CARGO_BIN_EXE_lockgate-with-faults");
        let made = Command::new(program)
            .arg("cert")
            .args(arguments)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
    }
    // ZooKeeper expects key and certificate in one file.
    let read = |name: &str| fs::read_to_string(Path::new(place).join(name)).unwrap();
    let both = read("node-1.key") + &read("node-1.pem");
    fs::write(Path::new(place).join("server.pem"), both).unwrap();
}

#[tokio::test]
async fn source_with_tls_is_moved() {
    let source = match Secured::start(NEWEST_PROTOCOL).await {
        Ok(source) => source,
        Err(missing) => return skip("a server", &missing),
    };
    let target = Target::start().await;
    let mut client = Client::open(&source.plain).await;
    for path in ["/a", "/a/b", "/c"] {
        client.call(create(path, b"x", 0)).await.unwrap().unwrap();
    }

    let (ca, other) = (source.file("ca.pem"), source.file("other/ca.pem"));
    let (certificate, key) = (
        source.file("client-migrate.pem"),
        source.file("client-migrate.key"),
    );
    let run = async |tls: &[&str], what: &[&str]| {
        let options = [tls, what].concat();
        let tool = target.tool(std::slice::from_ref(&source.protected), &options);
        Running::start(tool).end().await
    };
    // Without TLS, with an untrusted server certificate, or without a client certificate: the tool fails, and
    // writes nothing.
    let soon = ["--once", "--patience", "1s"];
    for tls in [
        &[][..],
        &[
            "--from-ca",
            &other,
            "--from-cert",
            &certificate,
            "--from-key",
            &key,
        ],
        &["--from-ca", &ca],
    ] {
        assert_eq!(run(tls, &soon).await.1, Some(1), "{tls:?}");
    }
    let mut there = Client::open(&target.zookeeper()).await;
    assert!(!has(&mut there, "/a").await);

    let tls = ["--from-ca", &ca, "--from-cert", &certificate, "--from-key", &key];
    let (told, code) = run(&tls, &["--switch"]).await;
    assert_eq!(code, Some(0), "{told:#?}");
    assert_same(&source.plain, &target.zookeeper()).await;
}

#[tokio::test]
async fn source_that_speaks_tls_1_2_alone_is_moved() {
    let source = match Secured::start(ONLY_1_2).await {
        Ok(source) => source,
        Err(missing) => return skip("a server", &missing),
    };
    let target = Target::start().await;
    let mut client = Client::open(&source.plain).await;
    client.call(create("/a", b"x", 0)).await.unwrap().unwrap();
    let (ca, certificate, key) = (
        source.file("ca.pem"),
        source.file("client-migrate.pem"),
        source.file("client-migrate.key"),
    );
    let options = [
        "--from-ca",
        &ca,
        "--from-cert",
        &certificate,
        "--from-key",
        &key,
        "--switch",
    ];
    let tool = target.tool(std::slice::from_ref(&source.protected), &options);
    let (told, code) = Running::start(tool).end().await;
    assert_eq!(code, Some(0), "{told:#?}");
    assert_same(&source.plain, &target.zookeeper()).await;
}
