//! List of the programs: their names, their clients, and how to start them. Runs nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use crate::installed::{Java, Python};

/// Client library of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// Curator's recipes, in Java.
    Curator,
    /// ZooKeeper's own client for Java.
    Java,
    /// The Python client.
    Kazoo,
    /// ZooKeeper's command line in Java.
    ZkCli,
    /// ZooKeeper's command line in C.
    CliMt,
    /// HTTP from a shell.
    Curl,
}

/// Test program.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Name: a class, or a file without its suffix.
    pub name: &'static str,
    /// Client library.
    pub client: Client,
    /// Time limit.
    pub deadline: Duration,
    /// True if it uses HTTP as well and so works with Lockgate only.
    pub uses_http: bool,
}

/// Usual time limit. A program with one failover takes about ten seconds; a busy machine may need far more.
const USUAL_DEADLINE: Duration = Duration::from_secs(150);

/// Time limit of a program with twenty failovers.
const LONG_DEADLINE: Duration = Duration::from_secs(500);

/// All programs, in the order in which they run.
pub const ALL: &[Program] = &[
    curator("Mutex"),
    curator("SemaphoreMutex"),
    curator("ReadWriteLock"),
    curator("SemaphoreV2"),
    curator("MultiLock"),
    curator("Revocation"),
    curator("Latch"),
    curator("Selector"),
    curator("Barriers"),
    curator("Counters"),
    curator("Persistent"),
    curator("Cache"),
    curator("Transactions"),
    with_http(curator("SharedQueue")),
    TWENTY_KILLS,
    java("Calls"),
    java("Watches"),
    java("Multi"),
    java("Acls"),
    java("Pipelining"),
    java("Sessions"),
    java("Reconnect"),
    java("Chroot"),
    kazoo("locks"),
    with_http(kazoo("shared_queue")),
    kazoo("election"),
    kazoo("barriers"),
    kazoo("counters"),
    kazoo("queues"),
    kazoo("watches"),
    kazoo("transactions"),
    Program {
        name: "session",
        client: Client::ZkCli,
        deadline: USUAL_DEADLINE,
        uses_http: false,
    },
    Program {
        name: "session",
        client: Client::CliMt,
        deadline: USUAL_DEADLINE,
        uses_http: false,
    },
];

/// Three programs that use one lock at the same time.
pub const ONE_QUEUE: [Program; 3] = [
    with_http(curator("OneQueue")),
    with_http(kazoo("one_queue")),
    Program {
        name: "one_queue",
        client: Client::Curl,
        deadline: USUAL_DEADLINE,
        uses_http: true,
    },
];

const TWENTY_KILLS: Program = Program {
    name: "TwentyKills",
    client: Client::Curator,
    deadline: LONG_DEADLINE,
    uses_http: false,
};

const fn curator(name: &'static str) -> Program {
    Program {
        name,
        client: Client::Curator,
        deadline: USUAL_DEADLINE,
        uses_http: false,
    }
}

const fn with_http(program: Program) -> Program {
    Program {
        uses_http: true,
        ..program
    }
}

const fn java(name: &'static str) -> Program {
    Program {
        name,
        client: Client::Java,
        deadline: USUAL_DEADLINE,
        uses_http: false,
    }
}

const fn kazoo(name: &'static str) -> Program {
    Program {
        name,
        client: Client::Kazoo,
        deadline: USUAL_DEADLINE,
        uses_http: false,
    }
}

/// Returns a directory of this test.
pub fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/clients")
        .join(name)
}

impl Program {
    /// Returns the name with the client, which is unique, for messages.
    pub fn title(&self) -> String {
        let client = match self.client {
            Client::Curator => "curator",
            Client::Java => "java",
            Client::Kazoo => "kazoo",
            Client::ZkCli => "zkcli",
            Client::CliMt => "cli_mt",
            Client::Curl => "curl",
        };
        format!("{client}-{}", self.name)
    }

    /// Returns whether the client tries another server when one does not serve yet. The command lines do not.
    pub fn reads_more_output(&self) -> bool {
        !matches!(self.client, Client::ZkCli | Client::CliMt)
    }

    /// Returns the file with the expected output.
    pub fn expected_file(&self) -> PathBuf {
        directory("expected").join(format!("{}.txt", self.title()))
    }

    /// Returns the command that starts it, without its argument; an error names what is not installed.
    pub fn command(&self) -> Result<Command, String> {
        match self.client {
            Client::Curator | Client::Java => Ok(Java::find()?.program(self.name)),
            Client::Kazoo => {
                let file = directory("programs/kazoo").join(format!("{}.py", self.name));
                Ok(Python::find()?.program(&file))
            }
            Client::ZkCli => script(
                "zkcli",
                self.name,
                "/usr/share/zookeeper/bin/zkCli.sh",
                "zookeeper",
            ),
            Client::Curl => script("curl", self.name, "/usr/bin/curl", "curl"),
            Client::CliMt => script(
                "cli_mt",
                self.name,
                "/usr/lib/zookeeper/bin/cli_mt",
                "zookeeper-bin",
            ),
        }
    }
}

/// Returns the command of a shell script that runs a program of one of Debian's packages; the program's path
/// is its first argument.
fn script(directory_name: &str, name: &str, needs: &str, package: &str) -> Result<Command, String> {
    if !Path::new(needs).exists() {
        return Err(format!("{needs} does not exist (Debian's package {package})"));
    }
    let mut command = Command::new("bash");
    command
        .arg(directory(&format!("programs/{directory_name}")).join(format!("{name}.sh")))
        .arg(needs);
    Ok(command)
}
