//! Lock service for the tests of programs that take locks: a real node with a temporary directory. It needs no installation and no fixed
//! port. Only with the feature `testing`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, io, process};

use lock_client::LockClient;

use crate::server::{Lockgate, NotReady};
use crate::start_error::StartError;

/// Maximum time until a node with one member leads, on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Address of the one member. No other node calls it, so any free port will do.
const ANY_PORT: &str = "127.0.0.1:0";

/// Number of nodes that this process has started, for distinct directories.
static STARTED: AtomicU64 = AtomicU64::new(0);

/// Node with one member, and its [client](TestServer::client), for tests.
///
/// ```no_run
/// use lockgate::lock_client::{AcquireOptions, Loss};
/// use lockgate::testing::TestServer;
///
/// # async fn test() -> Result<(), Box<dyn std::error::Error>> {
/// let server = TestServer::start().await?;
/// let session = server.client().session().open().await?;
/// let guard = session.acquire("orders/42", AcquireOptions::exclusive()).await?;
/// // How does the program react to the loss of its session?
/// server.client().end_session(session.id()).await?;
/// assert_eq!(guard.lost().await, Loss::Expired);
/// server.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TestServer {
    server: Lockgate,
    _directory: Directory,
}

/// Error of [`TestServer::start`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestStartError {
    /// The directory cannot be created.
    #[error("cannot create a directory for a node: {0}")]
    Directory(#[from] io::Error),
    /// The node cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The node does not become the leader.
    #[error(transparent)]
    NotReady(#[from] NotReady),
}

/// Directory that is deleted when this is dropped.
#[derive(Debug)]
struct Directory(PathBuf);

impl Directory {
    fn create() -> io::Result<Self> {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = format!("lockgate-test-{}-{number}", process::id());
        let path = std::env::temp_dir().join(name);
        // From an earlier process with this id.
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "cannot remove the directory of a test's node");
        }
    }
}

impl TestServer {
    /// Starts a node on the current runtime, and waits until it serves.
    pub async fn start() -> Result<Self, TestStartError> {
        let directory = Directory::create()?;
        let builder = Lockgate::builder()
            .cluster("test")
            .member(1, ANY_PORT, ANY_PORT)
            .data_dir(directory.path());
        let server = builder.without_http().start().await?;
        server.ready(READY_WITHIN).await?;
        Ok(Self {
            server,
            _directory: directory,
        })
    }

    /// Returns a client with all rights: it may also break locks and [end sessions](LockClient::end_session).
    pub fn client(&self) -> &LockClient {
        self.server.client()
    }

    /// Returns the node.
    pub fn server(&self) -> &Lockgate {
        &self.server
    }

    /// Stops the node. A test that does not call this leaves the node to its runtime.
    pub async fn stop(self) {
        self.server.stop().await;
    }
}
