//! How a cell's process comes to be in namespaces of its own, and what this machine allows.
//!
//! A cell runs in a process that is the first of its process namespace, with a network and mounts that nobody else sees.
//! When it is gone, for whatever reason, the kernel ends all nodes, takes the network away and unmounts every disk: there
//! is nothing to clean up, and nothing that could be forgotten. It is gone when whoever started it is.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

/// What separates a cell from the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// All namespaces, made by root: networks, and disks in images.
    Root,
    /// The same in a user namespace: networks, but no disks.
    User,
    /// None: nodes share the loopback interface.
    None,
}

impl Isolation {
    /// The most that this machine allows.
    pub fn best() -> Self {
        let works = |isolation: Self| {
            let mut command = isolation.command(Path::new("nft"));
            let quiet = command.args(["list", "tables"]).stdin(Stdio::null());
            let ended = quiet.stdout(Stdio::null()).stderr(Stdio::null()).status();
            ended.is_ok_and(|status| status.success())
        };
        [Self::Root, Self::User]
            .into_iter()
            .find(|isolation| works(*isolation))
            .unwrap_or(Self::None)
    }

    /// A command that runs a program so separated, and ends it with the process that starts it.
    pub fn command(self, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        if self != Self::None {
            command.arg("unshare");
            if self == Self::User {
                command.args(["--user", "--map-root-user"]);
            }
            command.args([
                "--net",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "--",
            ]);
        }
        command.arg(program);
        command
    }

    /// In words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Root => "namespaces made by root: networks, disk images",
            Self::User => "namespaces of an ordinary user: networks, no disk images",
            Self::None => "no namespaces: loopback and proxies, no disk images",
        }
    }
}
