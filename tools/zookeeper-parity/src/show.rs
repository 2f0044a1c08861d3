//! Display of steps and requests, for readers of a program that showed a difference.

use std::fmt;

use crate::program::{Relative, Step};
use crate::wire::{AclEntry, CreateCall, Request, SetWatches};

/// Length above which a value is printed as a prefix, a length and a digest.
const SHOWN_BYTES: usize = 100;

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {}: ", self.session())?;
        match self {
            Step::Open { .. } => f.write_str("open"),
            Step::Call { request, .. } => write!(f, "{}", Shown(request)),
            Step::Rewatch {
                relative, watches, ..
            } => {
                match relative {
                    Relative::Zero => f.write_str("setWatches2 since the beginning")?,
                    Relative::Future => f.write_str("setWatches2 since the future")?,
                    Relative::Reply(0) => f.write_str("setWatches2 since the last reply")?,
                    Relative::Reply(before) => {
                        write!(f, "setWatches2 since {before} replies before the last")?
                    }
                }
                write!(f, "{}", ShownWatches(watches))
            }
            Step::Drop { .. } => f.write_str("drop the connection"),
            Step::Resume {
                wrong_password: false,
                ..
            } => f.write_str("resume"),
            Step::Resume {
                wrong_password: true, ..
            } => f.write_str("resume with a wrong password"),
            Step::Close { .. } => f.write_str("close"),
            Step::End { .. } => f.write_str("end"),
        }
    }
}

/// Display of the watches of a setWatches2.
struct ShownWatches<'a>(&'a SetWatches);

impl fmt::Display for ShownWatches<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("data", &self.0.data),
            ("exist", &self.0.exist),
            ("child", &self.0.child),
            ("persistent", &self.0.persistent),
            ("recursive", &self.0.persistent_recursive),
        ];
        for (name, paths) in lists {
            if !paths.is_empty() {
                write!(f, " {name}={paths:?}")?;
            }
        }
        Ok(())
    }
}

/// Display of a request.
pub struct Shown<'a>(pub &'a Request);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Request::Create {
                call,
                path,
                data,
                acl,
                flags,
            } => {
                match call {
                    CreateCall::Create => f.write_str("create")?,
                    CreateCall::Create2 => f.write_str("create2")?,
                    CreateCall::Container => f.write_str("createContainer")?,
                    CreateCall::Ttl(ttl_ms) => write!(f, "createTTL {ttl_ms} ms")?,
                }
                write!(f, " {} {} flags={flags}", Text(path), Data(data.as_deref()))?;
                match flags {
                    1 => f.write_str(" (ephemeral)")?,
                    2 => f.write_str(" (sequential)")?,
                    3 => f.write_str(" (ephemeral sequential)")?,
                    4 => f.write_str(" (container)")?,
                    5 => f.write_str(" (ttl)")?,
                    6 => f.write_str(" (ttl sequential)")?,
                    _ => {}
                }
                write!(f, " acl={}", Acl(acl.as_deref()))
            }
            Request::Delete { path, version } => write!(f, "delete {} version={version}", Text(path)),
            Request::SetData { path, data, version } => {
                write!(
                    f,
                    "setData {} {} version={version}",
                    Text(path),
                    Data(data.as_deref())
                )
            }
            Request::SetAcl { path, acl, version } => {
                write!(
                    f,
                    "setACL {} acl={} version={version}",
                    Text(path),
                    Acl(acl.as_deref())
                )
            }
            Request::Check { path, version } => write!(f, "check {} version={version}", Text(path)),
            Request::Multi(items) => show_items(f, "multi", items),
            Request::MultiRead(items) => show_items(f, "multiRead", items),
            Request::Exists { path, watch } => write!(f, "exists {}{}", Text(path), watched(*watch)),
            Request::GetData { path, watch } => write!(f, "getData {}{}", Text(path), watched(*watch)),
            Request::GetAcl { path } => write!(f, "getACL {}", Text(path)),
            Request::GetChildren { path, watch } => {
                write!(f, "getChildren {}{}", Text(path), watched(*watch))
            }
            Request::GetChildren2 { path, watch } => {
                write!(f, "getChildren2 {}{}", Text(path), watched(*watch))
            }
            Request::GetAllChildrenNumber { path } => write!(f, "getAllChildrenNumber {}", Text(path)),
            Request::GetEphemerals { prefix } => write!(f, "getEphemerals {}", Text(prefix)),
            Request::Sync { path } => write!(f, "sync {}", Text(path)),
            Request::WhoAmI => f.write_str("whoAmI"),
            Request::Auth { scheme, auth, .. } => write!(f, "auth {scheme} {}", Data(auth.as_deref())),
            Request::AddWatch { path, mode } => write!(f, "addWatch {} mode={mode}", Text(path)),
            Request::CheckWatches { path, kind } => write!(f, "checkWatches {} type={kind}", Text(path)),
            Request::RemoveWatches { path, kind } => write!(f, "removeWatches {} type={kind}", Text(path)),
            Request::SetWatches2 {
                relative_zxid,
                watches,
            } => {
                write!(f, "setWatches2 since {relative_zxid:#x}{}", ShownWatches(watches))
            }
            Request::SetWatches {
                relative_zxid,
                watches,
            } => {
                write!(f, "setWatches since {relative_zxid:#x}{}", ShownWatches(watches))
            }
            Request::Sasl { token } => write!(f, "sasl {}", Data(token.as_deref())),
            Request::Reconfig { .. } => f.write_str("reconfig"),
            Request::Ping => f.write_str("ping"),
            Request::CloseSession => f.write_str("closeSession"),
        }
    }
}

fn show_items(f: &mut fmt::Formatter<'_>, name: &str, items: &[Request]) -> fmt::Result {
    write!(f, "{name} of {}", items.len())?;
    for item in items {
        write!(f, "\n         - {}", Shown(item))?;
    }
    Ok(())
}

fn watched(watch: bool) -> &'static str {
    if watch { " watch" } else { "" }
}

/// Display of a znode's data.
pub struct Data<'a>(pub Option<&'a [u8]>);

impl fmt::Display for Data<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("null"),
            Some(bytes) if bytes.len() <= SHOWN_BYTES => write!(f, "\"{}\"", bytes.escape_ascii()),
            Some(bytes) => write!(f, "\"{}...\" ({})", bytes[..16].escape_ascii(), Digest(bytes)),
        }
    }
}

/// Display of a path or another text.
pub struct Text<'a>(pub &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.len() <= SHOWN_BYTES {
            write!(f, "{:?}", self.0)
        } else {
            let start = self.0.chars().take(16).collect::<String>();
            write!(
                f,
                "\"{}...\" ({})",
                start.escape_debug(),
                Digest(self.0.as_bytes())
            )
        }
    }
}

/// Length with a digest (FNV-1a), so that different values are printed differently.
struct Digest<'a>(&'a [u8]);

impl fmt::Display for Digest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let add = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        let digest = self.0.iter().fold(0xcbf2_9ce4_8422_2325, add);
        write!(f, "{} bytes, {digest:016x}", self.0.len())
    }
}

/// Display of an ACL: permissions as ZooKeeper's shell prints them, other bits as a number.
pub struct Acl<'a>(pub Option<&'a [AclEntry]>);

impl fmt::Display for Acl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(entries) = self.0 else {
            return f.write_str("null");
        };
        f.write_str("[")?;
        for (index, AclEntry { perms, scheme, id }) in entries.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{scheme}:")?;
            if id.len() <= SHOWN_BYTES {
                write!(f, "{id}:")?
            } else {
                write!(f, "{}:", Text(id))?
            }
            if (0..32).contains(perms) {
                let letters = [(4, 'c'), (8, 'd'), (1, 'r'), (2, 'w'), (16, 'a')];
                for (_, letter) in letters.iter().filter(|(bit, _)| perms & bit != 0) {
                    write!(f, "{letter}")?;
                }
            } else {
                write!(f, "{perms}")?;
            }
        }
        f.write_str("]")
    }
}
