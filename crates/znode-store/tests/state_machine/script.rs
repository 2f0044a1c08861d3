//! The language of the golden scripts. Sessions are numbers (`session=1`), data is text, and each request
//! prints its position, what it was answered, and the events behind it, one a line, after an asterisk.
//!
//! | command | meaning |
//! |---|---|
//! | `time MS`, `term N` | the clock and the term of the following entries |
//! | `tell_holds` | from here on beginnings and ends of holds are printed, too |
//! | `open N [timeout=MS] [name=] [address=] [password=BYTE]` | opens session N |
//! | `close N`, `expire N… [term=N]` | ends sessions |
//! | `create PATH [DATA] [mode=MODE] [ttl=MS] [acl=ACL] [parents=true]` | creates a znode |
//! | `delete PATH [VERSION]`, `delete_recursive PATH` | deletes znodes |
//! | `set PATH DATA [VERSION]`, `check PATH [VERSION]` | replaces data; checks a version |
//! | `set_acl PATH ACL [AVERSION]` | replaces the access control list |
//! | `held LOCK TOKEN` | checks that the session holds the lock |
//! | `sweep PATH…` | deletes empty containers, and TTL nodes whose time is over |
//! | `limits [data=N] [children=N] [ephemerals=N] [sessions=N]` | sets limits |
//! | `quotas NAME [sessions=N] [locks=N] [znodes=N] [bytes=N] [rate=N]`, `remove_quotas NAME` | sets the quotas of a namespace; removes them |
//! | `namespace NAME`, `namespaces [after=NAME] [count=N]` | usage and quotas of a namespace, of all |
//! | `multi` … `end` | the operations between them as one transaction |
//! | `cycle_sessions N`, `numbered_requests N` | opens and closes N sessions; asks N things |
//! | `fill PATH N` | creates N children with numbers |
//! | `get PATH`, `children PATH`, `tree`, `count` | reads |
//! | `see PATH`, `list PATH [prefix=] [after=] [count=N]`, `acl PATH`, `descendants PATH`, `ephemerals N [PREFIX]` | reads with rights |
//! | `sessions`, `fate N…`, `to_sweep EMPTIED_BEFORE_MS NOW_MS` | reads |
//! | `move_position BY`, `end_all_sessions` | makes a backup's state the first one of a new cluster |
//! | `begin_snapshot`, `part N`, `abandon_snapshot`, `restore` | draws a snapshot; restores it |
//!
//! | `reconnect N [password=BYTE]` | session N goes on on another connection |
//!
//! All requests take `session=N` and `request=ID`, writes and `close` also `turn=SINCE/NUMBER`, and they and reads with rights take `as=WHO`: `ip:10.0.0.7`, `digest:bob:x`,
//! `x509:CN=bob`, `token:7`, `super`, `internal`, or several with a comma between. A list of rights reads `scheme:id:perms`, likewise. A number repeats a command: `times=N`. The commands of
//! the lock protocol are in `lock_script`, those about tokens and roles in `access_script`, those that bring another tree in
//! `mirror_script`.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use goldenscript::{ArgumentConsumer, Command as Line, Context, Runner};
use znode_store::{
    Acl, AclEntry, Command, CreateMode, CreatePath, Data, EntryContext, Event, Identities, Identity, Limits,
    LockName, Op, Password, Perms, Request, RequestId, SessionId, SnapshotPart, Step, Store, Turn, ZPath,
    Zxid,
};

use crate::mirror_script::Steps;
use crate::replicas::{Replicas, draw, restore};
use crate::{access_script, lock_script, mirror_script, namespaces};

/// A state, and what the next request is given beside its own words.
pub struct Script {
    pub replicas: Replicas,
    entry: EntryContext,
    /// The operations of a transaction that is not complete yet.
    multi: Option<(RequestSender, Vec<Op>)>,
    steps: Steps,
    /// The parts of a snapshot that were drawn so far.
    parts: Vec<SnapshotPart>,
    /// True if beginnings and ends of holds are printed.
    tells_holds: bool,
}

/// Caller of a request, and its request id.
struct RequestSender {
    session: Option<SessionId>,
    request_id: Option<RequestId>,
    caller: Identities,
}

impl RequestSender {
    fn take(args: &mut ArgumentConsumer<'_>) -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            session: args.take_key("session").map(session).transpose()?,
            request_id: args.take_key("request").map(RequestId::parse).transpose()?,
            caller: caller(args)?,
        })
    }

    fn ask(self, command: Command) -> Request {
        let Self {
            session,
            request_id,
            caller,
        } = self;
        Request {
            session,
            request_id,
            caller,
            command,
        }
    }
}

fn take_turn(args: &mut ArgumentConsumer<'_>) -> Result<Option<Turn>, Box<dyn Error>> {
    let Some(text) = args.take_key("turn") else {
        return Ok(None);
    };
    let (since, number) = text.split_once('/').ok_or("a turn is SINCE/NUMBER")?;
    Ok(Some(Turn {
        since: Zxid(since.parse()?),
        number: number.parse()?,
    }))
}

pub type Output = Result<String, Box<dyn Error>>;

impl Script {
    fn new() -> Self {
        Self {
            replicas: Replicas::new(),
            entry: EntryContext { time_ms: 0, term: 1 },
            multi: None,
            steps: Steps::default(),
            parts: Vec::new(),
            tells_holds: false,
        }
    }

    /// Applies `command` with the `session` and `request` that are left in `args`, which must then be empty.
    pub fn apply(&mut self, mut args: ArgumentConsumer<'_>, command: Command) -> Output {
        let asker = RequestSender::take(&mut args)?;
        args.reject_next()?;
        self.apply_request(asker.ask(command))
    }

    fn apply_request(&mut self, request: Request) -> Output {
        let (applied, events) = self.replicas.apply(&self.entry, request);
        let mut output = applied.to_string();
        for event in events {
            // Each stands beside what the others tell, at length: in the scripts that are about it.
            if matches!(event, Event::HoldBegan(_) | Event::HoldEnded { .. }) && !self.tells_holds {
                continue;
            }
            write!(output, "\n  * {event}")?;
        }
        Ok(output)
    }

    /// Applies an operation, or adds it to the transaction.
    fn write(&mut self, mut args: ArgumentConsumer<'_>, op: Op) -> Output {
        match &mut self.multi {
            Some((_, ops)) => {
                args.reject_next()?;
                ops.push(op);
                Ok(String::new())
            }
            None => {
                let command = match take_turn(&mut args)? {
                    Some(turn) => Command::InTurn {
                        turn,
                        step: Step::Write(op),
                    },
                    None => Command::Write(op),
                };
                self.apply(args, command)
            }
        }
    }

    fn once(&mut self, line: &Line) -> Output {
        let mut args = line.consume_args();
        args.take_key("times");
        let store = &mut self.replicas.store;
        match line.name.as_str() {
            "time" => self.entry.time_ms = args.next_pos().ok_or("which time?")?.parse()?,
            "tell_holds" => self.tells_holds = true,
            "term" => self.entry.term = args.next_pos().ok_or("which term?")?.parse()?,
            "open" => {
                let command = Command::OpenSession {
                    session: session(args.next_pos().ok_or("which session?")?)?,
                    password: Password([args.take_key("password").map_or(Ok(0), str::parse)?; 16]),
                    timeout_ms: args.take_key("timeout").unwrap_or("10000").parse()?,
                    name: args.take_key("name").unwrap_or("").into(),
                    address: args.take_key("address").unwrap_or("").into(),
                };
                return self.apply(args, command);
            }
            "close" => {
                let session = session(args.next_pos().ok_or("which session?")?)?;
                let command = match take_turn(&mut args)? {
                    Some(turn) => Command::InTurn {
                        turn,
                        step: Step::CloseSession,
                    },
                    None => Command::CloseSession { session },
                };
                return self.apply(args, command);
            }
            "reconnect" => {
                let command = Command::Reconnect {
                    session: session(args.next_pos().ok_or("which session?")?)?,
                    password: Password([args.take_key("password").map_or(Ok(0), str::parse)?; 16]),
                };
                return self.apply(args, command);
            }
            "expire" => {
                let term = args.take_key("term").map_or(Ok(self.entry.term), str::parse)?;
                let now = self.replicas.store.zxid();
                let as_of = args.take_key("as-of").map_or(Ok(now.0), str::parse).map(Zxid)?;
                let sessions = positionals(&mut args).map(session).collect::<Result<_, _>>()?;
                let command = Command::ExpireSessions {
                    sessions,
                    term,
                    as_of,
                };
                return self.apply(args, command);
            }
            "record-silence" => {
                let term = args.take_key("term").map_or(Ok(self.entry.term), str::parse)?;
                let now = self.replicas.store.zxid();
                let as_of = args.take_key("as-of").map_or(Ok(now.0), str::parse).map(Zxid)?;
                let ms = args.take_key("ms").ok_or("for how long?")?.parse()?;
                let sessions =
                    positionals(&mut args).map(|id| Ok::<_, Box<dyn std::error::Error>>((session(id)?, ms)));
                let command = Command::RecordSilence {
                    sessions: sessions.collect::<Result<_, _>>()?,
                    term,
                    as_of,
                };
                return self.apply(args, command);
            }
            "note-heartbeats" => {
                let term = args.take_key("term").map_or(Ok(self.entry.term), str::parse)?;
                let sessions = positionals(&mut args).map(session).collect::<Result<_, _>>()?;
                return self.apply(args, Command::NoteHeartbeats { sessions, term });
            }
            "create" => {
                let ttl_ms = args.take_key("ttl").map(str::parse).transpose()?;
                let mode = mode(args.take_key("mode").unwrap_or("persistent"), ttl_ms)?;
                let op = Op::Create {
                    path: CreatePath::parse(args.next_pos().ok_or("which path?")?, mode.is_sequential())?,
                    data: data(args.next_pos()),
                    acl: args.take_key("acl").map_or(Ok(Acl::open()), acl)?,
                    mode,
                    parents: args.take_key("parents").map_or(Ok(false), str::parse)?,
                };
                return self.write(args, op);
            }
            "delete" => {
                let op = Op::Delete {
                    path: path(&mut args)?,
                    version: version(&mut args)?,
                };
                return self.write(args, op);
            }
            "delete_recursive" => {
                let op = Op::DeleteRecursive {
                    path: path(&mut args)?,
                };
                return self.write(args, op);
            }
            "set" => {
                let op = Op::Set {
                    path: path(&mut args)?,
                    data: data(args.next_pos()),
                    version: version(&mut args)?,
                };
                return self.write(args, op);
            }
            "check" => {
                let op = Op::Check {
                    path: path(&mut args)?,
                    version: version(&mut args)?,
                };
                return self.write(args, op);
            }
            "set_acl" => {
                let op = Op::SetAcl {
                    path: path(&mut args)?,
                    acl: acl(args.next_pos().ok_or("which list?")?)?,
                    aversion: version(&mut args)?,
                };
                return self.write(args, op);
            }
            "held" => {
                let op = Op::Held {
                    lock: LockName::parse(args.next_pos().ok_or("which lock?")?)?,
                    fencing_token: Zxid(args.next_pos().ok_or("with which token?")?.parse()?),
                };
                return self.write(args, op);
            }
            "limits" => {
                let mut limits = Limits::default();
                for (key, limit) in [
                    ("data", &mut limits.data_bytes),
                    ("children", &mut limits.children),
                    ("ephemerals", &mut limits.ephemerals),
                    ("sessions", &mut limits.sessions),
                ] {
                    if let Some(value) = args.take_key(key) {
                        *limit = value.parse()?;
                    }
                }
                return self.apply(args, Command::SetLimits(limits));
            }
            "quotas" | "remove_quotas" => return namespaces::set(self, line),
            "namespace" | "namespaces" => return namespaces::show(store, args, &line.name),
            "put" => return self.steps.put(args),
            "remove" => return self.steps.remove(args),
            "mirror" => {
                let command = self.steps.take();
                return self.apply(args, command);
            }
            "page" => return mirror_script::page(store, args),
            "sweep" => {
                let paths = positionals(&mut args)
                    .map(ZPath::parse)
                    .collect::<Result<_, _>>()?;
                return self.apply(args, Command::Sweep(paths));
            }
            "multi" => {
                self.multi = Some((RequestSender::take(&mut args)?, Vec::new()));
            }
            "end" => {
                let (asker, ops) = self.multi.take().ok_or("end of what?")?;
                return self.apply_request(asker.ask(Command::Multi(ops)));
            }
            "cycle_sessions" => {
                // From far above the sessions that scripts number themselves.
                let count: u64 = args.next_pos().ok_or("how many?")?.parse()?;
                for _ in 0..count {
                    let session = SessionId(0x1000_0000 + store.zxid().0);
                    let (password, name) = (Password([0; 16]), "".into());
                    let open = Command::OpenSession {
                        session,
                        password,
                        timeout_ms: 1,
                        address: Arc::clone(&name),
                        name,
                    };
                    for command in [open, Command::CloseSession { session }] {
                        let request = Request::anonymous(command);
                        store.apply(&self.entry, request, &mut Vec::new()).outcome?;
                    }
                }
                let store = restore(draw(store, 1000));
                self.replicas.replace(store);
            }
            "fill" => {
                let path = CreatePath::parse(args.next_pos().ok_or("with which names?")?, true)?;
                let count: u64 = args.next_pos().ok_or("how many?")?.parse()?;
                for _ in 0..count {
                    let command = Command::Write(Op::Create {
                        path: path.clone(),
                        data: Data::empty(),
                        acl: Acl::open(),
                        mode: CreateMode::PersistentSequential,
                        parents: false,
                    });
                    let request = Request::anonymous(command);
                    store.apply(&self.entry, request, &mut Vec::new()).outcome?;
                }
                let store = restore(draw(store, 1000));
                self.replicas.replace(store);
            }
            "numbered_requests" => {
                let count: u64 = args.next_pos().ok_or("how many?")?.parse()?;
                let session = args.take_key("session").map(session).transpose()?;
                for _ in 0..count {
                    let id = format!("numbered-{}", self.replicas.store.zxid());
                    self.apply_request(Request {
                        session,
                        request_id: Some(RequestId::parse(&id)?),
                        caller: Identities::none(),
                        command: Command::Write(Op::Check {
                            path: ZPath::root(),
                            version: -1,
                        }),
                    })?;
                }
            }
            "get" => {
                let path = path(&mut args)?;
                return Ok(match store.get(&path) {
                    Some((data, stat)) => format!("{path} {data:?}\n  {stat}"),
                    None => format!("{path} does not exist"),
                });
            }
            "children" => {
                let path = path(&mut args)?;
                return Ok(match store.children(&path) {
                    Some(names) => format!("{path} [{}]", names.join(", ")),
                    None => format!("{path} does not exist"),
                });
            }
            "tree" => {
                let mut output = String::new();
                show_tree(store, &ZPath::root(), &mut output)?;
                return Ok(output);
            }
            "count" => return Ok(store.node_count().to_string()),
            "sessions" => {
                let lines: Vec<_> = store.sessions().iter().map(ToString::to_string).collect();
                return Ok(lines.join("\n"));
            }
            "fate" => {
                let mut output = String::new();
                for id in positionals(&mut args) {
                    let id = session(id)?;
                    writeln!(output, "{id} {}", store.session_fate(id))?;
                }
                return Ok(output);
            }
            "see" => {
                let caller = caller(&mut args)?;
                let path = path(&mut args)?;
                let view = store.seen_by(&caller);
                return Ok(match (view.get(&path), view.exists(&path)) {
                    (Ok((data, stat)), _) => format!("{path} {data:?}\n  {stat}"),
                    (Err(refusal), Ok(_)) => format!("it exists, but {refusal}"),
                    (Err(refusal), Err(_)) => refusal.to_string(),
                });
            }
            "list" => {
                let caller = caller(&mut args)?;
                let path = path(&mut args)?;
                let prefix = args.take_key("prefix").unwrap_or("");
                let after = args.take_key("after");
                let count = args.take_key("count").map_or(Ok(usize::MAX), str::parse)?;
                let page = store.seen_by(&caller).children_page(&path, prefix, after, count);
                return Ok(match page {
                    Ok(page) => {
                        let names = page
                            .children
                            .iter()
                            .map(|(name, stat)| format!("{name}@{}", stat.czxid));
                        let names: Vec<_> = names.collect();
                        format!(
                            "[{}]{}",
                            names.join(", "),
                            if page.more { " and more" } else { "" }
                        )
                    }
                    Err(refusal) => refusal.to_string(),
                });
            }
            "acl" => {
                let caller = caller(&mut args)?;
                let path = path(&mut args)?;
                return Ok(match store.seen_by(&caller).acl(&path) {
                    Ok((acl, stat)) => format!("{acl} aversion={}", stat.aversion),
                    Err(refusal) => refusal.to_string(),
                });
            }
            "descendants" => {
                let caller = caller(&mut args)?;
                let count = store.seen_by(&caller).descendants(&path(&mut args)?);
                return Ok(count.map_or_else(|refusal| refusal.to_string(), |count| count.to_string()));
            }
            "ephemerals" => {
                let owner = session(args.next_pos().ok_or("whose?")?)?;
                let paths = store
                    .seen_by(&Identities::none())
                    .ephemerals(owner, args.next_pos().unwrap_or(""));
                return Ok(paths.map_or_else(
                    |refusal| refusal.to_string(),
                    |paths| {
                        format!(
                            "[{}]",
                            paths
                                .iter()
                                .map(ToString::to_string)
                                .collect::<Vec<_>>()
                                .join(", ")
                        )
                    },
                ));
            }
            "to_sweep" => {
                let before_ms = args.next_pos().ok_or("emptied before which time?")?.parse()?;
                let now_ms = args.next_pos().ok_or("and which time is it?")?.parse()?;
                let paths: Vec<_> = store
                    .to_sweep(before_ms, now_ms)
                    .iter()
                    .map(ToString::to_string)
                    .collect();
                return Ok(format!("[{}]", paths.join(", ")));
            }
            "move_position" => {
                let by = args.next_pos().ok_or("by how much?")?.parse()?;
                let moved = store.move_position(by);
                let store = restore(draw(store, 1000));
                self.replicas.replace(store);
                return Ok(moved.map_or_else(|error| error.to_string(), |to| format!("at {to}")));
            }
            "end_all_sessions" => {
                let ended = store.end_all_sessions();
                let store = restore(draw(store, 1000));
                self.replicas.replace(store);
                return Ok(format!("{ended} ended, at {}", self.replicas.store.zxid()));
            }
            "begin_snapshot" => {
                store.begin_snapshot();
                self.parts.clear();
            }
            "part" => {
                let znodes = args.next_pos().ok_or("of how many znodes?")?.parse()?;
                match store.next_snapshot_part(znodes) {
                    Some(part) => self.parts.push(part),
                    None => return Ok("there are no more parts".into()),
                }
            }
            "abandon_snapshot" => {
                store.abandon_snapshot();
                self.parts.clear();
            }
            "restore" => {
                self.parts
                    .extend(std::iter::from_fn(|| store.next_snapshot_part(2)));
                self.replicas.replace(restore(std::mem::take(&mut self.parts)));
                return Ok(format!("restored as of {}", self.replicas.store.zxid()));
            }
            _ => {
                if let Some(output) = access_script::run(self, line)? {
                    return Ok(output);
                }
                return lock_script::run(self, line)?
                    .ok_or_else(|| format!("what is {:?}?", line.name).into());
            }
        }
        args.reject_next()?;
        Ok(String::new())
    }
}

impl Runner for Script {
    type Command = Line;

    fn run(&mut self, line: &Line, _: &Context) -> Output {
        let times = line.consume_args().take_key("times").map_or(Ok(1), str::parse)?;
        let outputs: Vec<String> = (0..times).map(|_| self.once(line)).collect::<Result<_, _>>()?;
        // Of many repetitions the first and the last are telling.
        Ok(match outputs.as_slice() {
            [first, _, .., last] if !last.is_empty() => format!("{first}\n… {times} times …\n{last}"),
            [one] => one.clone(),
            outputs => outputs.join("\n").trim_start().to_owned(),
        })
    }

    fn end_script(&mut self) -> Result<(), Box<dyn Error>> {
        let restored = restore(draw(&mut self.replicas.store, 10));
        assert_eq!(restored.digest(), self.replicas.store.digest());
        Ok(())
    }
}

fn show_tree(store: &Store, path: &ZPath, output: &mut String) -> Result<(), Box<dyn Error>> {
    let (data, stat) = store.get(path).ok_or("it was listed")?;
    let depth = path.components().count();
    let name = if path.is_root() { "/" } else { path.name() };
    write!(
        output,
        "{:indent$}{name} {data:?} version={} cversion={}",
        "",
        stat.version,
        stat.cversion,
        indent = 2 * depth
    )?;
    match stat.ephemeral_owner.session() {
        Some(session) => writeln!(output, " owner={session}")?,
        None => writeln!(output)?,
    }
    for child in store.children(path).ok_or("it exists")? {
        // What is always there says nothing.
        if path.is_root() && &*child == "zookeeper" {
            continue;
        }
        show_tree(store, &path.join(&child)?, output)?;
    }
    Ok(())
}

/// Sessions have small numbers in scripts.
pub fn session(text: &str) -> Result<SessionId, Box<dyn Error>> {
    Ok(SessionId(u64::from_str_radix(text, 16)?))
}

fn positionals<'a>(args: &mut ArgumentConsumer<'a>) -> impl Iterator<Item = &'a str> {
    let values: Vec<_> = std::iter::from_fn(|| args.next_pos()).collect();
    values.into_iter()
}

pub fn path(args: &mut ArgumentConsumer<'_>) -> Result<ZPath, Box<dyn Error>> {
    Ok(ZPath::parse(args.next_pos().ok_or("which path?")?)?)
}

fn version(args: &mut ArgumentConsumer<'_>) -> Result<i32, Box<dyn Error>> {
    Ok(args.next_pos().map_or(Ok(-1), str::parse)?)
}

/// Text, or `bytes:N` for many of the same, or `null:`.
pub fn data(text: Option<&str>) -> Data {
    let text = text.unwrap_or("");
    if text == "null:" {
        return Data::null();
    }
    match text.strip_prefix("bytes:").and_then(|count| count.parse().ok()) {
        Some(count) => vec![b'x'; count].into(),
        None => text.into(),
    }
}

/// Parses the identities of a caller.
pub fn caller(args: &mut ArgumentConsumer<'_>) -> Result<Identities, Box<dyn Error>> {
    let mut identities = Vec::new();
    for text in args.take_key("as").into_iter().flat_map(|all| all.split(',')) {
        identities.push(match text.split_once(':').unwrap_or((text, "")) {
            ("ip", address) => Identity::Ip(address.parse()?),
            ("digest", id) => Identity::Digest(id.into()),
            ("x509", id) => Identity::X509(id.into()),
            ("super", "") => Identity::Super,
            ("internal", "") => Identity::Internal,
            ("token", number) => Identity::Token(access_script::token(number)?),
            _ => return Err(format!("who is {text:?}?").into()),
        });
    }
    Ok(Identities::new(identities))
}

/// `scheme:id:perms`, several with commas between; `empty` is the list that grants nothing to nobody.
pub fn acl(text: &str) -> Result<Acl, Box<dyn Error>> {
    if text == "empty" {
        return Ok(Acl::new(Vec::new()));
    }
    let entry = |text: &str| {
        let (scheme, rest) = text.split_once(':')?;
        let (id, perms) = rest.rsplit_once(':')?;
        let mut perms = perms.chars().map(|letter| match letter {
            'c' => Some(Perms::CREATE),
            'd' => Some(Perms::DELETE),
            'r' => Some(Perms::READ),
            'w' => Some(Perms::WRITE),
            'a' => Some(Perms::ADMIN),
            _ => None,
        });
        Some(AclEntry {
            perms: perms.try_fold(Perms(0), |sum, perm| Some(sum | perm?))?,
            scheme: scheme.into(),
            id: id.into(),
        })
    };
    let entries = text.split(',').map(entry).collect::<Option<_>>();
    Ok(Acl::new(
        entries.ok_or_else(|| format!("{text:?} is no list of rights"))?,
    ))
}

fn mode(text: &str, ttl_ms: Option<u64>) -> Result<CreateMode, String> {
    match (text, ttl_ms) {
        ("ttl", Some(ttl_ms)) => return Ok(CreateMode::Ttl { ttl_ms }),
        ("ttl_sequential", Some(ttl_ms)) => return Ok(CreateMode::TtlSequential { ttl_ms }),
        (_, Some(_)) => return Err("only TTL nodes have one".into()),
        (_, None) => {}
    }
    [
        CreateMode::Persistent,
        CreateMode::Ephemeral,
        CreateMode::PersistentSequential,
        CreateMode::EphemeralSequential,
        CreateMode::Container,
    ]
    .into_iter()
    .find(|mode| mode.to_string() == text)
    .ok_or_else(|| format!("{text:?} is no mode"))
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
        let name = path
            .file_name()
            .expect("a file has a name")
            .to_string_lossy()
            .into_owned();
        // Each script has its say before the test fails, so that one run shows all differences.
        let run = std::panic::catch_unwind(|| goldenscript::run(&mut Script::new(), &path));
        if let Ok(Ok(())) = run {
            continue;
        }
        if let Ok(Err(error)) = run {
            eprintln!("{name}: {error}");
        }
        failed.push(name);
    }
    assert!(failed.is_empty(), "these scripts do not hold: {failed:?}");
}
