//! Language of the golden scripts. Watchers have names, sessions have numbers, data is text. A
//! change prints its position and its answer, and then each notice on a line of its own, after the
//! name of its watcher.
//!
//! | command | meaning |
//! |---|---|
//! | `connect NAME [as=IDENTITY,…]` | a client connects: `ip:ADDRESS`, `digest:USER:HASH`, `super` |
//! | `authenticate NAME as=IDENTITY,…` | replaces its identities by these |
//! | `disconnect NAME` | it disconnects |
//! | `watch NAME KIND PATH…` | arms `data`, `children`, `persistent` or `recursive` watches |
//! | `unwatch NAME TYPE PATH` | removes watches of a type; `any` is one |
//! | `is_watched NAME TYPE PATH`, `watched NAME`, `counts` | prints the watches |
//! | `rearm NAME since=N [data=PATH,…] [exists=] [children=] [persistent=] [recursive=]` | `setWatches` |
//! | `create PATH [DATA] [ephemeral=SESSION] [acl=SCHEME:ID:PERMS,…]` | changes the tree |
//! | `delete PATH`, `delete_recursive PATH`, `set PATH [DATA]`, `set_acl PATH ACL` | likewise |
//! | `multi` … `end` | applies the changes between them as one command |
//! | `open N`, `close N` | opens or closes a session |
//! | `behind` … `catch_up` | the node misses the changes between them, and then replaces its state |
//! | `limits watcher=N node=N` | starts again with these limits |

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use goldenscript::{ArgumentConsumer, Command as Line, Context, Runner};
use znode_store::{
    Acl, AclEntry, Command, CreateMode, CreatePath, Identities, Identity, Op, Password, Perms, Request,
    SessionId, ZPath, Zxid,
};
use znode_watch::{WatchKind, WatchLimits, WatchLists, WatcherId, WatcherType, Watches};

use crate::tree::Tree;

struct Script {
    tree: Tree,
    /// Tree as of the last notices, and the changes missed since.
    known: Tree,
    missed: Vec<Request>,
    is_behind: bool,
    watches: Watches,
    watchers: BTreeMap<String, WatcherId>,
    /// Operations of an open transaction.
    multi: Option<Vec<Op>>,
}

type Output = Result<String, Box<dyn Error>>;

impl Script {
    fn new() -> Self {
        Self {
            tree: Tree::new(),
            known: Tree::new(),
            missed: Vec::new(),
            is_behind: false,
            watches: Watches::new(WatchLimits::default(), 1),
            watchers: BTreeMap::new(),
            multi: None,
        }
    }

    fn apply(&mut self, request: Request) -> Output {
        let applied = self.tree.apply(request.clone());
        let mut output = applied.text;
        if self.is_behind {
            self.missed.push(request);
            return Ok(output);
        }
        self.known.apply(request);
        for event in &applied.events {
            let watchers = &self.watchers;
            self.watches.fire(
                applied.zxid,
                event,
                znode_store::Visibility::open(),
                |watcher, notice| {
                    write!(output, "\n  {}: {notice}", name(watchers, watcher)).unwrap();
                },
            );
        }
        Ok(output)
    }

    /// Applies an operation, or adds it to the open transaction.
    fn write(&mut self, session: Option<SessionId>, op: Op) -> Output {
        if let Some(ops) = &mut self.multi {
            ops.push(op);
            return Ok(String::new());
        }
        self.apply(Request {
            session,
            ..Request::anonymous(Command::Write(op))
        })
    }

    fn watcher(&self, args: &mut ArgumentConsumer<'_>) -> Result<WatcherId, Box<dyn Error>> {
        let name = args.next_pos().ok_or("missing watcher")?;
        Ok(*self
            .watchers
            .get(name)
            .ok_or("no client of this name is connected")?)
    }
}

impl Runner for Script {
    type Command = Line;

    fn run(&mut self, line: &Line, _: &Context) -> Output {
        let mut args = line.consume_args();
        let output = match line.name.as_str() {
            "connect" => {
                let name = args.next_pos().ok_or("missing name")?.to_owned();
                let watcher = self.watches.connect(identities(&mut args)?);
                self.watchers.insert(name, watcher);
                String::new()
            }
            "authenticate" => {
                let watcher = self.watcher(&mut args)?;
                self.watches.set_identities(watcher, identities(&mut args)?);
                String::new()
            }
            "disconnect" => {
                let watcher = self.watcher(&mut args)?;
                self.watches.disconnect(watcher);
                self.watchers.retain(|_, other| *other != watcher);
                String::new()
            }
            "watch" => {
                let watcher = self.watcher(&mut args)?;
                let kind = kind(args.next_pos().ok_or("missing kind")?)?;
                let mut output = String::new();
                while let Some(path) = args.next_pos() {
                    if let Err(refusal) = self.watches.arm(watcher, kind, &ZPath::parse(path)?) {
                        writeln!(output, "{path} refused: {refusal}")?;
                    }
                }
                output
            }
            "unwatch" => {
                let watcher = self.watcher(&mut args)?;
                let which = watcher_type(args.next_pos().ok_or("missing type")?)?;
                match self.watches.remove(watcher, &path(&mut args)?, which) {
                    Ok(()) => "removed".to_owned(),
                    Err(refusal) => format!("refused: {refusal}"),
                }
            }
            "is_watched" => {
                let watcher = self.watcher(&mut args)?;
                let which = watcher_type(args.next_pos().ok_or("missing type")?)?;
                match self.watches.is_armed(watcher, &path(&mut args)?, which) {
                    true => "yes".to_owned(),
                    false => "no".to_owned(),
                }
            }
            "watched" => {
                let watcher = self.watcher(&mut args)?;
                let armed = self.watches.armed(watcher);
                let lines: Vec<_> = armed
                    .map(|(path, kind)| format!("{path} {}", word(kind)))
                    .collect();
                if lines.is_empty() {
                    "nothing".to_owned()
                } else {
                    lines.join("\n")
                }
            }
            "counts" => {
                let counts = self.watches.counts();
                format!(
                    "{} watchers, {} paths, {} watches, {} of them recursive",
                    counts.watchers, counts.paths, counts.watches, counts.recursive
                )
            }
            "rearm" => {
                let watcher = self.watcher(&mut args)?;
                let since = Zxid(args.take_key("since").ok_or("missing position")?.parse()?);
                let lists = WatchLists {
                    data: paths(&mut args, "data")?,
                    exists: paths(&mut args, "exists")?,
                    children: paths(&mut args, "children")?,
                    persistent: paths(&mut args, "persistent")?,
                    recursive: paths(&mut args, "recursive")?,
                };
                let mut output = String::new();
                let name = name(&self.watchers, watcher);
                let rearmed = self
                    .watches
                    .rearm(watcher, &self.tree.store, since, &lists, |notice| {
                        writeln!(output, "  {name}: {notice}").unwrap();
                    });
                if let Err(refusal) = rearmed {
                    writeln!(output, "refused: {refusal}")?;
                }
                output
            }
            "create" => {
                let owner = args.take_key("ephemeral").map(session).transpose()?;
                let op = Op::Create {
                    path: CreatePath::parse(args.next_pos().ok_or("missing path")?, false)?,
                    data: args.next_pos().unwrap_or("").into(),
                    acl: args.take_key("acl").map_or(Ok(Acl::open()), acl)?,
                    mode: match owner {
                        Some(_) => CreateMode::Ephemeral,
                        None => CreateMode::Persistent,
                    },
                    parents: false,
                };
                self.write(owner, op)?
            }
            "delete" => {
                let path = path(&mut args)?;
                self.write(None, Op::Delete { path, version: -1 })?
            }
            "delete_recursive" => {
                let path = path(&mut args)?;
                self.write(None, Op::DeleteRecursive { path })?
            }
            "set" => {
                let op = Op::Set {
                    path: path(&mut args)?,
                    data: args.next_pos().unwrap_or("").into(),
                    version: -1,
                };
                self.write(None, op)?
            }
            "set_acl" => {
                let op = Op::SetAcl {
                    path: path(&mut args)?,
                    acl: acl(args.next_pos().ok_or("missing ACL")?)?,
                    aversion: -1,
                };
                self.write(None, op)?
            }
            "multi" => {
                self.multi = Some(Vec::new());
                String::new()
            }
            "end" => {
                let ops = self.multi.take().ok_or("end without multi")?;
                self.apply(Request::anonymous(Command::Multi(ops)))?
            }
            "open" => {
                let command = Command::OpenSession {
                    session: session(args.next_pos().ok_or("missing session")?)?,
                    password: Password([0; 16]),
                    timeout_ms: 10_000,
                    name: "".into(),
                    address: "".into(),
                };
                self.apply(Request::anonymous(command))?
            }
            "close" => {
                let session = session(args.next_pos().ok_or("missing session")?)?;
                self.apply(Request::anonymous(Command::CloseSession { session }))?
            }
            "behind" => {
                self.is_behind = true;
                String::new()
            }
            "catch_up" => {
                let mut output = String::new();
                let watchers = &self.watchers;
                let lost = self
                    .watches
                    .catch_up(&self.known.store, &self.tree.store, |watcher, notice| {
                        writeln!(output, "  {}: {notice}", name(watchers, watcher)).unwrap();
                    });
                for watcher in lost {
                    writeln!(output, "  {} must reconnect", name(watchers, watcher))?;
                }
                for request in self.missed.drain(..) {
                    self.known.apply(request);
                }
                self.is_behind = false;
                output
            }
            "limits" => {
                let limits = WatchLimits {
                    per_watcher: args.take_key("watcher").ok_or("missing limit")?.parse()?,
                    per_node: args.take_key("node").ok_or("missing limit")?.parse()?,
                };
                self.watches = Watches::new(limits, 1);
                self.watchers.clear();
                String::new()
            }
            name => return Err(format!("unknown command {name:?}").into()),
        };
        args.reject_next()?;
        Ok(output)
    }
}

fn name(watchers: &BTreeMap<String, WatcherId>, watcher: WatcherId) -> &str {
    let mut named = watchers.iter().filter(|(_, other)| **other == watcher);
    named.next().map_or("a disconnected watcher", |(name, _)| name)
}

fn path(args: &mut ArgumentConsumer<'_>) -> Result<ZPath, Box<dyn Error>> {
    Ok(ZPath::parse(args.next_pos().ok_or("missing path")?)?)
}

fn paths(args: &mut ArgumentConsumer<'_>, key: &str) -> Result<Vec<ZPath>, Box<dyn Error>> {
    let texts = args.take_key(key).into_iter().flat_map(|list| list.split(','));
    Ok(texts.map(ZPath::parse).collect::<Result<_, _>>()?)
}

/// Parses a session number.
fn session(text: &str) -> Result<SessionId, Box<dyn Error>> {
    Ok(SessionId(u64::from_str_radix(text, 16)?))
}

fn identities(args: &mut ArgumentConsumer<'_>) -> Result<Identities, Box<dyn Error>> {
    let texts = args.take_key("as").into_iter().flat_map(|list| list.split(','));
    let proven = texts.map(|text| -> Result<_, Box<dyn Error>> {
        Ok(match text.split_once(':') {
            Some(("ip", address)) => Identity::Ip(address.parse()?),
            Some(("digest", id)) => Identity::Digest(id.into()),
            None if text == "super" => Identity::Super,
            _ => return Err(format!("unknown identity {text:?}").into()),
        })
    });
    Ok(Identities::new(proven.collect::<Result<Vec<_>, _>>()?))
}

fn acl(text: &str) -> Result<Acl, Box<dyn Error>> {
    let entries = text.split(',').map(|entry| -> Result<_, Box<dyn Error>> {
        let (client, perms) = entry.rsplit_once(':').ok_or("missing permissions")?;
        let (scheme, id) = client.split_once(':').ok_or("missing identity")?;
        let bits = perms.chars().map(|letter| match letter {
            'r' => Ok(Perms::READ),
            'w' => Ok(Perms::WRITE),
            'c' => Ok(Perms::CREATE),
            'd' => Ok(Perms::DELETE),
            'a' => Ok(Perms::ADMIN),
            _ => Err(format!("unknown permission {letter:?}")),
        });
        Ok(AclEntry {
            perms: bits
                .into_iter()
                .try_fold(Perms(0), |all, one| one.map(|one| all | one))?,
            scheme: scheme.into(),
            id: id.into(),
        })
    });
    Ok(Acl::new(entries.collect::<Result<_, _>>()?))
}

fn kind(text: &str) -> Result<WatchKind, String> {
    let mut named = WatchKind::ALL.into_iter().filter(|&kind| word(kind) == text);
    named.next().ok_or_else(|| format!("unknown kind {text:?}"))
}

fn word(kind: WatchKind) -> &'static str {
    match kind {
        WatchKind::Data => "data",
        WatchKind::Children => "children",
        WatchKind::Persistent => "persistent",
        WatchKind::PersistentRecursive => "recursive",
    }
}

fn watcher_type(text: &str) -> Result<WatcherType, String> {
    Ok(match text {
        "any" => WatcherType::Any,
        "data" => WatcherType::Data,
        "children" => WatcherType::Children,
        "persistent" => WatcherType::Persistent,
        "recursive" => WatcherType::PersistentRecursive,
        _ => return Err(format!("unknown type {text:?}")),
    })
}

#[test]
fn scripts() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut paths: Vec<_> = std::fs::read_dir(scripts)
        .expect("the scripts are there")
        .map(|entry| entry.expect("the directory can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    paths.sort();
    let mut failed = Vec::new();
    for path in paths {
        // All scripts run before the test fails, so that one run shows all differences.
        let run = std::panic::catch_unwind(|| goldenscript::run(&mut Script::new(), &path));
        match run {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                eprintln!("{}: {error}", path.display());
                failed.push(path);
            }
            Err(_) => failed.push(path),
        }
    }
    assert!(failed.is_empty(), "these scripts failed: {failed:?}");
}
