//! Files with certificates that this program makes: for a try-out, and for clusters that have no authority of their own.
//! What stands in them is `transport_security`'s.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use transport_security::issue::{Authority, Issued};

/// The authority's certificate, in the directory of its files.
pub const CA_CERTIFICATE: &str = "ca.pem";

/// Its private key.
pub const CA_KEY: &str = "ca.key";

/// All files are for their owner alone: half of them are keys, and the others need no second look.
const MODE: u32 = 0o600;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A number of days as a time.
pub fn days(count: u32) -> Duration {
    DAY * count
}

/// Makes an authority in `dir`, and gives the files.
pub fn make_authority(dir: &Path, name: &str, valid_for: Duration) -> anyhow::Result<[PathBuf; 2]> {
    let (_, issued) = Authority::new(name, valid_for)?;
    put(&issued, dir.join(CA_CERTIFICATE), dir.join(CA_KEY))
}

/// The authority in `dir`.
pub fn read_authority(dir: &Path) -> anyhow::Result<Authority> {
    let text = |name| {
        let path = dir.join(name);
        std::fs::read_to_string(&path).with_context(|| {
            let path = path.display();
            format!("{path}: there is no authority here yet; `lockgate cert ca` makes one")
        })
    };
    let issued = Issued {
        certificate: text(CA_CERTIFICATE)?,
        key: text(CA_KEY)?,
    };
    Authority::read(&issued).with_context(|| dir.display().to_string())
}

/// Writes a certificate and its key to new files. Nothing is replaced: what is there may be in use.
pub fn put(issued: &Issued, certificate: PathBuf, key: PathBuf) -> anyhow::Result<[PathBuf; 2]> {
    // Before anything is written: one of two would be of no use.
    for path in [&certificate, &key] {
        ensure!(
            std::fs::symlink_metadata(path).is_err(),
            "{} is there already, and is not replaced",
            path.display()
        );
    }
    // The key first: a certificate without one would only be in the way.
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
