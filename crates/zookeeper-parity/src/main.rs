//! Long runs.
use std::time::Instant;
use anyhow::Result;
use zookeeper_parity::arena::{Arena, Opponent};
use zookeeper_parity::generate;
use zookeeper_parity::server::Installation;

fn main() -> Result<()> {
    let args: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let installation = Installation::find().unwrap();
    let mut arena = Arena::start(&installation)?;
    println!("{}", arena.server().version());
    let opponent = if args.len() > 2 { Opponent::Itself } else { Opponent::Lockgate };
    let start = Instant::now();
    let mut steps = 0;
    for seed in args[1]..args[1] + args[0] {
        let program = generate::program(seed);
        steps += program.steps.len();
        match arena.examine(&program, opponent) {
            Ok(None) => {}
            Ok(Some(difference)) => {
                let d = arena.shrink(difference, opponent)?;
                println!("{d}");
            }
            Err(e) => {
                println!("{e:#}");
                return Ok(());
            }
        }
    }
    println!("{}", arena.tally());
    println!("{steps} steps, {:?}", start.elapsed());
    Ok(())
}
