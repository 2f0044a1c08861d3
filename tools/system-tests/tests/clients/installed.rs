//! Prerequisites of the programs that this machine may have: Java with Debian's jars, Python with kazoo.
//! Installs nothing; a missing prerequisite is reported with the name of its package.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command as StdCommand, Stdio};
use std::sync::OnceLock;

use tokio::process::Command;

use crate::programs::directory;

/// Directory in which Debian's packages install jars.
const JARS: &str = "/usr/share/java";

/// Jars that the programs and ZooKeeper's server need beyond their own class paths, with the packages.
const WANTED: [(&str, &str); 9] = [
    ("zookeeper.jar", "libzookeeper-java"),
    ("zookeeper-jute.jar", "libzookeeper-java"),
    ("curator-client.jar", "libcurator-client-java"),
    ("curator-framework.jar", "libcurator-framework-java"),
    ("curator-recipes.jar", "libcurator-recipes-java"),
    ("guava.jar", "libguava-java"),
    ("slf4j-simple.jar", "libslf4j-java"),
    // Needed by the TLS code of ZooKeeper's server, whose manifest does not name them.
    ("netty-codec.jar", "libnetty-java"),
    ("netty-resolver.jar", "libnetty-java"),
];

/// Options of every JVM in these tests: on two cores and for a few seconds, a quick start matters most.
const JVM: [&str; 5] = [
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Xmx256m",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
];

/// Java with ZooKeeper's and Curator's jars and the compiled programs.
#[derive(Debug, Clone)]
pub struct Java {
    class_path: String,
    classes: PathBuf,
}

impl Java {
    /// Finds all of these, and compiles the programs unless that is done; an error names what is missing.
    pub fn find() -> Result<&'static Self, String> {
        static FOUND: OnceLock<Result<Java, String>> = OnceLock::new();
        FOUND
            .get_or_init(|| {
                for tool in ["java", "javac"] {
                    answers(tool, &["-version"])
                        .map_err(|missing| format!("{missing} (Debian's package default-jdk-headless)"))?;
                }
                let class_path = class_path()?;
                let classes = compile(&class_path);
                Ok(Self { class_path, classes })
            })
            .as_ref()
            .map_err(Clone::clone)
    }

    /// Returns a command that runs one of the programs.
    pub fn program(&self, class: &str) -> Command {
        let mut command = Command::new("java");
        command
            .args(JVM)
            .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
            .arg("-cp")
            .arg(format!("{}:{}", self.classes.display(), self.class_path))
            .arg(class);
        command
    }

    /// Returns a command that runs a class of the jars with these properties.
    pub fn server(&self, properties: &[&str], class: &str) -> StdCommand {
        let mut command = StdCommand::new("java");
        command
            .args(JVM)
            .args(properties)
            .args(["-cp", &self.class_path])
            .arg(class);
        command
    }
}

/// Returns Debian's jars as a class path.
fn class_path() -> Result<String, String> {
    let mut jars = Vec::new();
    for (jar, package) in WANTED {
        let path = Path::new(JARS).join(jar);
        if !path.exists() {
            return Err(format!(
                "{} does not exist (Debian's package {package})",
                path.display()
            ));
        }
        jars.push(path.display().to_string());
    }
    Ok(jars.join(":"))
}

/// Compiles the programs, once for each version of their sources; returns the directory of the classes. Each
/// concurrent process compiles into a directory of its own, and the first one to finish renames it.
fn compile(class_path: &str) -> PathBuf {
    let mut sources: Vec<PathBuf> = fs::read_dir(directory("programs/java"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    sources.sort();
    let mut hasher = DefaultHasher::new();
    class_path.hash(&mut hasher);
    for source in &sources {
        fs::read(source).unwrap().hash(&mut hasher);
    }
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(parent).unwrap();
    let classes = parent.join(format!("zookeeper-clients-{:016x}", hasher.finish()));
    if classes.exists() {
        return classes;
    }
    let begun = tempfile::Builder::new()
        .prefix("zookeeper-clients-")
        .tempdir_in(parent)
        .unwrap();
    let output = StdCommand::new("javac")
        .args([
            "-Xlint:all,-classfile,-path,-processing,-try",
            "-Werror",
            "-cp",
            class_path,
            "-d",
        ])
        .arg(begun.path())
        .args(&sources)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "javac rejects the programs:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    if let Err(error) = fs::rename(begun.path(), &classes) {
        assert!(classes.exists(), "{}: {error}", classes.display());
    }
    classes
}

/// Environment variable with the path of a Python that has kazoo.
const PYTHON_VARIABLE: &str = "LOCKGATE_KAZOO_PYTHON";

/// Python with kazoo.
#[derive(Debug, Clone)]
pub struct Python {
    executable: PathBuf,
}

impl Python {
    /// Finds the Python that the variable names, that of the virtual environment in the target directory, or
    /// that of the machine.
    pub fn find() -> Result<&'static Self, String> {
        static FOUND: OnceLock<Result<Python, String>> = OnceLock::new();
        FOUND
            .get_or_init(|| {
                let own = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../kazoo/bin/python");
                let executable = match std::env::var_os(PYTHON_VARIABLE) {
                    Some(named) => PathBuf::from(named),
                    None if own.exists() => own,
                    None => PathBuf::from("python3"),
                };
                answers(&executable.to_string_lossy(), &["-c", "import kazoo"]).map_err(|missing| {
                    format!("{missing}: no Python with kazoo (set {PYTHON_VARIABLE} to one)")
                })?;
                Ok(Self { executable })
            })
            .as_ref()
            .map_err(Clone::clone)
    }

    /// Returns a command that runs a program.
    pub fn program(&self, file: &Path) -> Command {
        let mut command = Command::new(&self.executable);
        // Writes no byte code next to the sources.
        command.arg("-B").arg(file);
        command
    }
}

/// Checks that a program runs with these arguments.
fn answers(program: &str, arguments: &[&str]) -> Result<(), String> {
    let status = StdCommand::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) | Err(_) => Err(format!("`{program} {}` fails", arguments.join(" "))),
    }
}
