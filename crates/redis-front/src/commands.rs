//! Commands: their names, numbers of arguments, and replies. Transactions are here, too: `MULTI` queues, and `EXEC` executes in order.

use bytes::Bytes;

use crate::client::{AuthError, Client, Transaction};
use crate::config::{MAX_LISTED_KEYS, MAX_QUEUED_COMMANDS};
use crate::info;
use crate::keys::{Entry, Expiry, Failure, Keys};
use crate::listing;
use crate::metrics::UNKNOWN_OUTCOME;
use crate::names::NAMES;
use crate::operations::{self, ExpireIf, Expired, Life, SetIf, SetOptions, pttl};
use crate::options::{self, TimeForm, integer, syntax};
use crate::reentrant::{self, Holds};
use crate::reply::{Protocol, Reply};
use crate::request::{MAX_REQUEST_BYTES, Request};
use crate::scripts;
use crate::signals::Wait;
use crate::wakes::Subscribing;

/// Consequence of a command for its connection.
pub(crate) enum Next {
    Reply(Reply),
    /// Several replies, one after the other.
    Replies(Vec<Reply>),
    /// The connection ends after the reply.
    Quit(Reply),
    /// The connection ends without a reply.
    Abort(String),
    /// The connection polls until there is a reply, or the client has closed it.
    Wait(Wait),
}

impl Next {
    /// Returns the code by which the command is counted: `OK`, or the first word of the error.
    pub fn code(&self) -> &str {
        match self {
            Self::Reply(Reply::Error(text)) => text.split(' ').next().unwrap_or_default(),
            Self::Reply(_) | Self::Replies(_) | Self::Quit(_) | Self::Wait(_) => "OK",
            Self::Abort(_) => UNKNOWN_OUTCOME,
        }
    }
}

impl From<Result<Reply, Failure>> for Next {
    fn from(outcome: Result<Reply, Failure>) -> Self {
        match outcome {
            Ok(reply) => Self::Reply(reply),
            Err(Failure::Error(text)) => Self::Reply(Reply::Error(text)),
            Err(Failure::Unknown(reason)) => Self::Abort(reason),
        }
    }
}

/// Estimated memory of an argument beside its bytes.
const ARGUMENT_BYTES: usize = 32;

/// Executes a request.
pub(crate) async fn run(client: &mut Client, request: Request) -> Next {
    let name = String::from_utf8_lossy(&request[0]).to_ascii_uppercase();
    if !NAMES.contains(&name.as_str()) {
        if let Some(transaction) = &mut client.transaction {
            transaction.is_refused = true;
        }
        return Next::Reply(unknown(&request));
    }
    if client.front.config().disabled_commands.contains(&name) {
        if let Some(transaction) = &mut client.transaction {
            transaction.is_refused = true;
        }
        let text = format!("NOPERM the command {name} is disabled by redis.disabled_commands of this node");
        return Next::Reply(Reply::Error(text));
    }
    match name.as_str() {
        "QUIT" => Next::Quit(Reply::OK),
        "RESET" => {
            client.reset();
            Next::Reply(Reply::Status("RESET"))
        }
        "MULTI" if client.transaction.is_some() => {
            Next::Reply(Reply::Error("ERR MULTI calls can not be nested".to_owned()))
        }
        "MULTI" => {
            client.transaction = Some(Transaction::default());
            Next::Reply(Reply::OK)
        }
        "DISCARD" => Next::Reply(match client.transaction.take() {
            Some(_) => Reply::OK,
            None => Reply::Error("ERR DISCARD without MULTI".to_owned()),
        }),
        "EXEC" => exec(client).await,
        name => match &mut client.transaction {
            Some(transaction) => Next::Reply(queue(transaction, &request)),
            None if let Some(how) = Subscribing::named(name) => match client.subscribe(how, &request[1..]) {
                Ok(replies) => Next::Replies(replies),
                Err(failure) => Err(failure).into(),
            },
            None if name == "BLPOP" => match Wait::parse(&request[1..]) {
                Ok(wait) => Next::Wait(wait),
                Err(failure) => Err(failure).into(),
            },
            None => execute(client, name, &request).await.into(),
        },
    }
}

/// Queues a copy of a command: the bytes that have arrived are shared by other commands and would all be kept.
fn queue(transaction: &mut Transaction, request: &Request) -> Reply {
    transaction.bytes += request
        .iter()
        .map(|argument| argument.len() + ARGUMENT_BYTES)
        .sum::<usize>();
    if transaction.commands.len() >= MAX_QUEUED_COMMANDS || transaction.bytes > MAX_REQUEST_BYTES {
        transaction.is_refused = true;
        return Reply::Error(format!(
            "ERR a transaction has at most {MAX_QUEUED_COMMANDS} commands and {MAX_REQUEST_BYTES} bytes"
        ));
    }
    let copy = request.iter().map(|argument| Bytes::copy_from_slice(argument));
    transaction.commands.push(copy.collect());
    Reply::Status("QUEUED")
}

/// Executes the commands of a transaction in order. Each is atomic; commands of other clients can come between them.
async fn exec(client: &mut Client) -> Next {
    let Some(transaction) = client.transaction.take() else {
        return Next::Reply(Reply::Error("ERR EXEC without MULTI".to_owned()));
    };
    if transaction.is_refused {
        return Next::Reply(Reply::Error(
            "EXECABORT Transaction discarded because of previous errors.".to_owned(),
        ));
    }
    let mut replies = Vec::with_capacity(transaction.commands.len());
    for request in transaction.commands {
        let name = String::from_utf8_lossy(&request[0]).to_ascii_uppercase();
        match Next::from(execute(client, &name, &request).await) {
            Next::Reply(reply) => replies.push(reply),
            end => return end,
        }
    }
    Next::Reply(Reply::Array(replies))
}

fn unknown(request: &Request) -> Reply {
    /// Maximum number of bytes of an unknown command and of each of its arguments in the error, as in Redis.
    const SHOWN: usize = 128;
    let shown = |argument: &Bytes| {
        let text = String::from_utf8_lossy(&argument[..argument.len().min(SHOWN)]).into_owned();
        format!("'{text}' ")
    };
    let arguments: String = request[1..].iter().take(8).map(shown).collect();
    let name = String::from_utf8_lossy(&request[0][..request[0].len().min(SHOWN)]);
    Reply::Error(format!(
        "ERR unknown command '{name}', with args beginning with: {arguments}"
    ))
}

/// Executes a command that does not change the connection's transaction.
async fn execute(client: &mut Client, name: &str, request: &Request) -> Result<Reply, Failure> {
    let arguments = &request[1..];
    if let Some(reply) = of_connection(client, name, arguments) {
        return reply;
    }
    let config = client.front.config();
    of_keys(&client.keys(&config), name, arguments).await
}

/// Executes a command about the connection or the server; `None` if it is another command, or has other arguments.
fn of_connection(client: &mut Client, name: &str, arguments: &[Bytes]) -> Option<Result<Reply, Failure>> {
    let reply = match (name, arguments) {
        ("PING", []) if client.protocol == Protocol::Resp2 && !client.subscriptions.is_empty() => {
            Reply::Array(vec![Reply::text("pong"), Reply::text("")])
        }
        ("PING", []) => Reply::Status("PONG"),
        ("PING" | "ECHO", [text]) => Reply::Bulk(text.clone()),
        ("AUTH", [password] | [_, password]) => return Some(auth(client, password)),
        ("HELLO", arguments) => return Some(hello(client, arguments)),
        ("CLIENT", [subcommand, arguments @ ..]) => return Some(info::client(client, subcommand, arguments)),
        ("SELECT", [database]) => match database.as_ref() {
            b"0" => Reply::OK,
            _ => Reply::Error("ERR DB index is out of range".to_owned()),
        },
        ("INFO", _) => Reply::text(info::info(client)),
        ("COMMAND", [subcommand, ..]) if subcommand.eq_ignore_ascii_case(b"COUNT") => {
            Reply::Integer(i64::try_from(NAMES.len()).unwrap_or(i64::MAX))
        }
        ("COMMAND", [subcommand, ..]) if subcommand.eq_ignore_ascii_case(b"DOCS") => Reply::Map(Vec::new()),
        ("COMMAND", _) => Reply::Array(Vec::new()),
        ("CONFIG", [subcommand, _, ..]) if subcommand.eq_ignore_ascii_case(b"GET") => Reply::Map(Vec::new()),
        ("CONFIG", [..]) => {
            Reply::Error("ERR only CONFIG GET is supported, and it knows no parameter".to_owned())
        }
        ("TIME", []) => info::time(client),
        // A client of this node reads and writes at it whether it leads or not.
        ("ROLE", []) => Reply::Array(vec![
            Reply::text("master"),
            Reply::Integer(0),
            Reply::Array(Vec::new()),
        ]),
        // Every acknowledged write is on the disks of a quorum.
        ("WAIT", [replicas, _]) => return Some(integer(replicas).map(Reply::Integer)),
        ("UNWATCH", []) => Reply::OK,
        // The nodes themselves publish the ends of holds, and nothing else.
        ("PUBLISH", [_, _]) => Reply::Integer(0),
        ("SCRIPT", [subcommand, arguments @ ..]) => return Some(script(client, subcommand, arguments)),
        _ => return None,
    };
    Some(Ok(reply))
}

fn auth(client: &mut Client, password: &[u8]) -> Result<Reply, Failure> {
    match client.authenticate(password) {
        Ok(()) => Ok(Reply::OK),
        Err(AuthError::Invalid) => Err(Failure::error(
            "WRONGPASS the password is no valid token of this cluster",
        )),
        Err(AuthError::Exposed) => Err(Failure::error("WRONGPASS tokens are accepted over TLS only")),
    }
}

fn hello(client: &mut Client, arguments: &[Bytes]) -> Result<Reply, Failure> {
    let (version, mut options) = match arguments {
        [version, options @ ..] => (Some(version), options),
        [] => (None, arguments),
    };
    let protocol = match version.map(|version| version.as_ref()) {
        None => client.protocol,
        Some(b"2") => Protocol::Resp2,
        Some(b"3") => Protocol::Resp3,
        Some(_) => return Err(Failure::error("NOPROTO unsupported protocol version")),
    };
    while let [option, rest @ ..] = options {
        options = match (option.to_ascii_uppercase().as_slice(), rest) {
            (b"AUTH", [_, password, rest @ ..]) => {
                auth(client, password)?;
                rest
            }
            (b"SETNAME", [name, rest @ ..]) => {
                client.set_name(name)?;
                rest
            }
            _ => return Err(syntax()),
        };
    }
    client.protocol = protocol;
    Ok(info::hello(client))
}

fn script(client: &Client, subcommand: &[u8], arguments: &[Bytes]) -> Result<Reply, Failure> {
    let cache = client.front.scripts();
    match (subcommand.to_ascii_uppercase().as_slice(), arguments) {
        (b"LOAD", [text]) => scripts::load(cache, text).map(Reply::text),
        (b"EXISTS", [_, ..]) => {
            let known = arguments
                .iter()
                .map(|sha1| Reply::flag(scripts::is_known(cache, sha1)));
            Ok(Reply::Array(known.collect()))
        }
        (b"FLUSH", [] | [_]) => {
            cache.flush();
            Ok(Reply::OK)
        }
        _ => Err(Failure::error(
            "ERR unknown subcommand or wrong number of arguments for 'script'",
        )),
    }
}

/// Executes a command on keys.
async fn of_keys(keys: &Keys<'_>, name: &str, arguments: &[Bytes]) -> Result<Reply, Failure> {
    let now_ms = keys.node.now_ms();
    let plain = |condition, returns_former, life| SetOptions {
        condition,
        returns_former,
        life,
    };
    let forever = Life::For(Expiry::Never);
    match (name, arguments) {
        ("GET", [key]) => match reentrant::lock_of_token(key) {
            Some(lock) => {
                let token = operations::token(keys, lock).await?;
                Ok(token.map_or(Reply::Null, |token| Reply::text(token.to_string())))
            }
            None => Ok(value(keys.read(key).await?)),
        },
        ("MGET", [_, ..]) => {
            let mut values = Vec::with_capacity(arguments.len());
            for key in arguments {
                values.push(value(keys.read(key).await?));
            }
            Ok(Reply::Array(values))
        }
        ("STRLEN", [key]) => {
            let length = keys.read(key).await?.map_or(0, |entry| entry.value().len());
            Ok(Reply::Integer(i64::try_from(length).unwrap_or(i64::MAX)))
        }
        ("TYPE", [key]) => Ok(match keys.read(key).await? {
            Some(entry) if entry.holds().is_some() => Reply::Status("hash"),
            Some(_) => Reply::Status("string"),
            None => Reply::Status("none"),
        }),
        ("HEXISTS", [key, holder]) => {
            let entry = keys.read(key).await?;
            Ok(Reply::flag(count_of(entry.as_ref(), holder).is_some()))
        }
        ("HGET", [key, holder]) => {
            let entry = keys.read(key).await?;
            let count = count_of(entry.as_ref(), holder);
            Ok(count.map_or(Reply::Null, |count| Reply::text(count.to_string())))
        }
        ("HLEN", [key]) => {
            let entry = keys.read(key).await?;
            Ok(Reply::flag(entry.is_some_and(|entry| entry.holds().is_some())))
        }
        ("HGETALL", [key]) => {
            let entry = keys.read(key).await?;
            let field = |holds: Holds<'_>| {
                let holder = Bytes::copy_from_slice(holds.holder.as_bytes());
                (holder, Reply::text(holds.count.to_string()))
            };
            let holds = entry.as_ref().and_then(Entry::holds).map(field);
            Ok(Reply::Map(holds.into_iter().collect()))
        }
        ("HINCRBY", [key, holder, change]) => {
            let change = isize::try_from(integer(change)?).unwrap_or(isize::MAX);
            let changed = reentrant::set_count(keys, key, holder, |count| count.checked_add_signed(change));
            Ok(Reply::count(changed.await?.1))
        }
        ("HSET", [key, holder, count]) => {
            let count = usize::try_from(integer(count)?).ok().filter(|count| *count > 0);
            let (former, _) = reentrant::set_count(keys, key, holder, |_| count).await?;
            Ok(Reply::flag(former == 0))
        }
        ("HDEL", [key, holder]) => {
            let (former, _) = reentrant::set_count(keys, key, holder, |_| Some(0)).await?;
            Ok(Reply::flag(former > 0))
        }
        ("EXISTS", [_, ..]) => {
            let mut existing = 0;
            for key in arguments {
                existing += i64::from(keys.read(key).await?.is_some());
            }
            Ok(Reply::Integer(existing))
        }
        ("LOCKGATE.TOKEN", [key]) => {
            let token = operations::token(keys, key).await?;
            Ok(token.map_or(Reply::Null, Reply::Integer))
        }
        ("TTL", [key]) => Ok(Reply::Integer(match pttl(keys, key).await? {
            // Rounded to seconds, as in Redis.
            ms @ 0.. => (ms + 500) / 1_000,
            none => none,
        })),
        ("PTTL", [key]) => pttl(keys, key).await.map(Reply::Integer),
        ("SET", [key, value, options @ ..]) => {
            operations::set(keys, key, value, &options::of_set(options, now_ms)?).await
        }
        ("SETNX", [key, value]) => {
            let set = operations::set(keys, key, value, &plain(SetIf::Absent, false, forever)).await?;
            Ok(Reply::flag(set == Reply::OK))
        }
        ("GETSET", [key, value]) => {
            operations::set(keys, key, value, &plain(SetIf::Always, true, forever)).await
        }
        ("SETEX" | "PSETEX", [key, time, value]) => {
            let form = TimeForm::named(name).expect("both names have a form");
            let command = name.to_ascii_lowercase();
            let life = form.life(time, now_ms, &command)?;
            if life == Life::Over {
                return Err(Failure::Error(format!(
                    "ERR invalid expire time in '{command}' command"
                )));
            }
            operations::set(keys, key, value, &plain(SetIf::Always, false, life)).await
        }
        ("DEL" | "UNLINK", [_, ..]) => {
            let mut deleted = 0;
            for key in arguments {
                deleted += i64::from(operations::delete(keys, key, None).await?);
            }
            Ok(Reply::Integer(deleted))
        }
        ("DELEX", [key]) => operations::delete(keys, key, None).await.map(Reply::flag),
        ("DELIFEQ", [key, expected]) => delete_if_equal(keys, key, expected).await,
        ("DELEX", [key, option, expected]) if option.eq_ignore_ascii_case(b"IFEQ") => {
            delete_if_equal(keys, key, expected).await
        }
        ("DELEX", [_, _, _]) => Err(syntax()),
        ("GETDEL", [key]) => {
            let taken = operations::take(keys, key).await?;
            Ok(taken.map_or(Reply::Null, Reply::Bulk))
        }
        ("EXPIRE" | "PEXPIRE" | "EXPIREAT" | "PEXPIREAT", [key, time, options @ ..]) => {
            let form = TimeForm::named(name).expect("all four names have a form");
            let life = form.life(time, now_ms, &name.to_ascii_lowercase())?;
            let condition = options::of_expire(options)?;
            let expired = operations::expire(keys, key, None, condition, |_| life).await?;
            Ok(Reply::flag(expired == Expired::Changed))
        }
        ("PERSIST", [key]) => {
            let expired = operations::expire(keys, key, None, ExpireIf::Some, |_| forever).await?;
            Ok(Reply::flag(expired == Expired::Changed))
        }
        ("EVAL" | "EVAL_RO", [text, rest @ ..]) => {
            let sha1 = scripts::load(keys.scripts, text)?;
            let run = run_script(keys, sha1.as_bytes(), rest).await?;
            run.ok_or_else(|| Failure::error("TRYAGAIN the script was forgotten meanwhile"))
        }
        ("EVALSHA" | "EVALSHA_RO", [sha1, rest @ ..]) => {
            let run = run_script(keys, sha1, rest).await?;
            run.ok_or_else(|| Failure::error("NOSCRIPT No matching script. Please use EVAL."))
        }
        // In a transaction it does not wait.
        ("BLPOP", arguments) => Ok(Wait::parse(arguments)?.poll(keys).await?.unwrap_or(Reply::Null)),
        ("KEYS", [pattern]) => {
            let found = listing::keys(keys, pattern, MAX_LISTED_KEYS)?;
            Ok(Reply::Array(found.into_iter().map(Reply::Bulk).collect()))
        }
        ("SCAN", [_, options @ ..]) => listing::scan(keys, options),
        ("DBSIZE", []) => {
            let found = listing::keys(keys, b"*", MAX_LISTED_KEYS)?;
            Ok(Reply::Integer(i64::try_from(found.len()).unwrap_or(i64::MAX)))
        }
        ("FLUSHDB" | "FLUSHALL", _) => listing::flush(keys).await,
        _ => Err(Failure::Error(format!(
            "ERR wrong number of arguments for '{}' command",
            name.to_ascii_lowercase()
        ))),
    }
}

async fn delete_if_equal(keys: &Keys<'_>, key: &[u8], expected: &[u8]) -> Result<Reply, Failure> {
    operations::delete(keys, key, Some(expected))
        .await
        .map(Reply::flag)
}

/// Returns the number of holds of a holder in Redisson's sense.
fn count_of(entry: Option<&Entry>, holder: &[u8]) -> Option<usize> {
    let holds = entry?.holds()?;
    (holds.holder.as_bytes() == holder).then_some(holds.count)
}

fn value(entry: Option<Entry>) -> Reply {
    entry.map_or(Reply::Null, |entry| Reply::Bulk(entry.value()))
}

/// Runs a script with the number of keys, the keys and the other arguments; `None` if it is not known.
async fn run_script(keys: &Keys<'_>, sha1: &[u8], rest: &[Bytes]) -> Result<Option<Reply>, Failure> {
    let [count, rest @ ..] = rest else {
        return Err(Failure::error("ERR wrong number of arguments for 'eval' command"));
    };
    let count = usize::try_from(integer(count)?)
        .map_err(|_| Failure::error("ERR Number of keys can't be negative"))?;
    let split = rest.split_at_checked(count);
    let (names, arguments) =
        split.ok_or_else(|| Failure::error("ERR Number of keys can't be greater than number of args"))?;
    scripts::run(keys, sha1, names, arguments).await.transpose()
}
