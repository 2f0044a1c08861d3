//! Texts of commands, replies and events, for golden scripts, logs and the command line. Passwords and data
//! are not shown, only their presence.

use core::fmt::{self, Display, Formatter, Write as _};

use crate::model::access::principal::Principal;
use crate::model::acl::{Acl, AclEntry, Perms};
use crate::model::command::{Command, CreateMode, Op, Request, Step};
use crate::model::data::Data;
use crate::model::event::{ContenderEnd, Event, Hold, ZnodeEvent, ZnodeEventKind};
use crate::model::ids::RequestId;
use crate::model::limits::Limits;
use crate::model::lock::{
    AttemptId, ContenderNames, Downgraded, HoldBounds, HolderId, LeaseChange, LockCommand, LockMode,
    LockWish, NewLease, WithdrawCause,
};
use crate::model::mirrored::{MirrorStep, Mirrored, MirroredKind};
use crate::model::namespace::{NamespaceView, Quotas};
use crate::model::path::LockName;
use crate::model::refusal::{Limited, ModeStep, QuotaKind};
use crate::model::reply::{Applied, Grant, LeaseContender, Place, Reply};
use crate::model::session::{SessionFate, SessionView};
use crate::model::session::{Silence, Turn};
use crate::model::stat::{Kind, Stat};

/// Values with a comma between them.
struct List<'a, T>(&'a [T]);

impl<T: Display> Display for List<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        for (i, value) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            value.fmt(f)?;
        }
        Ok(())
    }
}

/// Number with a noun in the singular or plural: "1 byte", "2 bytes".
struct Count(u64, &'static str);

impl Display for Count {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(count, noun) = *self;
        write!(f, "{count} {noun}{}", if count == 1 { "" } else { "s" })
    }
}

/// Expected version; empty if any version is accepted.
struct IfVersion(i32);

impl Display for IfVersion {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            -1 => Ok(()),
            version => write!(f, " if it has version {version}"),
        }
    }
}

impl Display for Request {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.command.fmt(f)?;
        if let Some(session) = self.session {
            write!(f, " for session {session}")?;
        }
        if let Some(request_id) = &self.request_id {
            write!(f, " as request {request_id}")?;
        }
        Ok(())
    }
}

impl Display for Command {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenSession {
                session,
                password: _,
                timeout_ms,
                name,
                address,
            } => {
                write!(
                    f,
                    "open session {session} of {name:?} at {address:?} with a timeout of {timeout_ms} ms"
                )
            }
            Self::CloseSession { session } => write!(f, "close session {session}"),
            Self::ExpireSessions {
                sessions,
                term,
                as_of,
            } => {
                write!(
                    f,
                    "expire sessions {} in term {term}, silent as of {as_of}",
                    List(sessions)
                )
            }
            Self::Write(op) => op.fmt(f),
            Self::Multi(ops) => write!(f, "all or none of: {}", List(ops)),
            Self::Sweep(paths) => write!(f, "sweep {}", List(paths)),
            Self::SetLimits(limits) => write!(f, "set limits: {limits}"),
            Self::Lock(command) => command.fmt(f),
            Self::Reconnect { session, password: _ } => write!(f, "reconnect session {session}"),
            Self::InTurn { turn, step } => write!(f, "in turn {turn}: {step}"),
            Self::Access(command) => command.fmt(f),
            Self::Mirror(steps) => write!(f, "mirror: {}", List(steps)),
            Self::RecordSilence {
                sessions,
                term,
                as_of,
            } => {
                write!(f, "record silence in term {term}, as of {as_of}:")?;
                sessions
                    .iter()
                    .try_for_each(|(session, ms)| write!(f, " {session} for {ms} ms"))
            }
            Self::NoteHeartbeats { sessions, term } => {
                write!(f, "note heartbeats of {} in term {term}", List(sessions))
            }
            Self::RenewLease { lease, timeout_ms } => {
                write!(
                    f,
                    "renew lease {} with a timeout of {timeout_ms} ms",
                    lease.session
                )
            }
            Self::ReleaseLease { lease } => write!(f, "release lease {}", lease.session),
            Self::SetQuotas {
                namespace,
                quotas: Some(quotas),
            } => write!(f, "set quotas of namespace {namespace}: {quotas}"),
            Self::SetQuotas {
                namespace,
                quotas: None,
            } => write!(f, "remove the quotas of namespace {namespace}"),
        }
    }
}

impl Display for MirrorStep {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put(znode) => {
                let Mirrored {
                    path,
                    data,
                    acl,
                    kind,
                    version,
                    aversion,
                    ctime_ms,
                    mtime_ms,
                    creations,
                } = znode;
                write!(
                    f,
                    "put {kind} {path} with {data} for {acl}, version {version}, aversion {aversion}, created at {ctime_ms} ms, \
                     modified at {mtime_ms} ms, {creations} children created"
                )
            }
            Self::Remove { path } => write!(f, "remove {path}"),
        }
    }
}

impl Display for MirroredKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Persistent => f.write_str("persistent"),
            Self::Container => f.write_str("container"),
            Self::Ttl(ttl_ms) => write!(f, "ttl={ttl_ms}"),
        }
    }
}

impl Display for Turn {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} since {}", self.number, self.since)
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(op) => op.fmt(f),
            Self::Multi(ops) => write!(f, "all or none of: {}", List(ops)),
            Self::CloseSession => f.write_str("close the session"),
        }
    }
}

impl Display for Op {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create {
                path,
                data,
                acl,
                mode,
                parents,
            } => {
                write!(f, "create {mode} {path} with {data}")?;
                if !acl.is_open() {
                    write!(f, " for {acl}")?;
                }
                f.write_str(if *parents { " and its parents" } else { "" })
            }
            Self::Delete { path, version } => write!(f, "delete {path}{}", IfVersion(*version)),
            Self::DeleteRecursive { path } => write!(f, "delete {path} and all below it"),
            Self::Set { path, data, version } => write!(f, "set {path} to {data}{}", IfVersion(*version)),
            Self::SetAcl { path, acl, aversion } => {
                write!(f, "give {path} to {acl}{}", IfVersion(*aversion))
            }
            Self::Held { lock, fencing_token } => {
                write!(f, "check that lock {lock} is held with token {fencing_token}")
            }
            Self::Check { path, version: -1 } => write!(f, "check that {path} exists"),
            Self::Check { path, version } => write!(f, "check that {path} has version {version}"),
        }
    }
}

impl Display for CreateMode {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ttl { ttl_ms } => return write!(f, "ttl of {ttl_ms} ms"),
            Self::TtlSequential { ttl_ms } => return write!(f, "ttl_sequential of {ttl_ms} ms"),
            Self::Persistent => "persistent",
            Self::Ephemeral => "ephemeral",
            Self::PersistentSequential => "persistent_sequential",
            Self::EphemeralSequential => "ephemeral_sequential",
            Self::Container => "container",
        })
    }
}

impl Display for LockCommand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquire {
                wish,
                guid: _,
                attempt,
                wait,
            } => {
                write!(f, "{} {wish} ({attempt})", if *wait { "acquire" } else { "try" })
            }
            Self::Release { lock, holder } => write!(f, "release lock {lock} held as {holder}"),
            Self::Withdraw {
                lock,
                holder,
                attempt,
                cause,
            } => {
                write!(f, "withdraw {attempt} of {holder} from lock {lock}: {cause}")
            }
            Self::Break {
                lock,
                holder,
                by: _,
                reason,
            } => {
                write!(f, "break {holder} of lock {lock}: {reason}")
            }
            Self::Downgrade { lock, holder, to } => {
                let to = match to {
                    Downgraded::Shared => LockMode::Shared,
                    Downgraded::Upgradeable => LockMode::Upgradeable,
                };
                write!(f, "downgrade {holder} of lock {lock} to {to}")
            }
            Self::Upgrade {
                lock,
                holder,
                attempt,
                wait,
            } => {
                let how = if *wait { "upgrade" } else { "try to upgrade" };
                write!(f, "{how} {holder} of lock {lock} ({attempt})")
            }
            Self::AcquireMany {
                wishes,
                guid: _,
                attempt,
                wait,
            } => {
                let how = if *wait { "acquire" } else { "try" };
                write!(f, "{how} all of {} ({attempt})", List(wishes))
            }
            Self::ReleaseMany { holders } => write!(f, "release {}", Contenders(holders)),
            Self::WithdrawMany {
                holders,
                attempt,
                cause,
            } => write!(f, "withdraw {attempt} of {}: {cause}", Contenders(holders)),
            Self::Configure {
                lock,
                limit,
                draining,
            } => {
                write!(f, "configure lock {lock}")?;
                match limit {
                    Some(Some(limit)) => write!(f, ", limit {limit}")?,
                    Some(None) => f.write_str(", no limit")?,
                    None => {}
                }
                match draining {
                    Some(true) => f.write_str(", draining"),
                    Some(false) => f.write_str(", not draining"),
                    None => Ok(()),
                }
            }
            Self::Revoke {
                lock,
                holder,
                by: _,
                reason,
            } => match holder {
                Some(holder) => write!(f, "ask {holder} to give lock {lock} up: {reason}"),
                None => write!(f, "ask all holders to give lock {lock} up: {reason}"),
            },
            Self::AnswerRevoke { lock, holder, answer } => {
                write!(f, "{holder} of lock {lock} answers: {answer}")
            }
            Self::CountDelays { locks, term } => {
                f.write_str("count")?;
                for (lock, at, passed_ms) in locks {
                    write!(f, " {passed_ms} ms of lock {lock} closed at {at},")?;
                }
                write!(f, " in term {term}")
            }
            Self::AcquireBounded {
                wish,
                guid: _,
                attempt,
                wait,
                bounds,
                lease,
            } => {
                write!(
                    f,
                    "{} {wish}{bounds} ({attempt})",
                    if *wait { "acquire" } else { "try" }
                )?;
                match lease {
                    Some(NewLease { key, timeout_ms }) => {
                        let session = key.session;
                        write!(f, " with lease {session} of {timeout_ms} ms")
                    }
                    None => Ok(()),
                }
            }
            Self::EndHolds { holders, term } => {
                write!(f, "end the holds of {} in term {term}", Contenders(holders))
            }
            Self::ChangeLease { lock, lease, change } => match change {
                LeaseChange::Release => write!(f, "release lock {lock} of lease {lease}"),
                LeaseChange::ReleaseOwn => write!(f, "release lock {lock} of own lease {lease}"),
                LeaseChange::Renew { timeout_ms } => {
                    write!(
                        f,
                        "renew lease {lease} of lock {lock} with a timeout of {timeout_ms} ms"
                    )
                }
                LeaseChange::Rewrite { timeout_ms, .. } => {
                    write!(
                        f,
                        "rewrite the note of lease {lease} of lock {lock} with a timeout of {timeout_ms} ms"
                    )
                }
                LeaseChange::Replace { new, .. } => {
                    let NewLease { key, timeout_ms } = new;
                    let session = key.session;
                    write!(
                        f,
                        "replace lease {lease} of lock {lock} by lease {session} of {timeout_ms} ms"
                    )
                }
            },
        }
    }
}

impl Display for HoldBounds {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { min_ms, max_ms } = *self;
        if min_ms != 0 {
            write!(f, " for at least {min_ms} ms")?;
        }
        if max_ms != 0 {
            write!(f, " for at most {max_ms} ms")?;
        }
        Ok(())
    }
}

/// Contenders with their locks.
struct Contenders<'a>(&'a [(LockName, HolderId)]);

impl Display for Contenders<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, (lock, holder)) in self.0.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { ", " })?;
            write!(f, "{holder} of lock {lock}")?;
        }
        Ok(())
    }
}

impl Display for ModeStep {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Upgraded => "upgraded",
            Self::Downgraded => "downgraded",
        })
    }
}

impl Display for LockWish {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            lock,
            mode,
            permits,
            owner,
            reentrant,
            note: _,
            address: _,
            lock_delay_ms,
            names,
        } = self;
        write!(f, "lock {lock} as {mode}")?;
        if *permits != 1 {
            write!(f, " with {permits} permits")?;
        }
        if !owner.is_empty() {
            write!(f, " for owner {owner:?}")?;
        }
        f.write_str(if *reentrant { "" } else { " not reentrant" })?;
        if *lock_delay_ms != 0 {
            write!(f, " with a lock-delay of {lock_delay_ms} ms")?;
        }
        f.write_str(match names {
            ContenderNames::Mutex => "",
            ContenderNames::ReadWrite => " named for read-write locks",
            ContenderNames::Kazoo => " named for kazoo",
        })
    }
}

impl Display for AttemptId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {:x}", self.0)
    }
}

impl Display for WithdrawCause {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "timed out",
            Self::Abandoned => "abandoned",
        })
    }
}

impl Display for Data {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_null() {
            return f.write_str("null");
        }
        Count(self.len() as u64, "byte").fmt(f)
    }
}

impl Display for RequestId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Display for Applied {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Ok(reply) => write!(f, "{}: {reply}", self.zxid),
            Err(refusal) => write!(f, "{}: refused: {refusal}", self.zxid),
        }
    }
}

impl Display for Reply {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::SessionOpened { session, timeout_ms } => {
                write!(f, "session {session} opened with a timeout of {timeout_ms} ms")
            }
            Self::SessionClosed => f.write_str("session closed"),
            Self::Reconnected { timeout_ms } => write!(f, "reconnected with a timeout of {timeout_ms} ms"),
            Self::SessionsExpired(count) => write!(f, "{} expired", Count((*count).into(), "session")),
            Self::Created { path, stat: _ } => write!(f, "created {path}"),
            Self::Deleted => f.write_str("deleted"),
            Self::Set(stat) => write!(f, "set to version {}", stat.version),
            Self::AclSet(stat) => write!(f, "list set to version {}", stat.aversion),
            Self::Checked => f.write_str("checked"),
            Self::Held => f.write_str("held"),
            Self::LimitsSet => f.write_str("limits set"),
            Self::Multi(replies) => write!(f, "all of: {}", List(replies)),
            Self::Swept(count) => write!(f, "{} swept", Count((*count).into(), "znode")),
            Self::Mirrored(count) => write!(f, "{} taken", Count((*count).into(), "step")),
            Self::SilenceRecorded(count) => {
                write!(f, "silence of {} recorded", Count((*count).into(), "session"))
            }
            Self::HeartbeatsNoted(count) => write!(f, "{} heard", Count((*count).into(), "session")),
            Self::Granted(grant) => grant.fmt(f),
            Self::Queued(place) => place.fmt(f),
            Self::Released { holds: 0 } => f.write_str("released"),
            Self::Released { holds } => write!(f, "released, {} left", Count((*holds).into(), "hold")),
            Self::Withdrawn => f.write_str("withdrawn"),
            Self::Broken => f.write_str("broken"),
            Self::ReleasedMany(holds) => {
                f.write_str("released:")?;
                for (at, holds) in holds.iter().enumerate() {
                    f.write_str(if at == 0 { " " } else { ", " })?;
                    match holds {
                        Some(0) => f.write_str("all")?,
                        Some(holds) => write!(f, "{} left", Count((*holds).into(), "hold"))?,
                        None => f.write_str("not held")?,
                    }
                }
                Ok(())
            }
            Self::Configured => f.write_str("configured"),
            Self::RevokeRequested(count) => write!(f, "{} asked", Count((*count).into(), "holder")),
            Self::RevokeAnswered => f.write_str("answer noted"),
            Self::Opened(count) => write!(f, "{} opened", Count((*count).into(), "lock")),
            Self::Secured => f.write_str("secured"),
            Self::TokenCreated(token) => write!(f, "token {token} made"),
            Self::TokenRevoked => f.write_str("token revoked"),
            Self::PolicyChanged => f.write_str("policy changed"),
            Self::Leased {
                lease,
                timeout_ms,
                contender,
            } => {
                write!(f, "lease {} of {timeout_ms} ms: ", lease.session)?;
                match contender {
                    LeaseContender::Holds(grant) => grant.fmt(f),
                    LeaseContender::Waits(place) => place.fmt(f),
                }
            }
            Self::LeaseRenewed { session, timeout_ms } => {
                write!(f, "lease {session} renewed with a timeout of {timeout_ms} ms")
            }
            Self::HoldsEnded(count) => write!(f, "{} ended", Count((*count).into(), "hold")),
        }
    }
}

impl Display for Grant {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            lock,
            holder,
            mode,
            fencing_token,
            holds,
            permits,
        } = self;
        write!(
            f,
            "lock {lock} granted to {holder} as {mode}, token {fencing_token}"
        )?;
        if *holds != 1 {
            write!(f, ", {holds} holds")?;
        }
        if *permits != 1 {
            write!(f, ", {permits} permits")?;
        }
        Ok(())
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} waits for lock {}, {} ahead",
            self.holder, self.lock, self.ahead
        )
    }
}

impl Display for Event {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::SessionReconnected { session, since } => {
                write!(f, "session {session} reconnected at {since}")
            }
            Self::AccessChanged(change) => change.fmt(f),
            Self::Znode(event) => event.fmt(f),
            Self::SoftQuotaPassed {
                path,
                what,
                limit,
                used,
            } => write!(f, "the quota of {path} is {limit} {what}, and it has {used}"),
            Self::Granted { session, grant } => write!(f, "{grant}, for session {session}"),
            Self::ContenderEnded {
                session,
                lock,
                holder,
                how,
            } => {
                write!(f, "{holder} of session {session} left lock {lock}: {how}")
            }
            Self::HoldBegan(hold) => write!(f, "{hold}: begins"),
            Self::HoldEnded { hold, how, by: None } => write!(f, "{hold}: {how}"),
            Self::HoldEnded {
                hold,
                how,
                by: Some(by),
            } => write!(f, "{hold}: {how}, by {by}"),
            Self::ModeChanged { session, grant } => {
                write!(
                    f,
                    "lock {} is now held by {} as {}, token {}, for session {session}",
                    grant.lock, grant.holder, grant.mode, grant.fencing_token
                )
            }
            Self::UpgradeWithdrawn {
                session,
                lock,
                holder,
            } => write!(
                f,
                "the upgrade of {holder} of lock {lock} was withdrawn, for session {session}"
            ),
            Self::RevokeRequested {
                session,
                lock,
                holder,
                by,
                reason,
            } => write!(
                f,
                "{holder} of session {session} is asked by {by:?} to give lock {lock} up: {reason}"
            ),
            Self::RevokeAnswered {
                session,
                lock,
                holder,
                answer,
            } => write!(
                f,
                "{holder} of session {session} answers about lock {lock}: {answer}"
            ),
            Self::LockClosed { lock, delay_ms } => write!(f, "lock {lock} is closed for {delay_ms} ms"),
            Self::LockOpened(lock) => write!(f, "lock {lock} is open again"),
            Self::SessionOpened(session) => write!(f, "session {session} opened"),
            Self::SessionEnded {
                session,
                expired: false,
            } => write!(f, "session {session} closed"),
            Self::SessionEnded {
                session,
                expired: true,
            } => write!(f, "session {session} expired"),
        }
    }
}

impl Display for Hold {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            lock,
            holder,
            session,
            session_name,
            mode,
            permits,
            fencing_token,
            owner,
            note,
            address,
            since_ms,
        } = self;
        write!(
            f,
            "hold of lock {lock} as {mode} by {holder} of session {session}, token {fencing_token}"
        )?;
        if *permits != 1 {
            write!(f, ", {permits} permits")?;
        }
        for (what, text) in [
            ("named", &**session_name),
            ("owner", &**owner),
            ("note", &**note),
            ("at", address.host()),
        ] {
            if !text.is_empty() {
                write!(f, ", {what} {text:?}")?;
            }
        }
        match since_ms {
            Some(since_ms) => write!(f, ", since {since_ms}"),
            None => Ok(()),
        }
    }
}

impl Display for ZnodeEvent {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match self.kind {
            ZnodeEventKind::Created => write!(f, "created {path}")?,
            ZnodeEventKind::Deleted => write!(f, "deleted {path}")?,
            ZnodeEventKind::DataChanged => write!(f, "data of {path} changed")?,
            ZnodeEventKind::ChildrenChanged => write!(f, "children of {path} changed")?,
        }
        if !self.acl.is_open() {
            // Logs contain events, but must not contain hashes of passwords.
            write!(f, ", for {}", self.acl.masked())?;
        }
        Ok(())
    }
}

/// Shows rights as `zkCli` does: `cdrwa`, in this order.
impl Display for Perms {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (letter, perm) in [
            ('c', Self::CREATE),
            ('d', Self::DELETE),
            ('r', Self::READ),
            ('w', Self::WRITE),
            ('a', Self::ADMIN),
        ] {
            if self.0 & perm.0 != 0 {
                f.write_char(letter)?;
            }
        }
        Ok(())
    }
}

/// Shows a list as `zkCli` accepts it: `scheme:id:perms`, separated by commas.
impl Display for Acl {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        List(&self.entries()).fmt(f)
    }
}

impl Display for AclEntry {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.scheme, self.id, self.perms)
    }
}

impl Display for QuotaKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Count => "znodes",
            Self::Bytes => "bytes",
        })
    }
}

impl Display for Limited {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Children(path) => write!(f, "children of {path}"),
            Self::Ephemerals(session) => write!(f, "ephemeral znodes of session {session}"),
            Self::Sessions => f.write_str("sessions"),
            Self::ConfiguredLocks => f.write_str("locks with terms of their own"),
            Self::Tokens => f.write_str("tokens"),
            Self::Roles => f.write_str("roles"),
            Self::Certificates => f.write_str("certificates that have a role"),
            Self::LongPaths(path) => write!(
                f,
                "bytes of long paths at {path} that one command creates or removes"
            ),
            Self::Descendants(path) => write!(f, "znodes below {path} that one command removes"),
            Self::Operations => f.write_str("operations of a transaction"),
            Self::Namespaces => f.write_str("namespaces with quotas"),
        }
    }
}

impl Display for Quotas {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rate = self.requests_per_second.map(u64::from);
        let quotas = [
            ("sessions", self.sessions),
            ("locks", self.locks),
            ("znodes", self.znodes),
            ("bytes", self.bytes),
            ("requests per second", rate),
        ];
        let mut separator = "";
        for (what, limit) in quotas {
            if let Some(limit) = limit {
                write!(f, "{separator}{limit} {what}")?;
                separator = ", ";
            }
        }
        f.write_str(if separator.is_empty() { "none" } else { "" })
    }
}

impl Display for NamespaceView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            namespace,
            quotas,
            usage,
        } = self;
        write!(
            f,
            "{namespace} uses {}, {}, {}, {}; quotas: {quotas}",
            Count(usage.sessions, "session"),
            Count(usage.locks, "lock"),
            Count(usage.znodes, "znode"),
            Count(usage.bytes, "byte"),
        )
    }
}

impl Display for Limits {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            data_bytes,
            children,
            ephemerals,
            sessions,
        } = self;
        write!(
            f,
            "{data_bytes} bytes of data, {children} children, {ephemerals} ephemerals, {sessions} sessions"
        )
    }
}

impl Display for ContenderEnd {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Released => f.write_str("released"),
            Self::Withdrawn => f.write_str("withdrawn"),
            Self::SessionClosed => f.write_str("its session was closed"),
            Self::SessionExpired => f.write_str("its session expired"),
            Self::Broken { by, reason } => write!(f, "broken by {by:?} ({reason})"),
            Self::NeverGrantable { limit } => write!(f, "there are only {limit} permits now"),
            Self::Forbidden => f.write_str("its session's owner may not lock here any more"),
            Self::Deleted => f.write_str("its znode was deleted"),
            Self::MaxHold => f.write_str("held for as long as it may"),
            Self::Upgraded => f.write_str("upgraded"),
        }
    }
}

impl Display for Stat {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            czxid,
            mzxid,
            pzxid,
            ctime_ms,
            mtime_ms,
            version,
            cversion,
            ..
        } = self;
        write!(
            f,
            "czxid={czxid} mzxid={mzxid} pzxid={pzxid} ctime={ctime_ms} mtime={mtime_ms} "
        )?;
        write!(
            f,
            "version={version} cversion={cversion} aversion={} ",
            self.aversion
        )?;
        write!(f, "bytes={} children={}", self.data_length, self.num_children)?;
        match self.ephemeral_owner.kind() {
            Kind::Persistent => Ok(()),
            Kind::Container => f.write_str(" container"),
            Kind::Ttl(ttl_ms) => write!(f, " ttl={ttl_ms}"),
            Kind::Ephemeral(session) => write!(f, " owner={session}"),
        }
    }
}

impl Display for SessionView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            session,
            timeout_ms,
            name,
            address,
            opened_at_ms,
            ephemerals,
            connected_at: _,
            owner,
            silence,
            is_lease,
        } = self;
        f.write_str(if *is_lease { "lease, " } else { "" })?;
        write!(
            f,
            "session {session} of {name:?} at {:?}, timeout {timeout_ms} ms, ",
            address.host()
        )?;
        write!(
            f,
            "opened at {opened_at_ms} ms, {}",
            Count((*ephemerals).into(), "ephemeral znode")
        )?;
        if let Some(Silence { at, ms }) = silence {
            write!(f, ", silent for {ms} ms at {at}")?;
        }
        match owner {
            Principal::Nobody => Ok(()),
            owner => write!(f, ", of {owner}"),
        }
    }
}

impl Display for SessionFate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Live => "live",
            Self::Ended => "ended",
            Self::Unknown => "unknown",
        })
    }
}
