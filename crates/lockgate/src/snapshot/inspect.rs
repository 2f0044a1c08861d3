//! Report of `lockgate snapshot inspect`.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;
use clap::ValueEnum;
use cli_support::format::Output;
use cli_support::output::{say, shown};
use lock_node::backup::{Inspection, inspect_with_progress};
use serde_json::{Value, json};
use znode_store::{Store, ZPath};

/// Parts of a backup that can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum List {
    /// Every znode with its stat
    Znodes,
    /// The locks in use, with their holders
    Locks,
    /// The sessions
    Sessions,
}

/// Reads and checks the whole file, and prints the report.
pub fn run(file: &Path, output: Output, lists: &[List]) -> anyhow::Result<()> {
    let look = |store: &Store| {
        let list = |list: &List| match list {
            List::Znodes => ("znode_list", znodes(store)),
            List::Locks => ("lock_list", locks(store)),
            List::Sessions => ("session_list", sessions(store)),
        };
        lists.iter().map(list).collect::<Vec<_>>()
    };
    let (inspection, listed) = {
        let mut progress = super::read_progress(file, "reading the backup");
        inspect_with_progress(file, &mut progress, look).with_context(|| file.display().to_string())?
    };
    if output.is_document() {
        let mut document = document(&inspection);
        for (name, list) in listed {
            document[name] = list.into();
        }
        return output.say(&document, String::new);
    }
    let mut report = format!(
        "{} is a complete backup.\n\n{}",
        file.display(),
        text(&inspection)
    );
    for (name, list) in listed {
        write!(report, "\n\n{}:", name.replace('_', " ")).expect("writing to a String cannot fail");
        for item in list {
            write!(report, "\n  {}", shown(&item.to_string())).expect("writing to a String cannot fail");
        }
    }
    say(report)
}

/// Returns the summary as text.
pub fn text(inspection: &Inspection) -> String {
    let head = &inspection.head;
    let members: Vec<String> = head
        .members
        .iter()
        .map(|member| {
            let part = if member.voter { "" } else { ", learner" };
            format!(
                "{} (peer {}, http {}{part})",
                member.node_id, member.peer, member.http
            )
        })
        .collect();
    format!(
        "  cluster        {} ({})\
         \n  made           {} by node {}, lockgate {}\
         \n  position       zxid {}, last command at {}\
         \n  log            entry {} of term {}\
         \n  members        {}\
         \n  znodes         {}\
         \n  sessions       {}\
         \n  locks in use   {}\
         \n  size           {} bytes\
         \n  checked        all checksums, and the state's digest {:016x}",
        shown(&head.cluster),
        hex(&head.cluster_id),
        at(head.made_at_ms),
        head.node_id,
        shown(&head.program),
        inspection.zxid,
        at(inspection.last_command_at_ms),
        head.index,
        head.term,
        members.join(", "),
        inspection.znodes,
        inspection.sessions,
        inspection.locks,
        inspection.bytes,
        inspection.digest,
    )
}

/// Returns the summary for programs.
pub fn document(inspection: &Inspection) -> Value {
    let head = &inspection.head;
    let members: Vec<Value> = head
        .members
        .iter()
        .map(|member| {
            json!({
                "node_id": member.node_id,
                "peer": member.peer,
                "http": member.http,
                "voter": member.voter,
            })
        })
        .collect();
    json!({
        "cluster": head.cluster,
        "cluster_id": hex(&head.cluster_id),
        "node_id": head.node_id,
        "version": head.program,
        "made_at": at(head.made_at_ms),
        "term": head.term,
        "index": head.index,
        "zxid": inspection.zxid,
        "last_command_at": at(inspection.last_command_at_ms),
        "members": members,
        "znodes": inspection.znodes,
        "sessions": inspection.sessions,
        "locks": inspection.locks,
        "bytes": inspection.bytes,
        "digest": format!("{:016x}", inspection.digest),
    })
}

fn znodes(store: &Store) -> Vec<Value> {
    let mut list = Vec::new();
    let mut todo = vec![ZPath::root()];
    while let Some(path) = todo.pop() {
        let (Some(stat), Some(children)) = (store.stat(&path), store.children(&path)) else {
            continue;
        };
        for name in children.iter().rev() {
            todo.extend(path.join(name));
        }
        list.push(json!({
            "path": path.as_str(),
            "bytes": stat.data_length,
            "version": stat.version,
            "czxid": stat.czxid.0,
            "mzxid": stat.mzxid.0,
            "children": stat.num_children,
        }));
    }
    list
}

fn locks(store: &Store) -> Vec<Value> {
    let summaries = store.locks("", None, usize::MAX);
    let views = summaries.iter().filter_map(|summary| store.lock(&summary.lock));
    views
        .map(|view| {
            let holders: Vec<Value> = view
                .holders
                .iter()
                .map(|holder| {
                    json!({
                        "holder": holder.holder,
                        "session": holder.session.to_string(),
                        "fencing_token": holder.fencing_token.0,
                        "note": &*holder.note,
                    })
                })
                .collect();
            json!({
                "lock": view.lock.as_str(),
                "mode": view.mode.map(|mode| mode.to_string()),
                "holders": holders,
                "waiters": view.queue.len(),
            })
        })
        .collect()
}

fn sessions(store: &Store) -> Vec<Value> {
    let views = store.sessions();
    let shown = views.iter().map(|view| {
        json!({
            "session": view.session.to_string(),
            "name": &*view.name,
            "ttl_ms": view.timeout_ms,
            "opened_at": at(view.opened_at_ms),
            "address": view.address.host(),
            "ephemerals": view.ephemerals,
        })
    });
    shown.collect()
}

/// Formats a time as RFC 3339.
pub fn at(ms: u64) -> String {
    /// The last millisecond that RFC 3339 can show.
    const END_OF_TIME_MS: u64 = 253_402_300_799_999;
    let time = UNIX_EPOCH + Duration::from_millis(ms.min(END_OF_TIME_MS));
    humantime::format_rfc3339_millis(time).to_string()
}

/// Formats an id in hexadecimal digits.
pub fn hex(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
