//! The script commands of the lock protocol. After each of them every lock in the state is held to the rule.
//!
//! Calls of `acquire` are numbers, and such a number is also what makes the contender's name its own. So contenders
//! are written short: `3-lock-1` is the exclusive contender of call 3 with the sequence number 1, which the output
//! calls `_c_00000000000000000000000000000003-lock-0000000001`; likewise `3-read-1` and `3-lease-1`. Other names
//! stand for themselves.
//!
//! | command | meaning |
//! |---|---|
//! | `acquire CALL LOCK [WISH]`, `try CALL LOCK [WISH]` | stands in the queue; or leaves nothing behind |
//! | `acquire CALL LOCK [WISH] retry=N` | the same, of a request that was sent N times before |
//! | `release LOCK HOLDER` | gives one hold back |
//! | `time_out CALL LOCK HOLDER`, `abandon CALL LOCK HOLDER` | withdraws a call |
//! | `break LOCK HOLDER [REASON]` | takes the lock away |
//! | `lock LOCK`, `locks [PREFIX] [after=NAME] [count=N]` | reads |
//! | `standing LOCK HOLDER`, `contenders SESSION` | reads |
//!
//! A wish is `mode=exclusive`, `mode=shared` or `mode=semaphore limit=N permits=N`, with `owner=`, `note=`,
//! `address=`, `reentrant=false`.

use std::error::Error;
use std::fmt::Write as _;

use goldenscript::{ArgumentConsumer, Command as Line};
use znode_store::{
    AttemptId, Claim, Command, ContenderView, HolderId, LockCommand, LockMode, LockName, LockWish, Standing,
    Store, WithdrawCause, holders_by_rule,
};

use crate::script::{Script, session};

type Output = Result<Option<String>, Box<dyn Error>>;

/// Runs a command of the lock protocol; `None` if it is none.
pub fn run(script: &mut Script, line: &Line) -> Output {
    let mut args = line.consume_args();
    args.take_key("times");
    let store = &script.replicas.store;
    let command = match line.name.as_str() {
        name @ ("acquire" | "try") => {
            let call: u64 = args.next_pos().ok_or("which call?")?.parse()?;
            let retry = args.take_key("retry").map_or(Ok(0), str::parse)?;
            let lock = lock(&mut args)?;
            LockCommand::Acquire {
                wish: wish(lock, &mut args)?,
                guid: call.into(),
                attempt: AttemptId::of_retry(retry, call),
                wait: name == "acquire",
            }
        }
        "release" => LockCommand::Release {
            lock: lock(&mut args)?,
            holder: holder(&mut args)?,
        },
        name @ ("time_out" | "abandon") => LockCommand::Withdraw {
            attempt: {
                let call = args.next_pos().ok_or("which call?")?.parse()?;
                AttemptId::of_retry(args.take_key("retry").map_or(Ok(0), str::parse)?, call)
            },
            lock: lock(&mut args)?,
            holder: holder(&mut args)?,
            cause: match name {
                "time_out" => WithdrawCause::TimedOut,
                _ => WithdrawCause::Abandoned,
            },
        },
        "break" => LockCommand::Break {
            lock: lock(&mut args)?,
            holder: holder(&mut args)?,
            reason: args.next_pos().unwrap_or("no reason").into(),
        },
        "lock" => {
            let lock = lock(&mut args)?;
            args.reject_next()?;
            return show_lock(store, &lock).map(Some);
        }
        "locks" => {
            let prefix = args.next_pos().unwrap_or("");
            let after = args.take_key("after");
            let count = args.take_key("count").map_or(Ok(100), str::parse)?;
            args.reject_next()?;
            return show_locks(store, prefix, after, count).map(Some);
        }
        "standing" => {
            let (lock, holder) = (lock(&mut args)?, holder(&mut args)?);
            args.reject_next()?;
            return Ok(Some(match store.standing(&lock, &holder) {
                Some(Standing::Holds(grant)) => grant.to_string(),
                Some(Standing::Waits(place)) => place.to_string(),
                None => format!("{holder} is no contender of lock {lock}"),
            }));
        }
        "contenders" => {
            let session = session(args.next_pos().ok_or("of which session?")?)?;
            args.reject_next()?;
            let mut output = String::new();
            for (lock, holder, holds) in store.contenders_of(session) {
                let what = if holds { "holds" } else { "waits for" };
                writeln!(output, "{holder} {what} lock {lock}")?;
            }
            return Ok(Some(output));
        }
        _ => return Ok(None),
    };
    let output = script.apply(args, Command::Lock(command));
    check_rule(&script.replicas.store);
    output.map(Some)
}

/// Every lock in the state is held by those whom the rule names, and by nobody else.
pub fn check_rule(store: &Store) {
    for summary in store.locks("", None, usize::MAX) {
        let view = store.lock(&summary.lock).expect("a lock in use exists");
        let claims: Vec<Claim> = view
            .holders
            .iter()
            .chain(&view.queue)
            .map(|contender| Claim {
                mode: contender.mode,
                permits: contender.permits,
            })
            .collect();
        assert_eq!(view.holders.len(), holders_by_rule(&claims), "{view:?}");
        assert_eq!(view.holders.len(), summary.holders as usize, "{view:?}");
        assert_eq!(view.queue.len(), summary.waiters as usize, "{view:?}");
        assert_eq!(view.mode, summary.mode, "{view:?}");
    }
}

fn lock(args: &mut ArgumentConsumer<'_>) -> Result<LockName, Box<dyn Error>> {
    Ok(LockName::parse(args.next_pos().ok_or("which lock?")?)?)
}

fn holder(args: &mut ArgumentConsumer<'_>) -> Result<HolderId, Box<dyn Error>> {
    let text = args.next_pos().ok_or("which contender?")?;
    let [call, kind, number] = text.split('-').collect::<Vec<_>>()[..] else {
        return Ok(text.into());
    };
    let (Ok(call), Ok(number)) = (call.parse::<u128>(), number.parse::<u64>()) else {
        return Ok(text.into());
    };
    let kind = if kind == "read" {
        "__READ__"
    } else {
        &format!("{kind}-")
    };
    Ok(format!("_c_{call:032x}-{kind}{number:010}"))
}

fn wish(lock: LockName, args: &mut ArgumentConsumer<'_>) -> Result<LockWish, Box<dyn Error>> {
    let limit = args.take_key("limit").map_or(Ok(1), str::parse)?;
    Ok(LockWish {
        lock,
        mode: match args.take_key("mode").unwrap_or("exclusive") {
            "exclusive" => LockMode::Exclusive,
            "shared" => LockMode::Shared,
            "semaphore" => LockMode::Semaphore { limit },
            mode => return Err(format!("{mode:?} is no mode of a lock").into()),
        },
        permits: args.take_key("permits").map_or(Ok(1), str::parse)?,
        owner: args.take_key("owner").unwrap_or("").into(),
        reentrant: args.take_key("reentrant").map_or(Ok(true), str::parse)?,
        note: args.take_key("note").unwrap_or("").into(),
        address: args.take_key("address").unwrap_or("").into(),
    })
}

fn show_lock(store: &Store, lock: &LockName) -> Result<String, Box<dyn Error>> {
    let Some(view) = store.lock(lock) else {
        return Ok(format!("there is no lock {lock}"));
    };
    let mut output = match view.mode {
        Some(mode) => format!("lock {lock} is in use as {mode}"),
        None => format!("lock {lock} is not in use"),
    };
    for holder in &view.holders {
        write!(output, "\n  holds: {}", show_contender(holder)?)?;
    }
    for waiter in &view.queue {
        write!(output, "\n  waits: {}", show_contender(waiter)?)?;
    }
    Ok(output)
}

fn show_contender(contender: &ContenderView) -> Result<String, Box<dyn Error>> {
    let ContenderView {
        holder,
        session,
        owner,
        note,
        address,
        mode,
        permits,
        holds,
        fencing_token,
        since_ms,
    } = contender;
    let mut output = format!("{holder} as {mode}, token {fencing_token}, session {session}");
    if *permits != 1 {
        write!(output, ", {permits} permits")?;
    }
    if *holds != 1 {
        write!(output, ", {holds} holds")?;
    }
    for (what, text) in [("owner", owner), ("note", note), ("address", address)] {
        if !text.is_empty() {
            write!(output, ", {what} {text:?}")?;
        }
    }
    write!(output, ", since {since_ms}")?;
    Ok(output)
}

fn show_locks(
    store: &Store,
    prefix: &str,
    after: Option<&str>,
    count: usize,
) -> Result<String, Box<dyn Error>> {
    let mut output = String::new();
    for summary in store.locks(prefix, after, count) {
        let mode = summary.mode.map_or("nothing".into(), |mode| mode.to_string());
        let (lock, holders, waiters) = (summary.lock, summary.holders, summary.waiters);
        writeln!(output, "{lock} as {mode}: {holders} hold, {waiters} wait")?;
    }
    Ok(output)
}
