//! What the programs need and this machine may have: Java with Debian's jars, Python with kazoo. Installs nothing; what
//! is missing is told with the name of its package.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command as StdCommand, Stdio};
use std::sync::OnceLock;

use tokio::process::Command;

use crate::programs::directory;

/// Where Debian's packages put their jars.
const JARS: &str = "/usr/share/java";

/// The jars that the programs and ZooKeeper's server need beside those that these name themselves, and their packages.
const WANTED: [(&str, &str); 9] = [
    ("zookeeper.jar", "libzookeeper-java"),
    ("zookeeper-jute.jar", "libzookeeper-java"),
    ("curator-client.jar", "libcurator-client-java"),
    ("curator-framework.jar", "libcurator-framework-java"),
    ("curator-recipes.jar", "libcurator-recipes-java"),
    ("guava.jar", "libguava-java"),
    ("slf4j-simple.jar", "libslf4j-java"),
    // What ZooKeeper's server speaks TLS with needs these, and does not name them.
    ("netty-codec.jar", "libnetty-java"),
    ("netty-resolver.jar", "libnetty-java"),
];

/// What every JVM of these tests is started with: on two cores and for some seconds, what starts quickest is quickest.
const JVM: [&str; 5] = [
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Xmx256m",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
];

/// Java, ZooKeeper's and Curator's jars, and the compiled programs.
#[derive(Debug, Clone)]
pub struct Java {
    class_path: String,
    classes: PathBuf,
}

impl Java {
    /// Finds all that, and compiles the programs if they are not yet; says what is missing otherwise.
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

    /// A command that runs one of the programs.
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

    /// A command that runs a class of the jars with these properties.
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

/// Debian's jars, as Java wants them named.
fn class_path() -> Result<String, String> {
    let mut jars = Vec::new();
    for (jar, package) in WANTED {
        let path = Path::new(JARS).join(jar);
        if !path.exists() {
            return Err(format!(
                "{} is not there (Debian's package {package})",
                path.display()
            ));
        }
        jars.push(path.display().to_string());
    }
    Ok(jars.join(":"))
}

/// Compiles the programs, once for each state of their sources; gives the directory of the classes. Who compiles the same at
/// the same time does so elsewhere, and the first to end gives the directory its name.
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
        "javac refuses the programs:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    if let Err(error) = fs::rename(begun.path(), &classes) {
        assert!(classes.exists(), "{}: {error}", classes.display());
    }
    classes
}

/// Names a Python that has kazoo.
const PYTHON_VARIABLE: &str = "LOCKGATE_KAZOO_PYTHON";

/// A Python that has kazoo.
#[derive(Debug, Clone)]
pub struct Python {
    executable: PathBuf,
}

impl Python {
    /// The one that is named, that of the environment in the target directory, or that of the machine.
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
                    format!("{missing}: there is no Python with kazoo ({PYTHON_VARIABLE} names one)")
                })?;
                Ok(Self { executable })
            })
            .as_ref()
            .map_err(Clone::clone)
    }

    /// A command that runs a program.
    pub fn program(&self, file: &Path) -> Command {
        let mut command = Command::new(&self.executable);
        // Nothing is written beside the sources.
        command.arg("-B").arg(file);
        command
    }
}

/// Whether a program can be run so.
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
