//! Entries that are on their way. Each is kept as long as anything that is still to happen names it.

use crate::events::Request;

/// An entry's place.
pub(crate) type BatchId = usize;

/// One entry of a group's log.
#[derive(Debug)]
pub(crate) struct Batch {
    pub group: usize,
    /// Who led when it was made, by the number of the leader.
    pub term: u32,
    pub requests: Vec<Request>,
    /// How many have it on their disks.
    pub acknowledged: usize,
    /// What is still to happen to it: syncs, followers' words, and its application.
    pub outstanding: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    all: Vec<Option<Batch>>,
    free: Vec<BatchId>,
}

impl Batches {
    pub fn add(&mut self, batch: Batch) -> BatchId {
        match self.free.pop() {
            Some(id) => {
                self.all[id] = Some(batch);
                id
            }
            None => {
                self.all.push(Some(batch));
                self.all.len() - 1
            }
        }
    }

    pub fn get(&mut self, id: BatchId) -> &mut Batch {
        self.all[id]
            .as_mut()
            .expect("an entry is kept while something names it")
    }

    /// One thing less is to happen to it.
    pub fn settle(&mut self, id: BatchId) {
        let batch = self.get(id);
        batch.outstanding -= 1;
        if batch.outstanding == 0 {
            self.all[id] = None;
            self.free.push(id);
        }
    }

    /// All entries of a group that are on their way.
    pub fn of_group(&mut self, group: usize) -> impl Iterator<Item = &mut Batch> {
        self.all
            .iter_mut()
            .flatten()
            .filter(move |batch| batch.group == group)
    }
}
