//! Four-letter words about clients: their connections, sessions and counters.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ptr;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_node::Node;
use zk_wire::op_code;
use znode_store::{Identities, SessionId, SessionView, ZPath};

use super::text::{Hex, date, line, whole};
use crate::front::{Client, Front};

/// Number of sessions or ephemeral znodes that one read of the state returns.
const PAGE: usize = 1_000;

/// Value of Java's `SelectionKey` while a connection is read.
const OP_READ: u8 = 1;

pub(super) fn crst(front: &Front) -> String {
    front.reset_clients();
    "Connection stats reset.\n".to_owned()
}

pub(super) fn cons(front: &Front, peer: &Client) -> String {
    let mut text = String::new();
    for client in front.clients() {
        brief(&mut text, front, peer, &client);
        in_full(&mut text, &client);
        text.push_str(")\n");
    }
    text.push('\n');
    text
}

/// Writes the fields of every client. The parenthesis stays open.
pub(super) fn brief(text: &mut String, front: &Front, peer: &Client, client: &Client) {
    let outstanding = client.outstanding.load(Ordering::Relaxed);
    let is_full = outstanding >= front.config().max_outstanding as u64;
    let interest = if is_full || ptr::eq(peer, client) {
        0
    } else {
        OP_READ
    };
    let counts = client.counts();
    write!(
        text,
        " /{}[{interest}](queued={outstanding},recved={},sent={}",
        client.address, counts.received, counts.sent
    )
    .expect("a String takes everything");
}

/// Writes the additional fields of a client with a session.
fn in_full(text: &mut String, client: &Client) {
    let session = client.session.load(Ordering::Relaxed);
    if session == 0 {
        return;
    }
    let since = client.since.duration_since(UNIX_EPOCH).unwrap_or_default();
    let xid = client.last_xid.load(Ordering::Relaxed);
    let xid = match xid {
        0.. => format!(",lcxid={xid:#x}"),
        _ => String::new(),
    };
    let counts = client.counts();
    write!(
        text,
        ",sid={},lop={},est={},to={}{xid},lzxid={:#x},lresp={},llat={},minlat={},avglat={},maxlat={}",
        Hex(SessionId(session.cast_unsigned())),
        operation(client.last_op.load(Ordering::Relaxed)),
        since.as_millis(),
        client.timeout_ms.load(Ordering::Relaxed),
        client.last_zxid.load(Ordering::Relaxed),
        client.last_answer_ms.load(Ordering::Relaxed),
        client.last_latency_us.load(Ordering::Relaxed) / 1_000,
        counts.min_ms,
        whole(counts.mean_ms),
        counts.max_ms,
    )
    .expect("a String takes everything");
}

/// Returns ZooKeeper's short name of an operation.
fn operation(op: i32) -> &'static str {
    match op {
        op_code::CREATE_SESSION => "SESS",
        op_code::CLOSE_SESSION => "CLOS",
        op_code::CREATE | op_code::CREATE2 | op_code::CREATE_CONTAINER | op_code::CREATE_TTL => "CREA",
        op_code::DELETE | op_code::DELETE_CONTAINER => "DELE",
        op_code::EXISTS => "EXIS",
        op_code::GET_DATA => "GETD",
        op_code::SET_DATA => "SETD",
        op_code::GET_ACL => "GETA",
        op_code::SET_ACL => "SETA",
        op_code::GET_CHILDREN | op_code::GET_CHILDREN2 => "GETC",
        op_code::SYNC => "SYNC",
        op_code::PING => "PING",
        op_code::CHECK => "CHEC",
        op_code::MULTI => "MULT",
        op_code::MULTI_READ => "MLTR",
        op_code::RECONFIG => "RECO",
        op_code::CHECK_WATCHES => "CHKW",
        op_code::REMOVE_WATCHES => "REMW",
        op_code::SET_WATCHES => "SETW",
        op_code::SET_WATCHES2 => "STW2",
        op_code::ADD_WATCH => "ADDW",
        op_code::GET_EPHEMERALS => "GETE",
        op_code::GET_ALL_CHILDREN_NUMBER => "GETACN",
        op_code::WHO_AM_I => "HOMI",
        _ => "NA",
    }
}

/// Returns all sessions. They are read in pages, so that the apply loop is not blocked for long.
pub(super) fn sessions(node: &Node) -> Vec<SessionView> {
    let mut all: Vec<SessionView> = Vec::new();
    loop {
        let after = all.last().map(|last| last.session);
        let page = node.read(|store| store.sessions_after(after, PAGE));
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

pub(super) fn dump(front: &Front) -> String {
    let sessions = sessions(front.node());
    let mut text = "SessionTracker dump:\n".to_owned();
    match deadlines(front.node(), &sessions) {
        Some(deadlines) => expiring(&mut text, sessions.len(), &deadlines),
        None => known(&mut text, &sessions),
    }
    text.push_str("ephemeral nodes dump:\n");
    ephemerals(&mut text, front.node(), &sessions);
    text.push_str("Connections dump:\n");
    connections(&mut text, front);
    text
}

/// Returns the expiry of each session without further heartbeats, in seconds since 1970, rounded up. `None`
/// unless this node leads.
fn deadlines(node: &Node, sessions: &[SessionView]) -> Option<BTreeMap<u64, Vec<SessionId>>> {
    node.followers()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut deadlines = BTreeMap::<u64, Vec<SessionId>>::new();
    for view in sessions {
        let timeout = Duration::from_millis(view.timeout_ms.into());
        let left = timeout.saturating_sub(node.silence(view.session)?);
        let end_ms = (now + left).as_millis();
        let second = u64::try_from(end_ms.div_ceil(1_000)).expect("the clock is not that late");
        deadlines.entry(second).or_default().push(view.session);
    }
    Some(deadlines)
}

/// Writes the sessions as a leader shows them.
fn expiring(text: &mut String, sessions: usize, deadlines: &BTreeMap<u64, Vec<SessionId>>) {
    line(
        text,
        format_args!("Session Sets ({})/({sessions}):", deadlines.len()),
    );
    for (second, sessions) in deadlines {
        let end = date(UNIX_EPOCH + Duration::from_secs(*second));
        line(text, format_args!("{} expire at {end}:", sessions.len()));
        for session in sessions {
            line(text, format_args!("\t{}", Hex(*session)));
        }
    }
}

/// Writes the sessions as a follower shows them.
fn known(text: &mut String, sessions: &[SessionView]) {
    line(text, format_args!("Global Sessions({}):", sessions.len()));
    for view in sessions {
        line(text, format_args!("{}\t{}ms", Hex(view.session), view.timeout_ms));
    }
}

fn ephemerals(text: &mut String, node: &Node, sessions: &[SessionView]) {
    let owners = sessions.iter().filter(|view| view.ephemerals > 0);
    let owned = owners.filter_map(|view| {
        let paths = ephemerals_of(node, view.session);
        (!paths.is_empty()).then_some((view.session, paths))
    });
    let owned: Vec<_> = owned.collect();
    line(text, format_args!("Sessions with Ephemerals ({}):", owned.len()));
    for (session, paths) in owned {
        line(text, format_args!("{}:", Hex(session)));
        for path in paths {
            line(text, format_args!("\t{path}"));
        }
    }
}

/// Returns the ephemeral znodes of a session, sorted. They are read in pages, too. A session that has ended meanwhile has none.
fn ephemerals_of(node: &Node, session: SessionId) -> Vec<ZPath> {
    let (mut paths, mut after) = (Vec::new(), None);
    loop {
        let page = node.read(|store| {
            let nobody = Identities::none();
            store
                .seen_by(&nobody)
                .ephemerals_page(session, "", after.as_ref(), PAGE)
        });
        let Ok(page) = page else {
            return Vec::new();
        };
        paths.extend(page.paths);
        after = page.next_after;
        if after.is_none() {
            paths.sort_unstable();
            return paths;
        }
    }
}

/// Writes the connections. They do not expire by their own silence but end with their session, so there are
/// no sets that expire together.
fn connections(text: &mut String, front: &Front) {
    let clients = front.clients();
    line(text, format_args!("Connections Sets (0)/({}):", clients.len()));
    for client in clients {
        let session = SessionId(client.session.load(Ordering::Relaxed).cast_unsigned());
        line(
            text,
            format_args!("\tip: /{} sessionId: {}", client.address, Hex(session)),
        );
    }
}
