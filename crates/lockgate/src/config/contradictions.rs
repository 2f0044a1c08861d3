//! Contradictions between settings: timings that do not fit, addresses that collide, bounds that allow nothing.

use std::net::{IpAddr, Ipv4Addr};

use super::ServeConfig;
use super::settings_reader::SettingsReader;

/// Address to listen at, with its setting.
struct Listener {
    setting: String,
    what: &'static str,
    address: String,
}

impl SettingsReader<'_> {
    /// Checks the configuration after everything is read. Settings with an error of their own are skipped.
    pub(super) fn refuse_contradictions(&mut self, config: &ServeConfig) {
        // Without id and members the checks would only repeat that these are missing.
        let is_known = !self.has_error("node_id") && !self.has_error("members");
        for found in config.node.invalid_settings() {
            let about_members = matches!(found.setting, "node_id" | "members");
            if !self.has_error(found.setting) && (is_known || !about_members) {
                self.error::<()>(found.setting, &found.fact);
            }
        }
        self.refuse_collisions(config);
        if config.zookeeper_plain_listen.is_some() && config.tls.is_none() && !self.has_error("tls") {
            let fact = "needs [tls]: without it zookeeper_listen has no TLS either";
            self.error::<()>("zookeeper_plain_listen", fact);
        }
        self.refuse_inner_limits_above_outer(config);
        self.warn_of_settings_without_effect(config);
    }

    /// Reports two ports of this node, or one of its ports and one of another member, at the same address.
    fn refuse_collisions(&mut self, config: &ServeConfig) {
        let listeners = listeners(config);
        for (place, later) in listeners.iter().enumerate() {
            for earlier in &listeners[..place] {
                if collide(&earlier.address, &later.address) {
                    let fact = format!(
                        "{} and {} would both listen at {}",
                        earlier.what, later.what, later.address
                    );
                    self.error::<()>(&later.setting, &fact);
                }
            }
            let others = config
                .node
                .raft
                .members
                .iter()
                .filter(|_| !self.has_error("members"));
            let others: Vec<_> = others.collect();
            for (id, member) in others {
                let theirs = [&member.peer, &member.http];
                if *id != config.node.raft.node_id
                    && theirs.iter().any(|address| **address == later.address)
                    && !later.address.ends_with(":0")
                {
                    let fact = format!("{} is an address of member {id}", later.address);
                    self.error::<()>(&later.setting, &fact);
                }
            }
        }
    }

    fn refuse_inner_limits_above_outer(&mut self, config: &ServeConfig) {
        let (http, zookeeper) = (&config.http, &config.zookeeper);
        for (inner, of_one, outer, of_all) in [
            (
                "http.max_body_bytes",
                http.max_body_bytes,
                "http.max_data_body_bytes",
                http.max_data_body_bytes,
            ),
            (
                "http.max_data_body_bytes",
                http.max_data_body_bytes,
                "http.max_large_bodies_bytes",
                http.max_large_bodies_bytes,
            ),
            (
                "zookeeper.max_request_bytes",
                zookeeper.max_request_bytes,
                "zookeeper.max_large_requests_bytes",
                zookeeper.max_large_requests_bytes,
            ),
        ] {
            if of_one > of_all && !self.has_error(inner) && !self.has_error(outer) {
                let said = if self.set.contains_key(inner) {
                    inner
                } else {
                    outer
                };
                let fact =
                    format!("{inner} ({of_one}) is more than {outer} ({of_all}), so the largest never fits");
                self.error::<()>(said, &fact);
            }
        }
    }

    fn warn_of_settings_without_effect(&mut self, config: &ServeConfig) {
        let watches = &config.node.watches.limits;
        for (part, of_part, whole, of_whole) in [
            (
                "http.max_connections_per_address",
                config.http.max_connections_per_address,
                "http.max_connections",
                config.http.max_connections,
            ),
            (
                "zookeeper.max_connections_per_address",
                config.zookeeper.max_connections_per_address,
                "zookeeper.max_connections",
                config.zookeeper.max_connections,
            ),
            (
                "redis.max_connections_per_address",
                config.redis.max_connections_per_address,
                "redis.max_connections",
                config.redis.max_connections,
            ),
            (
                "watches.per_watcher",
                watches.per_watcher as usize,
                "watches.per_node",
                watches.per_node as usize,
            ),
        ] {
            if of_part > of_whole && self.set.contains_key(part) {
                self.warn(
                    part,
                    &format!("is more than {whole} ({of_whole}) and has no effect"),
                );
            }
        }
        let admin = "admin.max_connections";
        if self.set.contains_key(admin) && config.admin_listen.is_none() {
            self.warn(admin, "has no effect without admin_listen");
        }
        let oldest = "tls.zookeeper_oldest_version";
        if self.set.contains_key(oldest) && config.zookeeper_listen.is_none() {
            self.warn(oldest, "has no effect without zookeeper_listen");
        }
        if self.set.contains_key("access.required")
            && config.access_required == Some(false)
            && config.tls.is_none()
            && config.insecure
        {
            self.warn("access.required", "has no effect beside insecure = true");
        }
    }
}

fn listeners(config: &ServeConfig) -> Vec<Listener> {
    let node = &config.node;
    let own = node.raft.members.get(&node.raft.node_id);
    let peer = match (&node.raft.peer_listen, own) {
        (Some(address), _) => Some(("peer_listen".to_owned(), address.to_string())),
        (None, Some(own)) => Some((format!("members.{}", node.raft.node_id), own.peer.clone())),
        (None, None) => None,
    };
    let http =
        (!config.http_listen.is_empty()).then(|| ("http_listen".to_owned(), config.http_listen.clone()));
    let zookeeper = config.zookeeper_listen.clone();
    let zookeeper = zookeeper.map(|address| ("zookeeper_listen".to_owned(), address));
    let zookeeper_plain = config.zookeeper_plain_listen.clone();
    let zookeeper_plain = zookeeper_plain.map(|address| ("zookeeper_plain_listen".to_owned(), address));
    let redis = config.redis_listen.clone();
    let redis = redis.map(|address| ("redis_listen".to_owned(), address));
    let admin = config.admin_listen.clone();
    let admin = admin.map(|address| ("admin_listen".to_owned(), address));
    let all = [
        ("peers", peer),
        ("HTTP", http),
        ("clients of ZooKeeper", zookeeper),
        ("clients of ZooKeeper without TLS", zookeeper_plain),
        ("clients of Redis", redis),
        ("administration", admin),
    ];
    let all = all.into_iter();
    all.filter_map(|(what, said)| {
        said.map(|(setting, address)| Listener {
            setting,
            what,
            address,
        })
    })
    .collect()
}

/// Returns whether two addresses collide. Names are not resolved: a machine has one name in a configuration.
fn collide(one: &str, other: &str) -> bool {
    let parts = |address: &str| {
        let (host, port) = address.rsplit_once(':')?;
        Some((
            host.trim_matches(['[', ']']).to_owned(),
            port.parse::<u16>().ok()?,
        ))
    };
    let (Some((one, one_port)), Some((other, other_port))) = (parts(one), parts(other)) else {
        return false;
    };
    let address = |host: &str| match host {
        "localhost" => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        host => host.parse::<IpAddr>().ok(),
    };
    let is_all = |host: &str| address(host).is_some_and(|address| address.is_unspecified());
    let same_host = one == other || address(&one).is_some() && address(&one) == address(&other);
    one_port == other_port && one_port != 0 && (same_host || is_all(&one) || is_all(&other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_collide_at_the_same_port_of_the_same_host() {
        for (one, other, expected) in [
            ("127.0.0.1:7400", "127.0.0.1:7400", true),
            ("127.0.0.1:7400", "localhost:7400", true),
            ("0.0.0.0:7400", "127.0.0.1:7400", true),
            ("[::]:7400", "10.0.0.1:7400", true),
            ("a.example:7400", "a.example:7400", true),
            ("127.0.0.1:7400", "127.0.0.1:7401", false),
            ("127.0.0.1:7400", "127.0.0.2:7400", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
        ] {
            assert_eq!(collide(one, other), expected, "{one} {other}");
        }
    }
}
