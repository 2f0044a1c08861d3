//! Material of programs: names, data, versions, ACLs. The sets are small, so that requests collide.

use bytes::Bytes;

use crate::program::WRITTEN_ROOT;
use crate::rng::Rng;
use crate::server::{SUPER_CREDENTIALS, SUPER_DIGEST};
use crate::wire::{AclEntry, CreateCall, Request};

/// Znode of a quota's limits.
pub const LIMITS: &str = "zookeeper_limits";

/// Znode of a quota's usage.
pub const USAGE: &str = "zookeeper_stats";

/// Size of data that is more than a few bytes, and still cheap to send.
const LARGE_DATA: usize = 2_000;

/// Size of data that still fits into a request, even in a multi. Rarely used, since it is slow.
const LARGEST_DATA: usize = 1_000_000;

/// Credentials of the scheme `digest`, with the id that ACLs use: the base64 of a SHA-1, written out because
/// nothing else here needs that hash.
pub const ALICE: (&str, &str) = ("alice:wonder", "alice:8y0lhh/7xkdEiwhX7vo9i+/Nmzc=");
/// Credentials of a second user.
pub const BOB: (&str, &str) = ("bob:builder", "bob:4rsXV9JgUbFl9ZE40xENilxlRV8=");
/// Credentials of an impostor of the super user.
pub const IMPOSTOR: (&str, &str) = ("super:wrong", "super:nXindoZMsrhmm0JDlDwACbCSBn0=");
/// Credentials without a name: the password becomes the name.
pub const NAMELESS: (&str, &str) = ("secret", "secret:5en6G6MezRroT3XKqkdPOmY/BfQ=");

/// Returns ZooKeeper's interpretation of `digest` credentials in programs: the id in ACLs, and whether it is
/// the super user.
pub fn credentials(shown: &str) -> (&'static str, bool) {
    if shown == SUPER_CREDENTIALS {
        return (SUPER_DIGEST, true);
    }
    let known = [ALICE, BOB, IMPOSTOR, NAMELESS]
        .into_iter()
        .find(|(credentials, _)| *credentials == shown);
    (known.expect("programs use no other credentials").1, false)
}

/// Draws a path below the root, at most `deepest` levels deep.
pub fn path(rng: &mut Rng, deepest: usize) -> String {
    let mut path = WRITTEN_ROOT.to_owned();
    for _ in 0..1 + rng.below(deepest).min(rng.below(deepest)) {
        path.push('/');
        path.push_str(name(rng));
    }
    path
}

/// Draws a name. Names of blanks are omitted, see `blank-names-in-quotas` in `differences`.
pub fn name(rng: &mut Rng) -> &'static str {
    const RARE: [&str; 9] = ["c", "c1", "n-", "é", "a b", "...", ".a", "a=b,c", "a0000000001"];
    if rng.percent(80) {
        common_name(rng)
    } else {
        rng.pick(&RARE)
    }
}

/// Draws one of the few names that most znodes have.
pub fn common_name(rng: &mut Rng) -> &'static str {
    rng.pick(&["a", "b"])
}

/// Draws the prefix of a sequential create.
pub fn prefix(rng: &mut Rng) -> &'static str {
    rng.pick(&["s-", "s-", "", "", "1", "a", "c1", ".", ".."])
}

/// Invalid paths for creations and deletions. If they have a parent, it is the root, which always exists and
/// is open: see `illegal-paths` in `differences`, and `characters` for the missing ones.
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

/// Invalid paths for requests that neither create nor delete.
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

/// Draws data of all relevant lengths.
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

/// Draws a version, which is seldom right on purpose.
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

/// Returns the ACL without restrictions.
pub fn open_acl() -> Option<Vec<AclEntry>> {
    Some(vec![entry(31, "world", "anyone")])
}

/// Draws an ACL of any kind, possibly invalid. Schemes and ids that only one side knows are omitted: see
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

/// Draws a realistic ACL: all permissions for one user, and some for the others.
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
        _ => i32::try_from(rng.below(32)).expect("the number is below 32"),
    }
}

fn entry(perms: i32, scheme: &str, id: &str) -> AclEntry {
    AclEntry {
        perms,
        scheme: scheme.to_owned(),
        id: id.to_owned(),
    }
}

/// Returns an ordinary create.
pub fn plain_create(path: &str, data: &[u8]) -> Request {
    Request::Create {
        call: CreateCall::Create,
        path: path.to_owned(),
        data: Some(data.to_vec().into()),
        acl: open_acl(),
        flags: 0,
    }
}
