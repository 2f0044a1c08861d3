//! The script commands of the lock protocol. After each of them every lock in the state is held to the rule.
//!
//! Calls of `acquire` are numbers, and such a number is also what makes the contender's name its own. So contenders
//! are written short: `3-lock-1` is the exclusive contender of call 3 with the sequence number 1, which the output
//! calls `_c_00000000000000000000000000000003-lock-0000000001`; likewise `3-read-1` and `3-lease-1`. Other names
//! stand for themselves.
//!
//! | command | meaning |
//! |---|---|
//! | `acquire CALL LOCK [WISH]`, `try CALL LOCK [WISH]` | enters the queue; or leaves no contender behind |
//! | `acquire CALL LOCK [WISH] retry=N` | the same, of a request that was sent N times before |
//! | `acquire CALL LOCK [WISH] min_hold=MS max_hold=MS` | the same with bounds of the hold |
//! | `acquire CALL LOCK [WISH] lease=N [ttl=MS] [password=BYTE]` | the same in a lease of its own |
//! | `renew_lease N ttl=MS [password=BYTE]`, `release_lease N [password=BYTE]` | changes the timeout of a lease; releases it |
//! | `free_lease LOCK N`, `free_own_lease LOCK N`, `extend_lease LOCK N ttl=MS` | releases or renews the lease that holds a lock |
//! | `replace_lease CALL LOCK N by=N [ttl=MS] [note=]` | replaces the lease that holds a lock by another |
//! | `use LOCK` | reads |
//! | `end_holds LOCK:HOLDER… [term=N]` | the maximum time of holds is over |
//! | `release LOCK HOLDER` | releases one hold |
//! | `time_out CALL LOCK HOLDER`, `abandon CALL LOCK HOLDER` | withdraws a call |
//! | `break LOCK HOLDER [REASON] [by=WHO]` | breaks a hold or wait |
//! | `downgrade LOCK HOLDER [to=shared\|upgradeable]` | changes to a weaker mode |
//! | `upgrade CALL LOCK HOLDER`, `try_upgrade CALL LOCK HOLDER` | requests exclusive mode, with or without a wait |
//! | `acquire_all CALL LOCK[:MODE[:PERMITS/LIMIT]]… [owner=]`, `try_all CALL LOCK…` | several locks by one call |
//! | `release_all LOCK:HOLDER…` | releases one hold of each |
//! | `time_out_all CALL LOCK:HOLDER…`, `abandon_all CALL LOCK:HOLDER…` | withdraws a call for several |
//! | `configure LOCK [limit=N\|none] [draining=true\|false]` | sets a lock's terms |
//! | `revoke LOCK [HOLDER] [reason=]`, `answer LOCK HOLDER TEXT` | release request; answer to it |
//! | `count_delays LOCK:ZXID:MS… [term=N]` | part of the lock-delay has passed |
//! | `lock LOCK`, `locks [PREFIX] [after=NAME] [count=N]` | reads |
//! | `lease N [password=BYTE]`, `bounded` | reads |
//! | `standing LOCK HOLDER`, `contenders SESSION`, `revocations SESSION`, `closed`, `graph [PREFIX]` | reads |
//!
//! A wish is `mode=exclusive`, `mode=shared`, `mode=upgradeable` or `mode=semaphore limit=N permits=N`, with `owner=`,
//! `note=`, `address=`, `reentrant=false`, `delay=MS`, `names=read_write` or `names=kazoo`.

use std::error::Error;
use std::fmt::Write as _;

use goldenscript::{ArgumentConsumer, Command as Line};
use znode_store::{
    AttemptId, Command, ContenderNames, ContenderState, ContenderView, Downgraded, HoldBounds, HolderId,
    LeaseChange, LeaseKey, LockCommand, LockMode, LockName, LockRequest, LockWish, NewLease, OwnerView,
    Password, Revocation, Store, WaitView, WithdrawCause, Zxid, holders_by_rule, holders_by_rule_after,
};

use crate::script::{Script, session};

type Output = Result<Option<String>, Box<dyn Error>>;

/// Runs a command of the lock protocol; `None` if it is another command.
pub fn run(script: &mut Script, line: &Line) -> Output {
    let mut args = line.consume_args();
    args.take_key("times");
    let store = &script.replicas.store;
    let command = match line.name.as_str() {
        name @ ("acquire" | "try") => {
            let call: u64 = args.next_pos().ok_or("which call?")?.parse()?;
            let retry = args.take_key("retry").map_or(Ok(0), str::parse)?;
            let lock = lock(&mut args)?;
            let bounds = HoldBounds {
                min_ms: args.take_key("min_hold").map_or(Ok(0), str::parse)?,
                max_ms: args.take_key("max_hold").map_or(Ok(0), str::parse)?,
            };
            let lease = args.take_key("lease").map(str::to_owned);
            let new_lease = |lease: String| -> Result<NewLease, Box<dyn Error>> {
                Ok(NewLease {
                    timeout_ms: args.take_key("ttl").map_or(Ok(10_000), str::parse)?,
                    key: lease_key(&lease, &mut args)?,
                })
            };
            let lease = lease.map(new_lease).transpose()?;
            let (guid, attempt) = (call.into(), AttemptId::of_retry(retry, call));
            let (wish, wait) = (wish(lock, &mut args)?, name == "acquire");
            match bounds.is_some() || lease.is_some() {
                true => LockCommand::AcquireBounded {
                    wish,
                    guid,
                    attempt,
                    wait,
                    bounds,
                    lease,
                },
                false => LockCommand::Acquire {
                    wish,
                    guid,
                    attempt,
                    wait,
                },
            }
        }
        name @ ("free_lease" | "free_own_lease" | "extend_lease" | "rewrite_lease" | "replace_lease") => {
            let call: u64 = match name {
                "replace_lease" => args.next_pos().ok_or("which call?")?.parse()?,
                _ => 0,
            };
            let lock = lock(&mut args)?;
            let lease = session(args.next_pos().ok_or("which lease?")?)?;
            let timeout_ms = args.take_key("ttl").map_or(Ok(10_000), str::parse)?;
            let change = match name {
                "free_lease" => LeaseChange::Release,
                "free_own_lease" => LeaseChange::ReleaseOwn,
                "extend_lease" => LeaseChange::Renew { timeout_ms },
                "rewrite_lease" => LeaseChange::Rewrite {
                    note: args.take_key("note").unwrap_or_default().into(),
                    timeout_ms,
                },
                _ => {
                    let by = args.take_key("by").ok_or("by which lease?")?.to_owned();
                    LeaseChange::Replace {
                        note: args.take_key("note").unwrap_or_default().into(),
                        address: "".into(),
                        guid: call.into(),
                        attempt: AttemptId(call),
                        new: NewLease {
                            key: lease_key(&by, &mut args)?,
                            timeout_ms,
                        },
                    }
                }
            };
            LockCommand::ChangeLease { lock, lease, change }
        }
        "use" => {
            let lock = lock(&mut args)?;
            args.reject_next()?;
            return Ok(Some(format!("{:?}", store.lock_use(&lock))));
        }
        "end_holds" => LockCommand::EndHolds {
            term: args.take_key("term").map_or(Ok(1), str::parse)?,
            holders: lock_holders(&mut args)?,
        },
        name @ ("renew_lease" | "release_lease") => {
            let lease = lease_key(args.next_pos().ok_or("which lease?")?, &mut args)?;
            let command = match name {
                "renew_lease" => Command::RenewLease {
                    lease,
                    timeout_ms: args.take_key("ttl").ok_or("for how long?")?.parse()?,
                },
                _ => Command::ReleaseLease { lease },
            };
            let output = script.apply(args, command);
            check_rule(&script.replicas.store);
            return output.map(Some);
        }
        "lease" => {
            let lease = lease_key(args.next_pos().ok_or("which lease?")?, &mut args)?;
            args.reject_next()?;
            return Ok(Some(format!("{:?}", store.lease(&lease))));
        }
        "bounded" => {
            args.reject_next()?;
            let mut output = String::new();
            for hold in store.bounded_holds() {
                writeln!(output, "{hold:?}")?;
            }
            return Ok(Some(output));
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
        name @ ("upgrade" | "try_upgrade") => LockCommand::Upgrade {
            attempt: AttemptId(args.next_pos().ok_or("which call?")?.parse()?),
            lock: lock(&mut args)?,
            holder: holder(&mut args)?,
            wait: name == "upgrade",
        },
        "downgrade" => LockCommand::Downgrade {
            lock: lock(&mut args)?,
            holder: holder(&mut args)?,
            to: match args.take_key("to").unwrap_or("shared") {
                "shared" => Downgraded::Shared,
                "upgradeable" => Downgraded::Upgradeable,
                mode => return Err(format!("nobody is downgraded to {mode:?}").into()),
            },
        },
        name @ ("acquire_all" | "try_all") => {
            let call: u64 = args.next_pos().ok_or("which call?")?.parse()?;
            let owner = args.take_key("owner").unwrap_or("");
            let mut wishes = Vec::new();
            while let Some(text) = args.next_pos() {
                wishes.push(short_wish(text, owner)?);
            }
            LockCommand::AcquireMany {
                wishes,
                guid: call.into(),
                attempt: AttemptId(call),
                wait: name == "acquire_all",
            }
        }
        "release_all" => LockCommand::ReleaseMany {
            holders: lock_holders(&mut args)?,
        },
        name @ ("time_out_all" | "abandon_all") => LockCommand::WithdrawMany {
            attempt: AttemptId(args.next_pos().ok_or("which call?")?.parse()?),
            holders: lock_holders(&mut args)?,
            cause: match name {
                "time_out_all" => WithdrawCause::TimedOut,
                _ => WithdrawCause::Abandoned,
            },
        },
        "configure" => LockCommand::Configure {
            lock: lock(&mut args)?,
            limit: match args.take_key("limit") {
                Some("none") => Some(None),
                Some(limit) => Some(Some(limit.parse()?)),
                None => None,
            },
            draining: args.take_key("draining").map(str::parse).transpose()?,
        },
        "revoke" => LockCommand::Revoke {
            lock: lock(&mut args)?,
            by: "10.0.0.7".into(),
            reason: args.take_key("reason").unwrap_or("no reason").into(),
            holder: args.next_pos().map(holder_named),
        },
        "answer" => LockCommand::AnswerRevoke {
            lock: lock(&mut args)?,
            holder: holder(&mut args)?,
            answer: args.next_pos().ok_or("which answer?")?.into(),
        },
        "count_delays" => {
            let term = args.take_key("term").map_or(Ok(1), str::parse)?;
            let mut locks = Vec::new();
            while let Some(text) = args.next_pos() {
                let (lock, passed_ms) = text.rsplit_once(':').ok_or("how much has passed?")?;
                let (lock, at) = lock.rsplit_once(':').ok_or("closed at which position?")?;
                locks.push((LockName::parse(lock)?, Zxid(at.parse()?), passed_ms.parse()?));
            }
            LockCommand::CountDelays { locks, term }
        }
        "break" => LockCommand::Break {
            lock: lock(&mut args)?,
            holder: holder(&mut args)?,
            by: args.take_key("by").unwrap_or("10.0.0.7").into(),
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
            return Ok(Some(match store.contender_state(&lock, &holder) {
                Some(ContenderState::Holds(grant)) => grant.to_string(),
                Some(ContenderState::Waits(place)) => place.to_string(),
                Some(ContenderState::Upgrades(grant)) => format!("{grant}, and waits to be the only one"),
                None => format!("{holder} is no contender of lock {lock}"),
            }));
        }
        "closed" => {
            args.reject_next()?;
            let mut output = String::new();
            for closed in store.closed_locks() {
                let (lock, at, passed_ms) = (&closed.lock, closed.at, closed.passed_ms);
                writeln!(
                    output,
                    "lock {lock} since {at} for {} ms, of which {passed_ms} have passed",
                    closed.delay_ms
                )?;
            }
            return Ok(Some(output));
        }
        "graph" => {
            let prefix = args.next_pos().unwrap_or("");
            args.reject_next()?;
            return show_graph(store, prefix).map(Some);
        }
        "revocations" => {
            let session = session(args.next_pos().ok_or("of which session?")?)?;
            args.reject_next()?;
            let mut output = String::new();
            for (lock, holder, revoke) in store.revocations(session) {
                writeln!(output, "{holder} of lock {lock}: {revoke:?}")?;
            }
            return Ok(Some(output));
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

/// Checks that the holders of every lock in the state are those of the rule.
pub fn check_rule(store: &Store) {
    for summary in store.locks("", None, usize::MAX) {
        let view = store.lock(&summary.lock).expect("a lock in use exists");
        let claims: Vec<LockRequest> = view
            .holders
            .iter()
            .chain(&view.queue)
            .map(|contender| LockRequest {
                mode: contender.mode,
                permits: contender.permits,
            })
            .collect();
        let upgrading = view
            .holders
            .iter()
            .any(|holder| holder.upgrading_since_ms.is_some());
        let (holding, shut) = (view.holders.len(), view.draining || view.closed.is_some());
        if view.limit.is_none() && !shut && !upgrading {
            assert_eq!(holding, holders_by_rule(&claims), "{view:?}");
        } else if !shut && !upgrading {
            assert_eq!(
                holding,
                holders_by_rule_after(&claims, holding, view.limit),
                "{view:?}"
            );
        }
        assert_eq!(view.holders.len(), summary.holders as usize, "{view:?}");
        assert_eq!(view.queue.len(), summary.waiters as usize, "{view:?}");
        assert_eq!(view.mode, summary.mode, "{view:?}");
    }
}

fn lease_key(session: &str, args: &mut ArgumentConsumer<'_>) -> Result<LeaseKey, Box<dyn Error>> {
    Ok(LeaseKey {
        session: self::session(session)?,
        password: Password([args.take_key("password").map_or(Ok(0), str::parse)?; 16]),
    })
}

fn lock(args: &mut ArgumentConsumer<'_>) -> Result<LockName, Box<dyn Error>> {
    Ok(LockName::parse(args.next_pos().ok_or("which lock?")?)?)
}

fn holder(args: &mut ArgumentConsumer<'_>) -> Result<HolderId, Box<dyn Error>> {
    Ok(holder_named(args.next_pos().ok_or("which contender?")?))
}

fn lock_holders(args: &mut ArgumentConsumer<'_>) -> Result<Vec<(LockName, HolderId)>, Box<dyn Error>> {
    let mut all = Vec::new();
    while let Some(text) = args.next_pos() {
        let (lock, holder) = text.rsplit_once(':').ok_or("which contender of the lock?")?;
        all.push((LockName::parse(lock)?, holder_named(holder)));
    }
    Ok(all)
}

fn holder_named(text: &str) -> HolderId {
    let [call, kind, number] = text.split('-').collect::<Vec<_>>()[..] else {
        return text.into();
    };
    let (Ok(call), Ok(number)) = (call.parse::<u128>(), number.parse::<u64>()) else {
        return text.into();
    };
    let kind = if kind == "read" {
        "__READ__"
    } else {
        &format!("{kind}-")
    };
    format!("_c_{call:032x}-{kind}{number:010}")
}

/// `LOCK`, `LOCK:shared`, `LOCK:2/5` (two of five permits).
fn short_wish(text: &str, owner: &str) -> Result<LockWish, Box<dyn Error>> {
    let (lock, mode) = text.split_once(':').unwrap_or((text, "exclusive"));
    let (mode, permits) = match mode.split_once('/') {
        Some((permits, limit)) => {
            let limit = limit.parse()?;
            (LockMode::Semaphore { limit }, permits.parse()?)
        }
        None => (mode_named(mode, 1)?, 1),
    };
    Ok(LockWish {
        lock: LockName::parse(lock)?,
        mode,
        permits,
        owner: owner.into(),
        reentrant: true,
        note: "".into(),
        address: "".into(),
        lock_delay_ms: 0,
        names: Default::default(),
    })
}

fn mode_named(text: &str, limit: u32) -> Result<LockMode, Box<dyn Error>> {
    Ok(match text {
        "exclusive" => LockMode::Exclusive,
        "shared" => LockMode::Shared,
        "upgradeable" => LockMode::Upgradeable,
        "semaphore" => LockMode::Semaphore { limit },
        mode => return Err(format!("{mode:?} is no mode of a lock").into()),
    })
}

fn wish(lock: LockName, args: &mut ArgumentConsumer<'_>) -> Result<LockWish, Box<dyn Error>> {
    let limit = args.take_key("limit").map_or(Ok(1), str::parse)?;
    Ok(LockWish {
        lock,
        mode: mode_named(args.take_key("mode").unwrap_or("exclusive"), limit)?,
        permits: args.take_key("permits").map_or(Ok(1), str::parse)?,
        owner: args.take_key("owner").unwrap_or("").into(),
        reentrant: args.take_key("reentrant").map_or(Ok(true), str::parse)?,
        note: args.take_key("note").unwrap_or("").into(),
        address: args.take_key("address").unwrap_or("").into(),
        lock_delay_ms: args.take_key("delay").map_or(Ok(0), str::parse)?,
        names: match args.take_key("names").unwrap_or("mutex") {
            "mutex" => ContenderNames::Mutex,
            "read_write" => ContenderNames::ReadWrite,
            "kazoo" => ContenderNames::Kazoo,
            names => return Err(format!("{names:?} are no names of contenders").into()),
        },
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
    if let Some(limit) = view.limit {
        write!(output, ", its limit is set to {limit}")?;
    }
    if view.draining {
        output.push_str(", draining");
    }
    if let Some(closed) = view.closed {
        write!(
            output,
            ", closed since {} for {} ms",
            closed.since_ms, closed.delay_ms
        )?;
    }
    for holder in &view.holders {
        write!(output, "\n  holds: {}", show_contender(holder)?)?;
    }
    for waiter in &view.queue {
        write!(output, "\n  waits: {}", show_contender(waiter)?)?;
    }
    for name in &view.blocking_znodes {
        write!(output, "\n  blocks ZooKeeper clients: {name}")?;
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
        lock_delay_ms,
        bounds,
        upgrading_since_ms,
        revoke,
    } = contender;
    let mut output = format!("{holder} as {mode}, token {fencing_token}, session {session}");
    if *permits != 1 {
        write!(output, ", {permits} permits")?;
    }
    if *holds != 1 {
        write!(output, ", {holds} holds")?;
    }
    for (what, text) in [
        ("owner", &**owner),
        ("note", &**note),
        ("address", address.as_str()),
    ] {
        if !text.is_empty() {
            write!(output, ", {what} {text:?}")?;
        }
    }
    write!(output, ", since {since_ms}")?;
    if *lock_delay_ms != 0 {
        write!(output, ", lock-delay {lock_delay_ms} ms")?;
    }
    if bounds.is_some() {
        write!(output, ",{bounds}")?;
    }
    if let Some(since_ms) = upgrading_since_ms {
        write!(output, ", waits to be the only one since {since_ms}")?;
    }
    if let Some(Revocation {
        by,
        reason,
        requested_ms,
        answer,
    }) = revoke
    {
        write!(
            output,
            ", asked by {by:?} to give up at {requested_ms} ({reason})"
        )?;
        if let Some(answer) = answer {
            write!(output, ", answers {answer:?}")?;
        }
    }
    Ok(output)
}

fn show_graph(store: &Store, prefix: &str) -> Result<String, Box<dyn Error>> {
    let (waits, complete) = store.wait_graph(prefix);
    let mut output = String::new();
    for wait in waits {
        let WaitView {
            lock,
            waiter,
            waits_for,
            more,
        } = wait;
        write!(output, "{lock}: {}", show_party(&waiter))?;
        for (at, other) in waits_for.iter().enumerate() {
            output.push_str(if at == 0 { " waits for " } else { ", " });
            output.push_str(&show_party(other));
        }
        writeln!(output, "{}", if more { " and more" } else { "" })?;
    }
    if !complete {
        writeln!(output, "and more")?;
    }
    Ok(output)
}

fn show_party(party: &OwnerView) -> String {
    let OwnerView {
        session,
        owner,
        holder,
        waits,
    } = party;
    let what = if *waits { "waits" } else { "holds" };
    format!("session {} {owner:?} ({what} as {holder})", session.0)
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
