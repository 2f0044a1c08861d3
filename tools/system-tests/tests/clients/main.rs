//! Real ZooKeeper clients: Curator, the plain Java client, kazoo, `zkCli.sh` and `cli_mt`, unmodified,
//! against three Lockgate nodes and against three ZooKeeper servers.
//!
//! Each program below `programs/` prints its results, the same in every run; the expected output is in
//! `expected/`. It kills the server that it is connected to, and continues. One expectation holds for both
//! systems, so a program gets the same results from Lockgate as from ZooKeeper. The exception are programs
//! that share a lock with callers over HTTP. The files are written from ZooKeeper's results, by the test of
//! ZooKeeper with LOCKGATE_WRITE_EXPECTED=1, and reviewed as a diff.
//!
//! LOCKGATE_ZOOKEEPER_PROGRAMS=NAME runs only programs with NAME in their names, and
//! LOCKGATE_ZOOKEEPER_SHARE=20782/3 runs one in three programs. If a prerequisite of a program is missing on
//! a developer's machine, the test prints that and passes; with LOCKGATE_ZOOKEEPER_CLIENTS=required it fails.

// clippy's exception for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

mod ensemble;
mod installed;
mod migration;
mod programs;
mod runner;
mod tls;
mod expectations;

use ensemble::Ensemble;
use programs::{ALL, Client, ONE_QUEUE};

#[tokio::test]
async fn curator_recipes() {
    expectations::check_programs(Ensemble::lockgate, |program| program.client == Client::Curator).await;
}

#[tokio::test]
async fn the_java_client() {
    expectations::check_programs(Ensemble::lockgate, |program| program.client == Client::Java).await;
}

#[tokio::test]
async fn kazoo() {
    expectations::check_programs(Ensemble::lockgate, |program| program.client == Client::Kazoo).await;
}

#[tokio::test]
async fn command_lines() {
    expectations::check_programs(Ensemble::lockgate, |program| {
        matches!(program.client, Client::ZkCli | Client::CliMt)
    })
    .await;
}

/// Runs a Java program with Curator, a Python program with kazoo and a shell script with curl on one queue.
#[tokio::test]
async fn one_queue_for_all() {
    expectations::check_programs_together(&ONE_QUEUE, "turns: 25").await;
}

/// Verifies the expectations for Lockgate against ZooKeeper.
#[tokio::test]
async fn zookeeper_itself() {
    expectations::check_programs(Ensemble::zookeeper, |program| !program.uses_http).await;
}

#[test]
fn every_program_has_an_expectation_and_no_other_does() {
    let mut names: Vec<_> = ALL.iter().map(|program| program.expected_file()).collect();
    let mut files: Vec<_> = std::fs::read_dir(programs::directory("expected"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    files.sort();
    assert_eq!(names, files);
}
