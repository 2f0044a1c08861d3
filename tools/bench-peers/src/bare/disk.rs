//! A log that is only written: what is there is written and synced in one piece, by a thread of its own.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc;

use bytes::Bytes;
use tokio::sync::mpsc as news;

/// The file has so many bytes from the beginning, as the logs of servers have, so that a sync writes no metadata; after its end the
/// writer begins anew.
const FILE_BYTES: usize = 64 * 1024 * 1024;

/// An entry, and its number.
pub type Numbered = (u64, Bytes);

/// The way into a log, and the numbers up to which all is on the disk.
pub type Log = (mpsc::Sender<Numbered>, news::UnboundedReceiver<io::Result<u64>>);

/// Makes the file and starts the thread, which says up to where all is on the disk.
pub fn log(path: &Path) -> io::Result<Log> {
    let (tell, told) = news::unbounded_channel();
    let entries = start(path, move |numbers: Vec<u64>, synced| {
        let last = numbers.last().copied().unwrap_or_default();
        tell.send(synced.map(|()| last)).is_ok()
    })?;
    Ok((entries, told))
}

/// Makes the file and starts the thread. What is written goes in with something that is given to `tell` when it is on the disk, with
/// all that was written together with it. If that says no, the log ends.
pub fn start<T: Send + 'static>(
    path: &Path,
    tell: impl Fn(Vec<T>, io::Result<()>) -> bool + Send + 'static,
) -> io::Result<mpsc::Sender<(T, Bytes)>> {
    let file = File::create(path)?;
    let zeros = vec![0; 1024 * 1024];
    for piece in 0..FILE_BYTES / zeros.len() {
        file.write_all_at(&zeros, (piece * zeros.len()) as u64)?;
    }
    file.sync_all()?;
    let (entries, queued) = mpsc::channel();
    std::thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || write(&file, &queued, tell))?;
    Ok(entries)
}

/// Until nobody wants anything written, or hears of it.
fn write<T>(file: &File, queued: &mpsc::Receiver<(T, Bytes)>, tell: impl Fn(Vec<T>, io::Result<()>) -> bool) {
    let mut end = 0;
    let mut buffer = Vec::new();
    while let Ok((first, entry)) = queued.recv() {
        let mut written = vec![first];
        buffer.extend_from_slice(&entry);
        while let Ok((next, entry)) = queued.try_recv() {
            written.push(next);
            buffer.extend_from_slice(&entry);
        }
        if end + buffer.len() > FILE_BYTES {
            end = 0;
        }
        let synced = file
            .write_all_at(&buffer, end as u64)
            .and_then(|()| file.sync_data());
        end += buffer.len();
        buffer.clear();
        if !tell(written, synced) {
            return;
        }
    }
}
