//! The state machine, tested through its boundary alone: requests in, replies and events out, reads.
//!
//! `scripts` runs tests/scripts/*.txt, which state one rule each; `property` compares the store with a naive
//! `model` on random requests, and `access_property` a secured state with an open one; `access_matrix` asks for everything as everybody; `damage` restores what is no snapshot; `shares` uses up what one caller may use up of what all share; `mirror_property` brings one random tree to another; `namespaces` counts what namespaces use, and predicts which quota refuses what. To take the present output of the scripts as the expected one, run with
//! UPDATE_GOLDENFILES=1 and review the difference.

mod access_matrix;
mod access_property;
mod access_script;
mod damage;
mod lock_limits;
mod long_paths;
mod lock_would_wait;
mod lock_property;
mod lock_script;
mod mirror_property;
mod mirror_script;
mod model;
mod namespaces;
mod property;
mod replicas;
mod script;
mod shares;

use proptest::test_runner::Config;

/// Returns the configuration of a property test: `usually` cases, or as many as PROPTEST_CASES says.
fn cases(usually: u32) -> Config {
    let default = Config {
        failure_persistence: None,
        ..Config::default()
    };
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => default,
        None => Config {
            cases: usually,
            ..default
        },
    }
}
