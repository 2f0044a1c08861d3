//! An append-only log file: a thread of its own writes and syncs all queued entries at once.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc;

use bytes::Bytes;

/// Size of the file from the start, so that a sync writes no metadata, as in the logs of servers. At its end
/// the writer continues at its beginning.
const FILE_BYTES: usize = 64 * 1024 * 1024;

/// Creates the file and starts the thread. After each sync, the thread calls `notify` with the values that were
/// queued along with the bytes. It ends when `notify` returns false.
pub fn start<T: Send + 'static>(
    path: &Path,
    notify: impl Fn(Vec<T>, io::Result<()>) -> bool + Send + 'static,
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
        .spawn(move || write(&file, &queued, notify))?;
    Ok(entries)
}

/// Writes until the other end of the queue is dropped, or `notify` returns false.
fn write<T>(
    file: &File,
    queued: &mpsc::Receiver<(T, Bytes)>,
    notify: impl Fn(Vec<T>, io::Result<()>) -> bool,
) {
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
        if !notify(written, synced) {
            return;
        }
    }
}
