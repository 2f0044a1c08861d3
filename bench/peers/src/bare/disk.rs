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

/// Makes the file and starts the thread.
pub fn log(path: &Path) -> io::Result<Log> {
    let file = File::create(path)?;
    let zeros = vec![0; 1024 * 1024];
    for piece in 0..FILE_BYTES / zeros.len() {
        file.write_all_at(&zeros, (piece * zeros.len()) as u64)?;
    }
    file.sync_all()?;
    let (entries, queued) = mpsc::channel();
    let (tell, told) = news::unbounded_channel();
    std::thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || write(&file, &queued, &tell))?;
    Ok((entries, told))
}

/// Until nobody wants anything written, or hears of it.
fn write(file: &File, queued: &mpsc::Receiver<Numbered>, tell: &news::UnboundedSender<io::Result<u64>>) {
    let mut end = 0;
    let mut buffer = Vec::new();
    while let Ok((mut last, entry)) = queued.recv() {
        buffer.extend_from_slice(&entry);
        while let Ok((number, entry)) = queued.try_recv() {
            last = number;
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
        if tell.send(synced.map(|()| last)).is_err() {
            return;
        }
    }
}
