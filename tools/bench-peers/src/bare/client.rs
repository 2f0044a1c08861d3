//! One client of the least server.

use anyhow::{Context, ensure};
use bytes::Bytes;
use load_generator::drive::{Client, Moments};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::{ANSWER_BYTES, Frames, Request, Want};
use crate::{Task, Workload};

/// A client with its connection.
pub struct Caller {
    answers: Frames<OwnedReadHalf>,
    to: OwnedWriteHalf,
    what: What,
}

enum What {
    Lock { acquire: Bytes, release: Bytes },
    One(Bytes),
}

impl Caller {
    /// Connects, and makes what it sends.
    pub async fn open(server: &str, task: Task) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(server)
            .await
            .with_context(|| server.to_owned())?;
        stream.set_nodelay(true)?;
        let (from, to) = stream.into_split();
        let frame = |want, permits| {
            let key = Bytes::from(task.key.clone());
            Request { want, permits, key }.frame(&task.data)
        };
        let what = match task.workload {
            Workload::Lock | Workload::Contended | Workload::Semaphore => What::Lock {
                acquire: frame(Want::Acquire, task.permits),
                release: frame(Want::Release, task.permits),
            },
            Workload::Set | Workload::Create => What::One(frame(Want::Write, 0)),
            Workload::Get => What::One(frame(Want::Answer, 0)),
        };
        let answers = Frames::new(from);
        Ok(Self { answers, to, what })
    }
}

impl Client for Caller {
    async fn once(&mut self, moments: &mut Moments) -> anyhow::Result<()> {
        let Self { answers, to, what } = self;
        let mut call = async |frame: &Bytes| {
            to.write_all(frame).await?;
            let answer = answers.next().await?.context("the server has gone")?;
            ensure!(
                answer.len() == ANSWER_BYTES,
                "an answer of {} bytes",
                answer.len()
            );
            Ok(())
        };
        match what {
            What::Lock { acquire, release } => {
                call(acquire).await?;
                moments.granted();
                moments.releasing();
                call(release).await
            }
            What::One(frame) => call(frame).await,
        }
    }

    async fn close(self) -> anyhow::Result<()> {
        Ok(())
    }
}
