//! Options of commands, and numbers in arguments.

use bytes::Bytes;

use crate::keys::{Expiry, Failure};
use crate::operations::{ExpireIf, Life, SetIf, SetOptions, life_of_ms};

/// Redis' error for options that do not fit.
pub(crate) fn syntax() -> Failure {
    Failure::error("ERR syntax error")
}

/// Reads a whole number.
pub(crate) fn integer(bytes: &[u8]) -> Result<i64, Failure> {
    let text = std::str::from_utf8(bytes).ok();
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| Failure::error("ERR value is not an integer or out of range"))
}

/// Unit and origin of a time in an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeForm {
    pub is_seconds: bool,
    /// True for a time since 1970.
    pub is_absolute: bool,
}

impl TimeForm {
    /// Returns the form that an option of `SET` or the name of a command stands for.
    pub fn named(name: &str) -> Option<Self> {
        let (is_seconds, is_absolute) = match name {
            "EX" | "EXPIRE" | "SETEX" => (true, false),
            "PX" | "PEXPIRE" | "PSETEX" => (false, false),
            "EXAT" | "EXPIREAT" => (true, true),
            "PXAT" | "PEXPIREAT" => (false, true),
            _ => return None,
        };
        Some(Self {
            is_seconds,
            is_absolute,
        })
    }

    /// Returns the life that an argument stands for. The clock of a time since 1970 is this node's, as it is Redis' own clock there; what the
    /// cluster decides is the time to live.
    pub fn life(self, argument: &[u8], now_ms: u64, command: &str) -> Result<Life, Failure> {
        let number = integer(argument)?;
        let wrong = || Failure::Error(format!("ERR invalid expire time in '{command}' command"));
        let factor = if self.is_seconds { 1_000 } else { 1 };
        let ms = number.checked_mul(factor).ok_or_else(wrong)?;
        Ok(life_of_ms(match self.is_absolute {
            true => ms.saturating_sub(i64::try_from(now_ms).unwrap_or(i64::MAX)),
            false => ms,
        }))
    }
}

/// Reads the options of `SET` after its value.
pub(crate) fn of_set(options: &[Bytes], now_ms: u64) -> Result<SetOptions, Failure> {
    let (mut condition, mut life, mut returns_former) = (None, None, false);
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        let option = option.to_ascii_uppercase();
        let name = std::str::from_utf8(&option).map_err(|_| syntax())?;
        let replaced = match name {
            "NX" => condition.replace(SetIf::Absent).is_some(),
            "XX" => condition.replace(SetIf::Present).is_some(),
            "IFEQ" => {
                let expected = rest.next().ok_or_else(syntax)?.clone();
                condition.replace(SetIf::Equal(expected)).is_some()
            }
            "GET" => std::mem::replace(&mut returns_former, true),
            "KEEPTTL" => life.replace(Life::Kept).is_some(),
            name => {
                let form = TimeForm::named(name).filter(|_| matches!(name, "EX" | "PX" | "EXAT" | "PXAT"));
                let form = form.ok_or_else(syntax)?;
                let found = form.life(rest.next().ok_or_else(syntax)?, now_ms, "set")?;
                if found == Life::Over && !form.is_absolute {
                    return Err(Failure::error("ERR invalid expire time in 'set' command"));
                }
                life.replace(found).is_some()
            }
        };
        if replaced {
            return Err(syntax());
        }
    }
    Ok(SetOptions {
        condition: condition.unwrap_or_default(),
        returns_former,
        life: life.unwrap_or(Life::For(Expiry::Never)),
    })
}

/// Reads the condition of `EXPIRE` and its like.
pub(crate) fn of_expire(options: &[Bytes]) -> Result<ExpireIf, Failure> {
    let [option] = options else {
        return match options.is_empty() {
            true => Ok(ExpireIf::Always),
            false => Err(syntax()),
        };
    };
    match option.to_ascii_uppercase().as_slice() {
        b"NX" => Ok(ExpireIf::Never),
        b"XX" => Ok(ExpireIf::Some),
        b"GT" => Ok(ExpireIf::Later),
        b"LT" => Ok(ExpireIf::Earlier),
        _ => Err(Failure::Error(format!(
            "ERR Unsupported option {}",
            String::from_utf8_lossy(option)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Ttl;

    fn set(options: &[&str]) -> Result<SetOptions, Failure> {
        let options: Vec<Bytes> = options
            .iter()
            .map(|option| Bytes::from(option.to_string()))
            .collect();
        of_set(&options, 1_000_000)
    }

    /// Every order of a few words and numbers, also at the ends of their ranges.
    #[test]
    fn options_of_any_words_are_read_or_refused() {
        const WORDS: [&str; 12] = [
            "NX",
            "xx",
            "GET",
            "EX",
            "PX",
            "EXAT",
            "PXAT",
            "KEEPTTL",
            "IFEQ",
            "9223372036854775807",
            "-9223372036854775808",
            "4294967295",
        ];
        let mut accepted = 0;
        for number in 0..WORDS.len().pow(4) {
            let word = |at: u32| WORDS[number / WORDS.len().pow(at) % WORDS.len()];
            let words = [word(0), word(1), word(2), word(3)];
            accepted += usize::from(set(&words).is_ok());
            let options = words.map(|word| Bytes::from_static(word.as_bytes()));
            assert!(of_expire(&options).is_err(), "more than one");
        }
        assert!(accepted > 100, "only {accepted}");
    }

    #[test]
    fn options_of_set_are_read_in_any_order_and_once() {
        let ttl = |ms| Life::For(Expiry::In(Ttl::from_ms(ms).unwrap()));
        let found = set(&["px", "250", "NX", "get"]).unwrap();
        assert_eq!(found.condition, SetIf::Absent);
        assert!(found.returns_former);
        assert_eq!(found.life, ttl(250));
        assert_eq!(set(&["EX", "2"]).unwrap().life, ttl(2_000));
        assert_eq!(set(&["PXAT", "1000300"]).unwrap().life, ttl(300));
        assert_eq!(set(&["EXAT", "999"]).unwrap().life, Life::Over);
        assert_eq!(set(&["PX", "4294967295"]).unwrap().life, Life::For(Expiry::Never));
        assert_eq!(set(&["KEEPTTL"]).unwrap().life, Life::Kept);
        assert_eq!(set(&[]).unwrap().life, Life::For(Expiry::Never));
        assert_eq!(
            set(&["IFEQ", "a"]).unwrap().condition,
            SetIf::Equal(Bytes::from("a"))
        );
        for wrong in [
            &["NX", "XX"][..],
            &["NX", "NX"],
            &["EX", "1", "PX", "1"],
            &["EX", "1", "KEEPTTL"],
            &["EX"],
            &["EX", "0"],
            &["PX", "-1"],
            &["PX", "x"],
            &["EX", "9223372036854775807"],
            &["IFEQ"],
            &["EXPIRE", "1"],
            &["what"],
        ] {
            assert!(set(wrong).is_err(), "{wrong:?}");
        }
    }
}
