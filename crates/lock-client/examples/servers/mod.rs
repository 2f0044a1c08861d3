//! Servers of the examples: those of LOCKGATE_SERVERS, or of `lockgate dev up`.

/// Returns their addresses.
pub fn addresses() -> Vec<String> {
    let addresses = std::env::var("LOCKGATE_SERVERS");
    let addresses = addresses
        .as_deref()
        .unwrap_or("127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403");
    addresses.split(',').map(str::to_owned).collect()
}
