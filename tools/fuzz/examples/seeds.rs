//! Writes the first inputs of the fuzz targets: `cargo run -p decoder-fuzz --example seeds --
//! tools/fuzz/corpus`.

use std::io;
use std::path::{Path, PathBuf};

use decoder_fuzz::disk::{files, rot};
use decoder_fuzz::{doors, http, peer, redis, seeds, wire};

fn main() -> io::Result<()> {
    let Some(corpus) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return Err(io::Error::other("usage: seeds DIRECTORY"));
    };
    write(&corpus.join("command"), &seeds::commands())?;
    write(&corpus.join("snapshot"), &seeds::snapshots())?;
    write(&corpus.join("wire"), &wire::seeds::streams())?;
    write(&corpus.join("redis"), &redis::seeds())?;
    write(&corpus.join("peer"), &peer::seeds::streams())?;
    write(&corpus.join("log"), &files::inputs())?;
    write(&corpus.join("rot"), &rot::inputs())?;
    write(&corpus.join("http"), &http::seeds::scripts())?;
    write(&corpus.join("doors"), &doors::seeds::scripts())
}

fn write(dir: &Path, inputs: &[Vec<u8>]) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    for (number, input) in inputs.iter().enumerate() {
        std::fs::write(dir.join(format!("seed-{number:03}")), input)?;
    }
    println!("{} inputs in {}", inputs.len(), dir.display());
    Ok(())
}
