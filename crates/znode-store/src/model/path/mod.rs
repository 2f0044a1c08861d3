//! Paths of znodes, checked once at the edge: every [`ZPath`] is a legal path.
//!
//! The rules are ZooKeeper's (`PathUtils.validatePath`): absolute, no empty, `.` or `..` component, no trailing slash, none of the
//! characters that its clients cannot show.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::model::digits::SEQUENCE_DIGITS;
use crate::model::text::checked_text;

/// Maximum length of a path in bytes: more than a request of ZooKeeper's default size (`jute.maxbuffer`) can hold,
/// also with the digits of a sequential name.
pub const MAX_PATH_BYTES: usize = 1024 * 1024;

/// Maximum number of components of a path. It follows from [`MAX_PATH_BYTES`]: each component takes two bytes at least.
pub const MAX_PATH_DEPTH: usize = MAX_PATH_BYTES / 2;

/// Maximum length of a short path in bytes. Versions 1 and 2 of the commands know short paths only. The work for one short
/// path is not worth counting, so the bounds on what one command may do to long paths do not count short ones.
pub const SHORT_PATH_BYTES: usize = 1024;

/// Maximum number of components of a short path.
pub const SHORT_PATH_DEPTH: usize = 32;

/// Maximum sum of the bytes of long paths that one command creates or removes. Each of them is hashed and copied several times in the apply
/// loop: 16 MiB take some 50 ms.
pub const MAX_LONG_PATHS_BYTES: usize = 16 * 1024 * 1024;

/// Maximum length of a lock name in bytes, as in the HTTP API. The znode of a lock is always at a short path, so that the cost of an acquire, which
/// creates missing parents, is bounded.
pub const MAX_LOCK_NAME_BYTES: usize = 512;

/// Parent of the znodes of all locks: the lock `orders/42` is the znode `/locks/orders/42`.
pub const LOCK_ROOT: &str = "/locks";

/// Reason for which a text is no path, or no name of a lock.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// The path is not absolute.
    #[error("a path starts with '/'")]
    NotAbsolute,
    /// The path ends with a slash: `/a/`.
    #[error("a path does not end with '/'")]
    TrailingSlash,
    /// The path has an empty component: `/a//b`.
    #[error("a path has no empty component")]
    EmptyComponent,
    /// The path has a component `.` or `..`, which would have to be resolved. ZooKeeper does not resolve it.
    #[error("a path has no component '.' or '..'")]
    Relative,
    /// The path contains a control character, or one of the characters that ZooKeeper refuses.
    #[error("the character U+{0:04X} is not allowed in a path")]
    Character(u32),
    /// The text is longer than [`MAX_PATH_BYTES`], or [`MAX_LOCK_NAME_BYTES`] for the name of a lock.
    #[error("{bytes} bytes are more than the {limit} allowed")]
    TooLong {
        /// Size of the given text.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The path has too many components.
    #[error("a path has at most {limit} components")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// The text is empty.
    #[error("the name is empty")]
    Empty,
}

/// Absolute path of a znode that follows ZooKeeper's rules.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZPath(Arc<str>);

impl ZPath {
    /// Checks `text` and returns it as a path.
    pub fn parse(text: &str) -> Result<Self, BadPath> {
        if !text.starts_with('/') {
            return Err(BadPath::NotAbsolute);
        }
        if text.len() > MAX_PATH_BYTES {
            return Err(BadPath::TooLong {
                bytes: text.len(),
                limit: MAX_PATH_BYTES,
            });
        }
        if text == "/" {
            return Ok(Self::root());
        }
        let mut rest = Some(&text[1..]);
        while let Some(from) = rest {
            let component;
            (component, rest) = first_component(from);
            if component.is_empty() && rest.is_none() {
                return Err(BadPath::TrailingSlash);
            }
            check_component(component)?;
        }
        Ok(Self(text.into()))
    }

    /// Returns the path of a text that was built from legal components.
    pub(crate) fn from_checked(text: String) -> Self {
        debug_assert!(Self::parse(&text).is_ok(), "{text} is no path");
        Self(text.into())
    }

    /// Returns the path `/`.
    pub fn root() -> Self {
        Self("/".into())
    }

    /// Returns whether this is `/`.
    pub fn is_root(&self) -> bool {
        &*self.0 == "/"
    }

    /// Returns the text of the path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the path of the parent; `None` for the root.
    pub fn parent(&self) -> Option<ZPath> {
        match self.last_slash() {
            _ if self.is_root() => None,
            0 => Some(Self::root()),
            at => Some(Self(self.0[..at].into())),
        }
    }

    /// Returns the path of the parent as text; the root's own for the root.
    pub(crate) fn parent_text(&self) -> &str {
        match self.last_slash() {
            0 => "/",
            at => &self.0[..at],
        }
    }

    /// Returns the last component; empty for the root.
    pub fn name(&self) -> &str {
        &self.0[self.last_slash() + 1..]
    }

    /// Returns the components from the root downwards; none for the root itself.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        let mut rest = Some(&self.0[1..]).filter(|rest| !rest.is_empty());
        core::iter::from_fn(move || {
            let component;
            (component, rest) = first_component(rest?);
            Some(component)
        })
    }

    /// Returns the number of components.
    pub fn depth(&self) -> usize {
        match self.is_root() {
            true => 0,
            false => slashes(&self.0),
        }
    }

    /// Returns whether the path has at most [`SHORT_PATH_BYTES`] and [`SHORT_PATH_DEPTH`] components.
    pub fn is_short(&self) -> bool {
        is_short(&self.0, self.0.len(), 0)
    }

    /// Returns the index of the last slash.
    fn last_slash(&self) -> usize {
        memchr::memrchr(b'/', self.0.as_bytes()).expect("a path is absolute")
    }

    /// Returns the child `name` of this path. Fails if the name is no component or the result is too long.
    pub fn join(&self, name: &str) -> Result<ZPath, BadPath> {
        match name {
            "." | ".." => return Err(BadPath::Relative),
            _ if name.is_empty() || name.contains('/') => return Err(BadPath::EmptyComponent),
            _ => check_characters(name)?,
        }
        self.join_checked(name)
    }

    /// Returns the child `name`, which exists, of this path, which exists.
    pub(crate) fn child(&self, name: &str) -> ZPath {
        self.join_checked(name).expect("znodes are at legal paths")
    }

    /// Returns the child `name` of this path, where the name is known to be a component. Fails if the result is too long.
    pub(crate) fn join_checked(&self, name: &str) -> Result<ZPath, BadPath> {
        let parent = if self.is_root() { "" } else { self.as_str() };
        let bytes = parent.len() + 1 + name.len();
        if bytes > MAX_PATH_BYTES {
            let limit = MAX_PATH_BYTES;
            return Err(BadPath::TooLong { bytes, limit });
        }
        let mut text = String::with_capacity(bytes);
        text.push_str(parent);
        text.push('/');
        text.push_str(name);
        Ok(Self::from_checked(text))
    }
}

fn slashes(text: &str) -> usize {
    text.bytes().map(|byte| usize::from(byte == b'/')).sum()
}

/// Returns whether a path of `bytes` bytes is short that begins with the path `text`, and has `more` components.
fn is_short(text: &str, bytes: usize, more: usize) -> bool {
    let depth = SHORT_PATH_DEPTH - more;
    // Most paths have too few bytes to be deep, and their slashes are not counted.
    bytes <= SHORT_PATH_BYTES && (text.len() <= 2 * depth || slashes(text) <= depth)
}

/// Returns the text before the first slash, and the text after it, if there is a slash.
fn first_component(text: &str) -> (&str, Option<&str>) {
    match memchr::memchr(b'/', text.as_bytes()) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// Checks one component, which is between two slashes and so contains none.
pub(crate) fn check_component(component: &str) -> Result<(), BadPath> {
    match component {
        "" => Err(BadPath::EmptyComponent),
        "." | ".." => Err(BadPath::Relative),
        _ => check_characters(component),
    }
}

fn check_characters(component: &str) -> Result<(), BadPath> {
    // Most components have only these, which is checked sixteen bytes at a time, because the loop has no early exit.
    if component
        .bytes()
        .fold(true, |plain, byte| plain & (0x20..0x7f).contains(&byte))
    {
        return Ok(());
    }
    match component
        .chars()
        .map(u32::from)
        .find(|c| matches!(c, 0x0000..=0x001f | 0x007f..=0x009f | 0xd800..=0xf8ff | 0xfff0..=0xffff))
    {
        Some(c) => Err(BadPath::Character(c)),
        None => Ok(()),
    }
}

/// Path of a znode to create: its parent and its name. For a sequential node the name is a prefix, which may be empty (`/queue/` names the
/// children of `/queue` by their numbers alone).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatePath {
    /// The parent, which must exist unless missing parents are requested.
    pub parent: ZPath,
    /// The name below it, without the sequence number.
    pub name: Arc<str>,
}

impl CreatePath {
    /// Checks `text` as the path of a node to create; `sequential` says whether a number follows it.
    pub fn parse(text: &str, sequential: bool) -> Result<Self, BadPath> {
        let Some((parent, name)) = text.rsplit_once('/') else {
            return Err(if text.is_empty() {
                BadPath::Empty
            } else {
                BadPath::NotAbsolute
            });
        };
        // ZooKeeper checks a sequential path with a digit appended, which is what it will become.
        let probe = if sequential {
            alloc::format!("{text}0000000000")
        } else {
            text.to_owned()
        };
        ZPath::parse(&probe)?;
        let parent = if parent.is_empty() {
            ZPath::root()
        } else {
            ZPath::parse(parent)?
        };
        Ok(Self {
            parent,
            name: name.into(),
        })
    }
}

impl CreatePath {
    /// Returns the number of bytes of the path, with the digits of a sequential name.
    fn bytes(&self, sequential: bool) -> usize {
        let parent = if self.parent.is_root() {
            0
        } else {
            self.parent.as_str().len()
        };
        let digits = if sequential { SEQUENCE_DIGITS } else { 0 };
        parent + 1 + self.name.len() + digits
    }

    /// Returns whether the path is short, with the digits of a sequential name: see [`ZPath::is_short`].
    pub fn is_short(&self, sequential: bool) -> bool {
        is_short(self.parent.as_str(), self.bytes(sequential), 1)
    }
}

/// Bounds on the paths of znodes that are created. They belong to a front end, and are no part of the state. An existing znode can be read, written
/// and deleted whatever they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathBounds {
    /// Maximum length in bytes.
    pub bytes: usize,
    /// Maximum number of components.
    pub depth: usize,
}

impl PathBounds {
    /// Bounds that every path is within.
    pub const ALL: Self = Self {
        bytes: MAX_PATH_BYTES,
        depth: MAX_PATH_DEPTH,
    };

    /// Refuses a path beyond the bounds.
    pub fn check(&self, path: &ZPath) -> Result<(), BadPath> {
        self.check_size(path.as_str().len(), || path.depth())
    }

    /// Refuses a creation beyond the bounds. The digits of a sequential name count.
    pub fn check_creation(&self, path: &CreatePath, sequential: bool) -> Result<(), BadPath> {
        self.check_size(path.bytes(sequential), || path.parent.depth() + 1)
    }

    fn check_size(&self, bytes: usize, depth: impl FnOnce() -> usize) -> Result<(), BadPath> {
        if bytes > self.bytes {
            let limit = self.bytes;
            return Err(BadPath::TooLong { bytes, limit });
        }
        // Most have too few bytes to be too deep.
        match bytes > 2 * self.depth && depth() > self.depth {
            true => Err(BadPath::TooDeep { limit: self.depth }),
            false => Ok(()),
        }
    }
}

impl fmt::Display for CreatePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parent = if self.parent.is_root() {
            ""
        } else {
            self.parent.as_str()
        };
        write!(f, "{parent}/{}", self.name)
    }
}

impl fmt::Display for ZPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ZPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

checked_text!(ZPath);

impl From<ZPath> for String {
    fn from(path: ZPath) -> String {
        (*path.0).to_owned()
    }
}

/// The name of a lock: 1 to 512 bytes, and below [`LOCK_ROOT`] a short path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(ZPath);

impl LockName {
    /// Checks `text` as a lock's name.
    pub fn parse(text: &str) -> Result<Self, BadPath> {
        if text.is_empty() {
            return Err(BadPath::Empty);
        }
        if text.len() > MAX_LOCK_NAME_BYTES {
            return Err(BadPath::TooLong {
                bytes: text.len(),
                limit: MAX_LOCK_NAME_BYTES,
            });
        }
        let mut path = String::with_capacity(LOCK_ROOT.len() + 1 + text.len());
        path.push_str(LOCK_ROOT);
        path.push('/');
        path.push_str(text);
        let path = ZPath::parse(&path)?;
        match path.is_short() {
            true => Ok(Self(path)),
            false => Err(BadPath::TooDeep {
                limit: SHORT_PATH_DEPTH,
            }),
        }
    }

    /// Returns the name of the lock whose znode is `path`; `None` outside of [`LOCK_ROOT`].
    pub fn of_znode(path: &ZPath) -> Option<Self> {
        let name = path.as_str().strip_prefix(LOCK_ROOT)?.strip_prefix('/')?;
        Self::parse(name).ok()
    }

    /// Returns the lock whose contenders are the children of the znode `path`, without a check of what was checked
    /// as a path; `None` if that is no lock's znode.
    pub(crate) fn of_parent(path: &ZPath) -> Option<Self> {
        let name = path.as_str().strip_prefix(LOCK_ROOT)?.strip_prefix('/')?;
        (name.len() <= MAX_LOCK_NAME_BYTES && path.is_short()).then(|| Self(path.clone()))
    }

    /// Returns the lock that the znode at `path` would be a contender of.
    pub(crate) fn of_contender(path: &ZPath) -> Option<Self> {
        if !path.as_str().starts_with(LOCK_ROOT) {
            return None;
        }
        Self::of_contender_below(&path.parent()?, path)
    }

    /// Does the same for a caller that has the path of the parent. A contender is at a short path: the memory of what is recorded and
    /// reported of contenders is bounded by their number only.
    pub(crate) fn of_contender_below(parent: &ZPath, path: &ZPath) -> Option<Self> {
        match is_short(parent.as_str(), path.as_str().len(), 1) {
            true => Self::of_parent(parent),
            false => None,
        }
    }

    /// Returns the name without [`LOCK_ROOT`].
    pub fn as_str(&self) -> &str {
        &self.0.as_str()[LOCK_ROOT.len() + 1..]
    }

    /// Returns the lock's znode, whose children are its contenders.
    pub fn znode(&self) -> &ZPath {
        &self.0
    }

    /// Returns the text as the path of a contender that the lock protocol creates. Fails if the path is not short.
    pub(crate) fn contender(&self, path: String) -> Result<ZPath, BadPath> {
        match is_short(self.0.as_str(), path.len(), 1) {
            true => Ok(ZPath::from_checked(path)),
            false => Err(BadPath::TooDeep {
                limit: SHORT_PATH_DEPTH,
            }),
        }
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

checked_text!(LockName);

impl From<LockName> for String {
    fn from(name: LockName) -> String {
        name.as_str().to_owned()
    }
}

#[cfg(test)]
mod tests;
