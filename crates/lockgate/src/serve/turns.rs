//! When the one thread of a node gets the processor. A thread that wakes usually interrupts whoever runs. A node that shares its cores
//! with the programs that read from it so interrupts each of them after its first request, answers that one, and sleeps again. While it
//! answers many reads, it lets whoever runs go on until the kernel gives it its turn (`SCHED_BATCH`), and finds more of them
//! then: see docs/internals/benchmarks/lab-notes.md. Commits gain nothing, because each waits for other nodes, and beside programs that keep the cores
//! busy turns come late; so it is not done for commits, and it ends when turns come late.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Builder;
use tracing::debug;

use self::kernel::Thread;

/// How often it is looked at, at most. In a shorter time there are too few turns for a mean that means something.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// From so many reads in a second on a node lets others go on. One client alone that waits for each answer reads about as often: with
/// fewer there is rarely a second request to find.
const MANY_READS: u64 = 16_000;

/// From so few on it interrupts them again. Far below the other, so that no rate changes it all the time.
const FEW_READS: u64 = 8_000;

/// A node that carries out more than one command for so many reads has commits to do above all: a lock that is acquired and given back
/// is two commands at each node, and some four reads at one.
const READS_FOR_A_COMMAND: u64 = 2;

/// Turns are late that come, on the average, so long after the node could have run. Where three nodes and those who read from them have
/// two cores to themselves, it is 0.2 to 0.5 ms, and up to 2.9 for a while: then a node waits each time until another program's turn is
/// over, which the kernel lets last some 3 ms, and reads are the faster for it. So it is more than one such turn.
const LATE: Duration = Duration::from_millis(4);

/// After turns that were late it is not tried again for so long, of which a try takes a hundredth.
const SPARED: Duration = Duration::from_secs(10);

/// What a node has done until now.
#[derive(Debug, Clone, Copy, Default)]
pub struct Work {
    /// How often somebody has read its state.
    pub reads: u64,
    /// How many commands it has carried out, whoever had proposed them.
    pub commands: u64,
}

type Done = Box<dyn Fn() -> Work + Send + Sync>;

/// Whether the thread of a node interrupts others when it is woken.
#[derive(Default)]
pub struct Turns {
    done: Arc<OnceLock<Done>>,
}

impl Turns {
    /// The only thread of the runtime that `builder` builds looks at this before it sleeps: it is not woken for it. Whoever starts a
    /// node with another policy than the kernel's ordinary one (`chrt`, systemd's `CPUSchedulingPolicy`) is left to it.
    pub fn are_taken_by(&self, builder: &mut Builder) {
        if !kernel::is_ordinary() {
            return;
        }
        let done = self.done.clone();
        let state = Mutex::new((Thread::default(), Pace::default()));
        builder.on_thread_park(move || {
            let Some(done) = done.get() else { return };
            let (thread, pace) = &mut *state.lock();
            let at = Instant::now();
            if !pace.is_due(at) {
                return;
            }
            let seen = Seen {
                at,
                work: done(),
                waits: thread.waits(),
            };
            if let Some(yields) = pace.decide(seen) {
                thread.yields(yields);
            }
        });
        // Threads begin as the one that starts them is, and those beside the one that serves have other work.
        builder.on_thread_start(|| Thread::default().yields(false));
    }

    /// From now on it depends on what `done` says that was done. Only the first one who says so is heard.
    pub fn follow(&self, done: impl Fn() -> Work + Send + Sync + 'static) {
        self.done.get_or_init(|| Box::new(done));
    }
}

/// How a thread waited until the kernel let it run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waits {
    /// How long, all in all.
    total: Duration,
    /// How often it was let run.
    turns: u64,
}

/// What was found.
#[derive(Debug, Clone, Copy)]
struct Seen {
    at: Instant,
    work: Work,
    /// None: the kernel does not tell.
    waits: Option<Waits>,
}

/// From one look to the next.
#[derive(Debug, Default)]
struct Pace {
    before: Option<Seen>,
    yields: bool,
    spared_until: Option<Instant>,
}

impl Pace {
    /// Whether it is time to look.
    fn is_due(&self, now: Instant) -> bool {
        self.before
            .is_none_or(|before| now.duration_since(before.at) >= LOOK_EVERY)
    }

    /// Whether to yield from now on; none: as before.
    fn decide(&mut self, seen: Seen) -> Option<bool> {
        let before = self.before.replace(seen)?;
        let yields = match (before.waits, seen.waits) {
            (Some(waited), Some(waits)) => self.suits(before, seen, mean(waited, waits)),
            // Whether turns are late could not be seen.
            _ => false,
        };
        let changes = yields != self.yields;
        self.yields = yields;
        changes.then_some(yields)
    }

    fn suits(&mut self, before: Seen, seen: Seen, wait: Duration) -> bool {
        if self.yields && wait >= LATE {
            debug!(?wait, "this node's turns come late; it interrupts others again");
            self.spared_until = Some(seen.at + SPARED);
            return false;
        }
        if self.spared_until.is_some_and(|until| seen.at < until) {
            return false;
        }
        let elapsed = seen.at.duration_since(before.at);
        let reads = seen.work.reads - before.work.reads;
        let commands = seen.work.commands - before.work.commands;
        let enough = if self.yields { FEW_READS } else { MANY_READS };
        reads as f64 >= enough as f64 * elapsed.as_secs_f64() && reads >= READS_FOR_A_COMMAND * commands
    }
}

/// How long a turn between the two was waited for, on the average.
fn mean(before: Waits, after: Waits) -> Duration {
    let turns = (after.turns - before.turns).max(1);
    let waited = after.total.saturating_sub(before.total);
    Duration::from_nanos(waited.as_nanos() as u64 / turns)
}

#[cfg(target_os = "linux")]
mod kernel {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use tracing::debug;
    use uapi::c::{SCHED_BATCH, SCHED_OTHER};

    use super::Waits;

    /// How long the calling thread has run and waited, in nanoseconds, and how often it was let run (Linux,
    /// Documentation/scheduler/sched-stats.rst).
    const STATISTICS: &str = "/proc/thread-self/schedstat";

    /// The thread that asks.
    const CALLING: i32 = 0;

    /// Three numbers of 64 bits with what is between them.
    const MAX_STATISTICS_BYTES: usize = 64;

    /// Whether the calling thread runs as threads do that nobody has said anything of.
    pub fn is_ordinary() -> bool {
        uapi::sched_getattr(CALLING, 0).is_ok_and(|attributes| attributes.sched_policy == SCHED_OTHER as u32)
    }

    /// What the kernel knows of the calling thread. Stays with the first one that asks for anything.
    #[derive(Debug, Default)]
    pub struct Thread {
        statistics: Option<File>,
    }

    impl Thread {
        /// None: this kernel does not count it.
        pub fn waits(&mut self) -> Option<Waits> {
            let file = match &self.statistics {
                Some(file) => file,
                None => self.statistics.insert(File::open(STATISTICS).ok()?),
            };
            let mut line = [0; MAX_STATISTICS_BYTES];
            let length = file.read_at(&mut line, 0).ok()?;
            super::waits(std::str::from_utf8(&line[..length]).ok()?)
        }

        /// Has the calling thread let whoever runs go on when it is woken, or interrupt them as threads do.
        pub fn yields(&self, yields: bool) {
            let policy = if yields { SCHED_BATCH } else { SCHED_OTHER };
            let set = uapi::sched_getattr(CALLING, 0).and_then(|mut attributes| {
                attributes.sched_policy = policy as u32;
                uapi::sched_setattr(CALLING, &attributes, 0)
            });
            if let Err(error) = set {
                // It serves as well, fewer reads in a second.
                debug!(%error, yields, "the kernel lets this node run as before");
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod kernel {
    use super::Waits;

    /// Other systems have other policies.
    pub fn is_ordinary() -> bool {
        false
    }

    /// Other systems are not asked.
    #[derive(Debug, Default)]
    pub struct Thread;

    impl Thread {
        /// Nothing is known.
        pub fn waits(&mut self) -> Option<Waits> {
            None
        }

        /// Threads interrupt each other as the system has it.
        pub fn yields(&self, _: bool) {}
    }
}

/// What a line of `schedstat` says.
fn waits(line: &str) -> Option<Waits> {
    let mut numbers = line.split_ascii_whitespace().map(str::parse);
    let _ran: u64 = numbers.next()?.ok()?;
    Some(Waits {
        total: Duration::from_nanos(numbers.next()?.ok()?),
        turns: numbers.next()?.ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is seen every [`LOOK_EVERY`].
    struct Looker {
        pace: Pace,
        seen: Seen,
    }

    impl Looker {
        fn new() -> Self {
            let seen = Seen {
                at: Instant::now(),
                work: Work::default(),
                waits: Some(Waits {
                    total: Duration::ZERO,
                    turns: 0,
                }),
            };
            let mut pace = Pace::default();
            assert!(pace.is_due(seen.at));
            assert_eq!(pace.decide(seen), None, "there is no rate yet");
            assert!(!pace.is_due(seen.at));
            Self { pace, seen }
        }

        /// So many reads in a second since the last look, and turns that each came after `wait`.
        fn look(&mut self, reads: u64, wait: Duration) -> Option<bool> {
            let seen = &mut self.seen;
            seen.at += LOOK_EVERY;
            seen.work.reads += reads * LOOK_EVERY.as_millis() as u64 / 1000;
            if let Some(waits) = &mut seen.waits {
                waits.total += wait * 5;
                waits.turns += 5;
            }
            assert!(self.pace.is_due(seen.at));
            self.pace.decide(*seen)
        }
    }

    const SOON: Duration = Duration::from_micros(100);

    #[test]
    fn a_node_that_is_read_often_lets_others_go_on_until_it_is_read_rarely() {
        let mut looker = Looker::new();
        assert_eq!(looker.look(MANY_READS - 100, SOON), None);
        assert_eq!(looker.look(MANY_READS, SOON), Some(true));
        assert_eq!(looker.look(FEW_READS, SOON), None);
        assert_eq!(looker.look(FEW_READS - 100, SOON), Some(false));
        assert_eq!(looker.look(MANY_READS - 100, SOON), None);
    }

    #[test]
    fn a_node_that_carries_out_commands_above_all_interrupts_others() {
        let mut looker = Looker::new();
        let commands = MANY_READS * LOOK_EVERY.as_millis() as u64 / 1000 / READS_FOR_A_COMMAND;
        looker.seen.work.commands += commands + 1;
        assert_eq!(looker.look(MANY_READS, SOON), None);
        looker.seen.work.commands += commands;
        assert_eq!(looker.look(MANY_READS, SOON), Some(true));
        looker.seen.work.commands += commands + 1;
        assert_eq!(looker.look(MANY_READS, SOON), Some(false));
    }

    #[test]
    fn late_turns_end_it_for_a_while() {
        let mut looker = Looker::new();
        assert_eq!(
            looker.look(2 * MANY_READS, LATE),
            Some(true),
            "what it waited before has other reasons"
        );
        assert_eq!(looker.look(2 * MANY_READS, LATE), Some(false));
        let looks = (SPARED.as_nanos() / LOOK_EVERY.as_nanos()) as u32;
        for _ in 1..looks {
            assert_eq!(looker.look(2 * MANY_READS, SOON), None);
        }
        assert_eq!(looker.look(2 * MANY_READS, SOON), Some(true));
    }

    #[test]
    fn a_node_that_waits_until_another_programs_turn_is_over_is_not_late() {
        // Longer than the longest mean that was seen beside readers alone, 2.9 ms.
        let turn = Duration::from_millis(3);
        let mut looker = Looker::new();
        assert_eq!(looker.look(2 * MANY_READS, turn), Some(true));
        for _ in 0..10 {
            assert_eq!(looker.look(2 * MANY_READS, turn), None);
        }
    }

    #[test]
    fn without_the_kernels_word_on_late_turns_nothing_is_done() {
        let mut looker = Looker::new();
        assert_eq!(looker.look(MANY_READS, SOON), Some(true));
        looker.seen.waits = None;
        assert_eq!(looker.look(MANY_READS, SOON), Some(false));
        assert_eq!(looker.look(MANY_READS, SOON), None);
    }

    #[test]
    fn a_line_of_statistics_is_understood() {
        let expected = Waits {
            total: Duration::from_nanos(83_348),
            turns: 3,
        };
        assert_eq!(waits("347819 83348 3\n"), Some(expected));
        assert_eq!(waits("347819 83348\n"), None);
        assert_eq!(waits(""), None);
    }

    /// The kernel is asked whether it has happened; so only where it can be.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_thread_of_a_runtime_is_what_it_has_to_do() {
        use std::sync::atomic::{AtomicU64, Ordering};

        use uapi::c::{SCHED_BATCH, SCHED_OTHER};

        /// Longer than any machine takes for a few looks.
        const PATIENCE: Duration = Duration::from_secs(30);

        let policy = || uapi::sched_getscheduler(0).unwrap();
        let turns = Turns::default();
        let mut builder = Builder::new_current_thread();
        turns.are_taken_by(&mut builder);
        let runtime = builder.enable_all().build().unwrap();
        let reads = Arc::new(AtomicU64::new(0));
        let counted = reads.clone();
        turns.follow(move || Work {
            reads: counted.load(Ordering::Relaxed),
            commands: 0,
        });
        runtime.block_on(async {
            // It sleeps for a moment again and again, as a node that answers does.
            let until = async |expected, more| {
                let began = Instant::now();
                while policy() != expected {
                    assert!(began.elapsed() < PATIENCE, "the policy is not {expected}");
                    reads.fetch_add(more, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            assert_eq!(policy(), SCHED_OTHER);
            until(SCHED_BATCH, MANY_READS).await;
            let other = tokio::task::spawn_blocking(policy).await.unwrap();
            assert_eq!(other, SCHED_OTHER, "a thread that is started meanwhile");
            until(SCHED_OTHER, 0).await;
        });
    }
}
