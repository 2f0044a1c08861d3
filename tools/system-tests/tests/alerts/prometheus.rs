//! A real Prometheus on loopback with short scrape and evaluation intervals. It ends with the test.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::process::{Child, Command, Stdio};

use local_cluster::ports::free_ports;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::rules;
use crate::harness::eventually;

/// Environment variable that makes a missing Prometheus an error.
const REQUIRED_VARIABLE: &str = "LOCKGATE_PROMETHEUS";

/// Scrape and evaluation interval.
const EVERY: &str = "500ms";

/// Cluster to scrape.
pub struct Job<'a> {
    /// Job name, which begins with "lockgate".
    pub name: &'a str,
    /// `https` or `http`.
    pub scheme: &'a str,
    /// HTTP addresses of the nodes.
    pub targets: Vec<String>,
}

/// Running Prometheus server.
pub struct Prometheus {
    child: Child,
    address: String,
    _dir: TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a `GET` in HTTP/1.0, so that the response is not chunked, however long it is.
async fn get(address: &str, path: &str) -> io::Result<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let head_ends = answer.windows(4).position(|end| end == b"\r\n\r\n");
    let status = answer
        .get(9..12)
        .and_then(|status| str::from_utf8(status).ok()?.parse().ok());
    match (status, head_ends) {
        (Some(status), Some(at)) => Ok((status, answer.split_off(at + 4))),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Prints that a program is missing, or fails if it is required.
fn missing(program: &str) {
    let required = std::env::var(REQUIRED_VARIABLE).is_ok_and(|value| value == "required");
    assert!(!required, "{program} is not installed (Debian: prometheus)");
    println!("skipped: {program} is not installed (Debian: prometheus)");
}

/// Checks the rules with promtool; `None` if it is not installed.
pub fn check_rules(path: &std::path::Path) -> Option<Result<String, String>> {
    promtool("check", path)
}

/// Runs promtool's unit tests of rules; `None` if it is not installed.
pub fn test_rules(path: &std::path::Path) -> Option<Result<String, String>> {
    promtool("test", path)
}

fn promtool(command: &str, path: &std::path::Path) -> Option<Result<String, String>> {
    let checked = Command::new("promtool")
        .args([command, "rules"])
        .arg(path)
        .output();
    let Ok(output) = checked else {
        missing("promtool");
        return None;
    };
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Some(match output.status.success() {
        true => Ok(said),
        false => Err(said),
    })
}

impl Prometheus {
    /// Starts a server that scrapes these jobs; `None` if Prometheus is not installed.
    pub async fn start(jobs: &[Job<'_>]) -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let mut config = format!(
            "global:\n  scrape_interval: {EVERY}\n  scrape_timeout: {EVERY}\n  evaluation_interval: {EVERY}\n\
             rule_files: [alerts.yml]\nscrape_configs:\n"
        );
        for job in jobs {
            write!(
                config,
                "  - job_name: {}\n    scheme: {}\n    tls_config: {{ insecure_skip_verify: true }}\n    \
                 static_configs:\n      - targets: {:?}\n",
                job.name, job.scheme, job.targets
            )
            .unwrap();
        }
        fs::write(dir.path().join("prometheus.yml"), config).unwrap();
        fs::write(dir.path().join("alerts.yml"), rules::hastened()).unwrap();
        let [port] = free_ports(1).unwrap()[..] else {
            unreachable!("one port was requested")
        };
        let address = format!("127.0.0.1:{port}");
        let log = fs::File::create(dir.path().join("log")).unwrap();
        let child = Command::new("prometheus")
            .arg(format!(
                "--config.file={}",
                dir.path().join("prometheus.yml").display()
            ))
            .arg(format!(
                "--storage.tsdb.path={}",
                dir.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            // Samples older than a window must not count as current.
            .arg("--query.lookback-delta=5s")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        let Ok(child) = child else {
            missing("prometheus");
            return None;
        };
        let prometheus = Self {
            child,
            address,
            _dir: dir,
        };
        let log = prometheus._dir.path().join("log");
        eventually("Prometheus is ready", async || {
            let ready = get(&prometheus.address, "/-/ready").await;
            if let Ok(said) = fs::read_to_string(&log)
                && said.contains("level=error")
            {
                panic!("{said}");
            }
            ready.is_ok_and(|(status, _)| status == 200)
        })
        .await;
        Some(prometheus)
    }

    async fn ask(&self, path: &str) -> Value {
        let (status, body) = get(&self.address, path).await.expect("Prometheus answers");
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).expect("Prometheus answers with JSON")
    }

    /// Returns the firing alerts, each with its job.
    pub async fn firing(&self) -> BTreeSet<(String, String)> {
        let answer = self.ask("/api/v1/alerts").await;
        let alerts = answer["data"]["alerts"]
            .as_array()
            .expect("a list of alerts")
            .iter();
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        firing
            .map(|alert| (text(&alert["labels"]["job"]), text(&alert["labels"]["alertname"])))
            .collect()
    }

    /// Waits until an alert fires.
    pub async fn wait_for(&self, job: &str, alert: &str) {
        let wanted = (job.to_owned(), alert.to_owned());
        eventually(&format!("{alert} fires for {job}"), async || {
            self.firing().await.contains(&wanted)
        })
        .await;
    }

    /// Waits until an expression has a result.
    pub async fn wait_scraped(&self, expression: &str) {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/api/v1/query?query={encoded}");
        eventually(&format!("Prometheus knows {expression}"), async || {
            let answer = self.ask(&path).await;
            let found = answer["data"]["result"].as_array();
            found.is_some_and(|found| !found.is_empty())
        })
        .await;
    }
}
