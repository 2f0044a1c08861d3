//! Names of locks for keys. A key is any bytes; the name of a lock is a path. Bytes that a path cannot have are written as `%` and two
//! hexadecimal digits, so different keys have different locks.

use znode_store::LockName;

/// Returns the lock of a key below `prefix`; `None` if its name is too long, or has too many components.
pub(crate) fn lock_of(prefix: &str, key: &[u8]) -> Option<LockName> {
    let is_component = |component: &[u8]| !matches!(component, b"" | b"." | b"..");
    // A key such as `orders/7` is a path, to which policies can refer. Otherwise a slash is a byte as any other.
    let is_path = key.split(|byte| *byte == b'/').all(is_component);
    let mut name = String::with_capacity(prefix.len() + 1 + key.len());
    name.push_str(prefix);
    name.push('/');
    for byte in key {
        match byte {
            b'/' if is_path => name.push('/'),
            b'/' | b'%' => escape(&mut name, *byte),
            // A key of dots alone would be a relative path.
            b'.' if !is_path => escape(&mut name, *byte),
            b' '..=b'~' => name.push(char::from(*byte)),
            _ => escape(&mut name, *byte),
        }
    }
    match key.is_empty() {
        // No other key has this name.
        true => LockName::parse(&format!("{prefix}/%")).ok(),
        false => LockName::parse(&name).ok(),
    }
}

fn escape(name: &mut String, byte: u8) {
    name.push('%');
    for digit in [byte >> 4, byte & 0xf] {
        name.push(
            char::from_digit(digit.into(), 16)
                .expect("it has four bits")
                .to_ascii_uppercase(),
        );
    }
}

/// Returns the key of a lock; `None` for a lock that belongs to no key, as another client may have made it.
pub(crate) fn key_of(prefix: &str, lock: &LockName) -> Option<Vec<u8>> {
    let name = lock.as_str().strip_prefix(prefix)?.strip_prefix('/')?;
    let mut key = Vec::new();
    let mut bytes = name.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' if name.len() > 1 => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                key.push(u8::try_from(high << 4 | low).ok()?);
            }
            b'%' => {}
            byte => key.push(byte),
        }
    }
    (lock_of(prefix, &key).as_ref() == Some(lock)).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_lock_of_its_own() {
        for (key, name) in [
            (&b"foo"[..], "r/foo"),
            (b"lock:order 7", "r/lock:order 7"),
            (b"orders/7", "r/orders/7"),
            (b"orders//7", "r/orders%2F%2F7"),
            (b"/a.b", "r/%2Fa%2Eb"),
            (b"a/", "r/a%2F"),
            (b"..", "r/%2E%2E"),
            (b"a%2F", "r/a%252F"),
            (b"\xff\r\n", "r/%FF%0D%0A"),
            ("é".as_bytes(), "r/%C3%A9"),
            (b"", "r/%"),
            (b"%", "r/%25"),
        ] {
            let lock = lock_of("r", key).unwrap();
            assert_eq!(lock.as_str(), name);
            assert_eq!(key_of("r", &lock).as_deref(), Some(key));
        }
        assert_eq!(lock_of("r", &[b'a'; 600]), None);
        for other in ["s/foo", "r", "r/%C", "r/é", "r/%41", "rs/a"] {
            assert_eq!(key_of("r", &LockName::parse(other).unwrap()), None, "{other}");
        }
    }
}
