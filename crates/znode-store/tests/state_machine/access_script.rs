//! Script commands about access policies. Tokens are numbers, like sessions: token 7 has the id `07…07`.
//!
//! | command | meaning |
//! |---|---|
//! | `secure TOKEN [anonymous=GRANTS\|nothing]` | secures the state, with the first administrator's token |
//! | `token N ROLE [expires=MS] [description=]`, `revoke_token N` | makes a token; unmakes it |
//! | `role NAME [GRANTS]`, `delete_role NAME` | makes a role; unmakes it |
//! | `certificate SUBJECT ROLE`, `unmap SUBJECT` | gives the bearers of a certificate a role; takes it away |
//! | `end_waits_with_rights` | from here on waits end with the right to lock |
//! | `may RIGHT PATH`, `may_watch PATH`, `may_use SESSION` | whether `as=` may |
//! | `policies` | tokens, roles and certificates, if `as=` may see them |
//! | `my_sessions`, `my_lock LOCK`, `my_graph`, `my_history LOCK` | what `as=` may see of sessions and locks |
//!
//! Grants are `PATH:RIGHT+RIGHT`, with a comma between. All take `as=`.

use std::error::Error;
use std::fmt::Write as _;

use goldenscript::{ArgumentConsumer, Command as Line};
use znode_store::{
    AccessCommand, Command, LockName, NewToken, PathGrant, Right, RoleName, TokenHash, TokenId, ZPath,
};

use crate::script::{Script, caller, session};

type Output = Result<Option<String>, Box<dyn Error>>;

/// Runs a command about access policies; `None` if it is another command.
pub fn run(script: &mut Script, line: &Line) -> Output {
    let mut args = line.consume_args();
    args.take_key("times");
    let command = match line.name.as_str() {
        "secure" => AccessCommand::Secure {
            token: token(next(&mut args)?)?,
            hash: TokenHash([0; 32]),
            description: "first".into(),
            anonymous: args.take_key("anonymous").map(grants).transpose()?,
        },
        "token" => {
            let id = token(next(&mut args)?)?;
            AccessCommand::CreateToken(NewToken {
                id,
                hash: TokenHash(*[id.0, id.0].as_flattened().first_chunk().expect("twice 16 bytes")),
                role: RoleName::parse(next(&mut args)?)?,
                description: args.take_key("description").unwrap_or("").into(),
                expires_at_ms: args.take_key("expires").map(str::parse).transpose()?,
            })
        }
        "revoke_token" => AccessCommand::RevokeToken(token(next(&mut args)?)?),
        "role" => AccessCommand::SetRole {
            role: RoleName::parse(next(&mut args)?)?,
            grants: args.next_pos().map_or(Ok(Vec::new()), grants)?,
        },
        "delete_role" => AccessCommand::DeleteRole(RoleName::parse(next(&mut args)?)?),
        "certificate" => AccessCommand::MapCertificate {
            certificate: next(&mut args)?.into(),
            role: RoleName::parse(next(&mut args)?)?,
        },
        "unmap" => AccessCommand::UnmapCertificate(next(&mut args)?.into()),
        "end_waits_with_rights" => AccessCommand::EndWaitsWithRights,
        _ => return look(script, line),
    };
    script.apply(args, Command::Access(command)).map(Some)
}

fn look(script: &mut Script, line: &Line) -> Output {
    let mut args = line.consume_args();
    let caller = caller(&mut args)?;
    let view = script.replicas.store.seen_by(&caller);
    let yes = |()| "yes".to_owned();
    let seen = match line.name.as_str() {
        "may" => {
            let right: Right = next(&mut args)?.parse()?;
            view.may(right, &ZPath::parse(next(&mut args)?)?).map(yes)
        }
        "may_watch" => view.watch(&ZPath::parse(next(&mut args)?)?).map(yes),
        "may_use" => view.may_use(session(next(&mut args)?)?).map(yes),
        "my_sessions" => view.sessions().map(|sessions| {
            let lines: Vec<_> = sessions.iter().map(ToString::to_string).collect();
            lines.join("\n")
        }),
        "my_lock" => view.lock(&LockName::parse(next(&mut args)?)?).map(|lock| {
            let (holders, waiters) = (lock.holders.len(), lock.queue.len());
            format!("lock {} has {holders} holders and {waiters} waiters", lock.lock)
        }),
        "my_history" => view.lock_history(&LockName::parse(next(&mut args)?)?).map(yes),
        "my_graph" => view.wait_graph("").map(|(waits, _)| {
            let locks: Vec<_> = waits.iter().map(|wait| wait.lock.to_string()).collect();
            format!("waits in [{}]", locks.join(", "))
        }),
        "policies" => match (view.tokens(), view.roles(), view.certificates()) {
            (Ok(tokens), Ok(roles), Ok(certificates)) => {
                let mut output = String::new();
                for token in tokens {
                    writeln!(output, "{token}")?;
                }
                for role in roles {
                    let grants: Vec<_> = role.grants.iter().map(ToString::to_string).collect();
                    writeln!(output, "role {}: {}", role.role, grants.join(", "))?;
                }
                for (certificate, role) in certificates {
                    writeln!(output, "certificate {certificate} has role {role}")?;
                }
                Ok(output)
            }
            (Err(refusal), Err(_), Err(_)) => Err(refusal),
            other => return Err(format!("some may be seen and some not: {other:?}").into()),
        },
        _ => return Ok(None),
    };
    args.reject_next()?;
    Ok(Some(seen.unwrap_or_else(|refusal| refusal.to_string())))
}

fn next<'a>(args: &mut ArgumentConsumer<'a>) -> Result<&'a str, Box<dyn Error>> {
    args.next_pos().ok_or_else(|| "something is missing".into())
}

/// Tokens have small numbers in scripts.
pub fn token(text: &str) -> Result<TokenId, Box<dyn Error>> {
    Ok(TokenId([text.parse()?; 16]))
}

/// `PATH:RIGHT+RIGHT`, several with a comma between; or `nothing`.
fn grants(text: &str) -> Result<Vec<PathGrant>, Box<dyn Error>> {
    let grant = |text: &str| -> Result<PathGrant, Box<dyn Error>> {
        let (prefix, rights) = text.rsplit_once(':').ok_or("a grant is PATH:RIGHT+RIGHT")?;
        Ok(PathGrant {
            prefix: ZPath::parse(prefix)?,
            rights: rights
                .split('+')
                .map(str::parse::<Right>)
                .collect::<Result<_, _>>()?,
        })
    };
    match text {
        "nothing" => Ok(Vec::new()),
        _ => text.split(',').map(grant).collect(),
    }
}
