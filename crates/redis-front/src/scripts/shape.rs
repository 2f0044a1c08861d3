//! Compare-and-delete and compare-and-expire, as every tutorial and many programs write them: recognised by their text, whatever its spaces and
//! quotes are. A node remembers their SHA-1s for `EVALSHA`, as Redis does.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::table::{Answer, Operation};

/// Maximum number of remembered texts. A program has a few. When there are more, all are forgotten, as after `SCRIPT FLUSH`.
const MAX_REMEMBERED: usize = 1_024;

/// Maximum number of bytes of a text that is looked at.
const MAX_TEXT_BYTES: usize = 1_024;

/// SHA-1s of recognised texts.
#[derive(Default)]
pub(crate) struct ScriptCache(Mutex<HashMap<String, Operation>>);

impl ScriptCache {
    pub(super) fn find(&self, sha1: &[u8]) -> Option<Operation> {
        let sha1 = std::str::from_utf8(sha1).ok()?.to_ascii_lowercase();
        self.0.lock().get(&sha1).copied()
    }

    /// Remembers a text, if it is recognised. Returns whether it is.
    pub(super) fn remember(&self, sha1: &str, text: &[u8]) -> bool {
        let Some(operation) = recognise(text) else {
            return false;
        };
        let mut cache = self.0.lock();
        if cache.len() >= MAX_REMEMBERED {
            cache.clear();
        }
        cache.insert(sha1.to_owned(), operation);
        true
    }

    pub fn flush(&self) {
        self.0.lock().clear();
    }
}

/// Returns what a script does; `None` if it is not recognised.
fn recognise(text: &[u8]) -> Option<Operation> {
    if text.len() > MAX_TEXT_BYTES {
        return None;
    }
    let plain: String = std::str::from_utf8(text)
        .ok()?
        .chars()
        .filter(|character| !character.is_whitespace() && *character != ';')
        .map(|character| match character {
            '"' => '\'',
            character => character.to_ascii_lowercase(),
        })
        .collect();
    let conditions = [
        "ifredis.call('get',keys[1])==argv[1]then",
        "if(redis.call('get',keys[1])==argv[1])then",
        "ifargv[1]==redis.call('get',keys[1])then",
    ];
    let rest = conditions
        .iter()
        .find_map(|condition| plain.strip_prefix(condition))?;
    let action = |call: &str| {
        let rest = rest.strip_prefix("returnredis.call(")?;
        rest.strip_prefix(call)?.strip_prefix(')')
    };
    if let Some(rest) = action("'del',keys[1]").or_else(|| action("'unlink',keys[1]")) {
        return answer(rest).map(Operation::DeleteIfEqual);
    }
    if let Some(rest) = action("'pexpire',keys[1],argv[2]") {
        return answer(rest).map(Operation::ExpireIfEqual);
    }
    answer(action("'expire',keys[1],argv[2]")?).map(Operation::ExpireSecondsIfEqual)
}

/// Returns the answer of a script whose text ends so.
fn answer(end: &str) -> Option<Answer> {
    match end {
        "elsereturn0end" | "endreturn0" => Some(Answer::Flag),
        "end" | "elsereturnnilend" | "endreturnnil" => Some(Answer::OneOrNull),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_tutorials_are_recognised() {
        let delete = Some(Operation::DeleteIfEqual(Answer::Flag));
        for (text, expected) in [
            (
                "if redis.call(\"get\",KEYS[1]) == ARGV[1] then\n    return redis.call(\"del\",KEYS[1])\nelse\n    return 0\nend\n",
                delete,
            ),
            (
                "if (redis.call('GET', KEYS[1]) == ARGV[1]) then return redis.call('DEL', KEYS[1]); end; return 0;",
                delete,
            ),
            (
                "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end",
                Some(Operation::ExpireIfEqual(Answer::OneOrNull)),
            ),
            // As DistributedLock (.NET) sends it.
            (
                "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0",
                Some(Operation::ExpireIfEqual(Answer::Flag)),
            ),
            (
                "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[2]) else return 0 end",
                None,
            ),
            (
                "if redis.call('get',KEYS[1]) == ARGV[2] then return redis.call('del',KEYS[1]) else return 0 end",
                None,
            ),
            ("return redis.call('del',KEYS[1])", None),
            ("", None),
        ] {
            assert_eq!(recognise(text.as_bytes()), expected, "{text}");
        }
        let long = format!("{}if", " ".repeat(MAX_TEXT_BYTES));
        assert_eq!(recognise(long.as_bytes()), None);
    }

    #[test]
    fn cache_is_bounded() {
        let cache = ScriptCache::default();
        let text = |number: usize| {
            format!(
                "{}if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end",
                " ".repeat(number % 100)
            )
        };
        for number in 0..=MAX_REMEMBERED {
            assert!(cache.remember(&number.to_string(), text(number).as_bytes()));
        }
        assert!(cache.find(b"0").is_none());
        assert!(cache.find(MAX_REMEMBERED.to_string().as_bytes()).is_some());
        assert!(!cache.remember("a", b"return 1"));
    }
}
