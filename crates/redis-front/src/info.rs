//! Replies about the connection and the server: enough for clients to connect.

use bytes::Bytes;

use crate::client::Client;
use crate::keys::Failure;
use crate::reply::Reply;

/// Version of Redis whose commands clients may expect. Some choose their commands by it.
const REDIS_VERSION: &str = "7.4.0";

/// Reply to `HELLO`.
pub(crate) fn hello(client: &Client) -> Reply {
    let fields = [
        ("server", Reply::text("redis")),
        ("version", Reply::text(REDIS_VERSION)),
        ("proto", Reply::Integer(client.protocol.number())),
        ("id", Reply::Integer(client.id)),
        ("mode", Reply::text("standalone")),
        ("role", Reply::text("master")),
        ("modules", Reply::Array(Vec::new())),
    ];
    let named = fields.map(|(name, value)| (Bytes::from_static(name.as_bytes()), value));
    Reply::Map(named.into())
}

/// Text of `INFO`. Every node serves reads and writes, so each is a master to its clients.
pub(crate) fn info(client: &Client) -> String {
    let node = client.front.node();
    let counts = client.front.metrics().counts();
    let facts = [
        ("redis_version", REDIS_VERSION.to_owned()),
        ("redis_mode", "standalone".to_owned()),
        ("server_name", "lockgate".to_owned()),
        ("lockgate_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("lockgate_node", node.id().to_string()),
        ("arch_bits", usize::BITS.to_string()),
        ("uptime_in_seconds", client.front.uptime_seconds().to_string()),
        ("connected_clients", counts.open.to_string()),
        ("maxclients", counts.limit.to_string()),
        ("loading", u8::from(node.not_ready().is_some()).to_string()),
        ("role", "master".to_owned()),
        ("connected_slaves", "0".to_owned()),
        ("cluster_enabled", "0".to_owned()),
        // Known scripts need no cache.
        ("number_of_cached_scripts", "0".to_owned()),
    ];
    facts.map(|(name, value)| format!("{name}:{value}\r\n")).concat()
}

/// Reply to `TIME`: seconds and microseconds since 1970.
pub(crate) fn time(client: &Client) -> Reply {
    let now_ms = client.front.node().now_ms();
    let (seconds, microseconds) = (now_ms / 1_000, now_ms % 1_000 * 1_000);
    Reply::Array(vec![
        Reply::text(seconds.to_string()),
        Reply::text(microseconds.to_string()),
    ])
}

/// Executes `CLIENT` and a subcommand.
pub(crate) fn client(client: &mut Client, subcommand: &[u8], arguments: &[Bytes]) -> Result<Reply, Failure> {
    match (subcommand.to_ascii_uppercase().as_slice(), arguments) {
        (b"ID", []) => Ok(Reply::Integer(client.id)),
        (b"GETNAME", []) => Ok(match client.name.is_empty() {
            true => Reply::Null,
            false => Reply::Bulk(client.name.clone()),
        }),
        (b"SETNAME", [name]) => {
            client.set_name(name)?;
            Ok(Reply::OK)
        }
        // The library's name and version, which nothing here depends on.
        (b"SETINFO", [_, _]) | (b"NO-EVICT" | b"NO-TOUCH", [_]) => Ok(Reply::OK),
        (b"INFO", []) => Ok(Reply::text(format!(
            "id={} addr={} name={} resp={}\n",
            client.id,
            client.address,
            String::from_utf8_lossy(&client.name),
            client.protocol.number()
        ))),
        _ => Err(Failure::Error(format!(
            "ERR unknown subcommand or wrong number of arguments for '{}'. Try CLIENT HELP.",
            String::from_utf8_lossy(&subcommand[..subcommand.len().min(64)])
        ))),
    }
}
