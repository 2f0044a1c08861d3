//! Certificate files that this program creates, for tests and for clusters without an authority of their own.
//! `transport_security` generates their contents.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use transport_security::issue::{Authority, Issued};

/// File name of the authority's certificate.
pub const CA_CERTIFICATE: &str = "ca.pem";

/// File name of the authority's private key.
pub const CA_KEY: &str = "ca.key";

/// File mode: readable by the owner alone. Half of the files are private keys, and nobody else needs the
/// others.
const MODE: u32 = 0o600;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Returns the duration of `count` days.
pub fn days(count: u32) -> Duration {
    DAY * count
}

/// Creates an authority in `dir`, and returns the paths of its files.
pub fn make_authority(dir: &Path, name: &str, valid_for: Duration) -> anyhow::Result<[PathBuf; 2]> {
    let (_, issued) = Authority::new(name, valid_for)?;
    put(&issued, dir.join(CA_CERTIFICATE), dir.join(CA_KEY))
}

/// Reads the authority in `dir`.
pub fn read_authority(dir: &Path) -> anyhow::Result<Authority> {
    let text = |name| {
        let path = dir.join(name);
        std::fs::read_to_string(&path).with_context(|| {
            let path = path.display();
            format!("{path}: the authority's file cannot be read; `lockgate cert ca` creates an authority")
        })
    };
    let issued = Issued {
        certificate: text(CA_CERTIFICATE)?,
        key: text(CA_KEY)?,
    };
    Authority::read(&issued).with_context(|| dir.display().to_string())
}

/// Writes a certificate and its key to new files. Existing files may be in use and are never replaced.
pub fn put(issued: &Issued, certificate: PathBuf, key: PathBuf) -> anyhow::Result<[PathBuf; 2]> {
    // Check before writing: one file without the other would be useless.
    for path in [&certificate, &key] {
        ensure!(
            std::fs::symlink_metadata(path).is_err(),
            "{} already exists and is not replaced",
            path.display()
        );
    }
    // The key first: a certificate without its key would only block the next attempt.
    write_new(&key, &issued.key)?;
    write_new(&certificate, &issued.certificate)?;
    Ok([certificate, key])
}

fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(path)
        .with_context(|| path.display().to_string())?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .with_context(|| path.display().to_string())
}
