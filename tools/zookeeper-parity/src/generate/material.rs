//! What programs are made of: names, data, versions, ACLs. Small sets, so that things meet.

use bytes::Bytes;

use crate::program::WRITTEN_ROOT;
use crate::rng::Rng;
use crate::server::{SUPER_CREDENTIALS, SUPER_DIGEST};
use crate::wire::{AclEntry, CreateCall, Request};

/// The znode that holds a quota's limits.
pub const LIMITS: &str = "zookeeper_limits";

/// The znode that holds a quota's usage.
pub const USAGE: &str = "zookeeper_stats";

/// Data that is more than a few bytes, and still cheap to send.
const LARGE_DATA: usize = 2_000;

/// Data that still fits into a request, also beside others in a multi. Seldom, for it takes its time.
const LARGEST_DATA: usize = 1_000_000;

/// What a client of the scheme `digest` shows, and how ACLs name it: with the base64 of a SHA-1, which stands here
/// because nothing else needs one.
pub const ALICE: (&str, &str) = ("alice:wonder", "alice:8y0lhh/7xkdEiwhX7vo9i+/Nmzc=");
/// Another one.
pub const BOB: (&str, &str) = ("bob:builder", "bob:4rsXV9JgUbFl9ZE40xENilxlRV8=");
/// Somebody who would like to do everything.
pub const IMPOSTOR: (&str, &str) = ("super:wrong", "super:nXindoZMsrhmm0JDlDwACbCSBn0=");
/// A password without a name, which becomes the name.
pub const NAMELESS: (&str, &str) = ("secret", "secret:5en6G6MezRroT3XKqkdPOmY/BfQ=");

/// What ZooKeeper makes of credentials of the scheme `digest` that programs show: how ACLs name their owner, and
/// whether it may do everything.
pub fn credentials(shown: &str) -> (&'static str, bool) {
    if shown == SUPER_CREDENTIALS {
        return (SUPER_DIGEST, true);
    }
    let known = [ALICE, BOB, IMPOSTOR, NAMELESS]
        .into_iter()
        .find(|(credentials, _)| *credentials == shown);
    (known.expect("programs show no other credentials").1, false)
}

/// A path below the root, at most so many levels deep.
pub fn path(rng: &mut Rng, deepest: usize) -> String {
    let mut path = WRITTEN_ROOT.to_owned();
    for _ in 0..1 + rng.below(deepest).min(rng.below(deepest)) {
        path.push('/');
        path.push_str(name(rng));
    }
    path
}

/// A name of a znode. Names of blanks are left out, see `blank-names-in-quotas` in `differences`.
pub fn name(rng: &mut Rng) -> &'static str {
    const RARE: [&str; 9] = ["c", "c1", "n-", "é", "a b", "...", ".a", "a=b,c", "a0000000001"];
    if rng.percent(80) {
        common_name(rng)
    } else {
        rng.pick(&RARE)
    }
}

/// One of the few names that most znodes have.
pub fn common_name(rng: &mut Rng) -> &'static str {
    rng.pick(&["a", "b"])
}

/// What a sequential create puts before its number.
pub fn prefix(rng: &mut Rng) -> &'static str {
    rng.pick(&["s-", "s-", "", "", "1", "a", "c1", ".", ".."])
}

/// Paths that no znode can have. Their parent, if they look as if they had one, is the root, which is always there
/// and open: see `illegal-paths` in `differences`; and `characters` for those that are missing here.
pub const ILLEGAL_CHILDREN: [&str; 10] = [
    "p",
    "",
    "/p/.",
    "/p/..",
    "/p/",
    "/p/\u{1}",
    "/p/a\u{0}",
    "/p/\u{85}",
    "/p/\u{e000}",
    "/p/\u{fff1}",
];

/// Paths that no znode can have, for requests that neither create nor delete.
pub const ILLEGAL: [&str; 11] = [
    "p",
    "/p//a",
    "/p/a/",
    "//",
    "/p/./a",
    "/p/../a",
    "/p/\u{1f}",
    "/p/a\u{0}",
    "/p/\u{7f}",
    "/p/\u{f8ff}",
    "/p/\u{fffd}",
];

/// Data of all lengths that matter.
pub fn data(rng: &mut Rng) -> Option<Bytes> {
    if rng.below(10_000) == 0 {
        return Some(vec![b'y'; LARGEST_DATA].into());
    }
    let bytes = match rng.below(20) {
        0 | 1 => return None,
        2 | 3 => Vec::new(),
        4 => vec![b'x'; LARGE_DATA],
        5 => vec![0, 0xff, 0x80],
        length => vec![b"uvw"[rng.below(3)]; length - 5],
    };
    Some(bytes.into())
}

/// A version, seldom a right one by plan.
pub fn version(rng: &mut Rng) -> i32 {
    rng.weighted(&[
        (60, -1),
        (20, 0),
        (10, 1),
        (5, 2),
        (2, 7),
        (1, -2),
        (1, i32::MAX),
        (1, i32::MIN),
    ])
}

/// The ACL of whoever wants none.
pub fn open_acl() -> Option<Vec<AclEntry>> {
    Some(vec![entry(31, "world", "anyone")])
}

/// An ACL of any kind, also one that is refused. Schemes and ids that only one side knows are left out: see
/// `acl-schemes` and `acl-ids` in `differences`.
pub fn acl(rng: &mut Rng) -> Option<Vec<AclEntry>> {
    if rng.percent(40) {
        return Some(usual_acl(rng));
    }
    if rng.percent(1) {
        return None;
    }
    let count = rng.weighted(&[(1, 0), (60, 1), (25, 2), (14, 3)]);
    let mut entries = (0..count).map(|_| valid_entry(rng)).collect::<Vec<_>>();
    if rng.percent(12) && !entries.is_empty() {
        let at = rng.below(entries.len());
        entries[at] = invalid_entry(rng);
    }
    if rng.percent(10) && !entries.is_empty() {
        let again = entries[rng.below(entries.len())].clone();
        entries.push(again);
    }
    Some(entries)
}

/// What people protect their znodes with: everything for one, and a little for the others.
fn usual_acl(rng: &mut Rng) -> Vec<AclEntry> {
    let owner = rng.pick(&[
        ("auth", ""),
        ("digest", ALICE.1),
        ("digest", ALICE.1),
        ("digest", BOB.1),
    ]);
    let others = rng.pick(&[0, 1, 1, 1, 2, 3, 4, 8, 12, 17, 30]);
    let mut entries = vec![entry(31, owner.0, owner.1)];
    if others != 0 {
        entries.push(entry(others, "world", "anyone"));
    }
    entries
}

fn valid_entry(rng: &mut Rng) -> AclEntry {
    let perms = perms(rng);
    match rng.below(12) {
        0..=3 => entry(perms, "world", "anyone"),
        4 | 5 => entry(perms, "auth", if rng.percent(80) { "" } else { "ignored" }),
        6 | 7 => entry(perms, "digest", ALICE.1),
        8 => entry(perms, "digest", BOB.1),
        9 => entry(perms, "digest", rng.pick(&["carol:no-hash-at-all", ":nobody"])),
        10 => entry(
            perms,
            "ip",
            rng.pick(&[
                "127.0.0.1",
                "127.0.0.1/32",
                "127.0.0.0/8",
                "127.0.0.2/30",
                "0.0.0.0/0",
                "127.0.0.1/08",
                "127.0.0.1/+8",
            ]),
        ),
        _ => entry(
            perms,
            "ip",
            rng.pick(&[
                "10.0.0.1",
                "10.0.0.0/8",
                "127.0.0.2",
                "126.0.0.1/8",
                "128.0.0.0/1",
            ]),
        ),
    }
}

fn invalid_entry(rng: &mut Rng) -> AclEntry {
    let (scheme, id) = rng.pick(&[
        ("nobody", "knows"),
        ("", ""),
        ("world", "someone"),
        ("world", ""),
        ("super", ""),
        ("digest", "alice"),
        ("digest", "a:b:c"),
        ("digest", ""),
        ("digest", ":"),
        ("digest", "a:"),
        ("digest", "a::b"),
        ("ip", ""),
        ("ip", "localhost"),
        ("ip", "300.0.0.1"),
        ("ip", "127.0.0"),
        ("ip", "127.0.0.1/33"),
        ("ip", "127.0.0.1/-1"),
        ("ip", "127.0.0.1/x"),
        ("ip", "127.0.0.1/"),
    ]);
    entry(perms(rng), scheme, id)
}

fn perms(rng: &mut Rng) -> i32 {
    match rng.below(20) {
        0..=7 => 31,
        8 | 9 => 1,
        10 => 0,
        11 => 32,
        12 => -1,
        _ => i32::try_from(rng.below(32)).expect("it is below 32"),
    }
}

fn entry(perms: i32, scheme: &str, id: &str) -> AclEntry {
    AclEntry {
        perms,
        scheme: scheme.to_owned(),
        id: id.to_owned(),
    }
}

/// A create that has nothing special.
pub fn plain_create(path: &str, data: &[u8]) -> Request {
    Request::Create {
        call: CreateCall::Create,
        path: path.to_owned(),
        data: Some(data.to_vec().into()),
        acl: open_acl(),
        flags: 0,
    }
}
