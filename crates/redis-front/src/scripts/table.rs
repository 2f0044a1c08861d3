//! Table of the known scripts. `tools/redis-scripts` computes the SHA-1s of [`script`]s from the libraries' packages. Those of
//! [`source_script`]s are of libraries whose packages it cannot install; they were computed from their repositories.

use crate::reply::Reply;

/// Form of the answer of a script. Lua makes 1 of true, and null of false.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// 1 or 0.
    Flag,
    /// The number of keys, or 0.
    Count,
    /// 1 or null.
    OneOrNull,
    /// `OK` or null.
    OkOrNull,
}

impl Answer {
    /// Returns the answer about so many keys.
    pub fn of(self, is_done: bool, keys: usize) -> Reply {
        match (self, is_done) {
            (Self::Flag, _) => Reply::flag(is_done),
            (Self::Count, true) => Reply::count(keys),
            (Self::Count, false) => Reply::Integer(0),
            (Self::OneOrNull, true) => Reply::Integer(1),
            (Self::OkOrNull, true) => Reply::OK,
            (Self::OneOrNull | Self::OkOrNull, false) => Reply::Null,
        }
    }
}

/// Positions of what a script of Redisson that ends a hold is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leave {
    /// Argument with the holder.
    pub holder: usize,
    /// Argument with the time to live (ms) of the remaining holds.
    pub ms: usize,
    /// Key whose name differs for each call; a repetition has the same.
    pub id: Option<usize>,
}

/// Effect of a script. `V` is the first argument, the value that the caller's lock has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// Deletes the key if its value is `V`.
    DeleteIfEqual(Answer),
    /// Deletes the key if its value is `V`: 1. Otherwise one number if there is no such key, and another if the value differs.
    DeleteOrReason { missing: i64, differs: i64 },
    /// Deletes the key, whatever its value is.
    Delete(Answer),
    /// Gives the key a time to live (second argument, ms) if its value is `V`.
    ExpireIfEqual(Answer),
    /// The same with a time in seconds.
    ExpireSecondsIfEqual(Answer),
    /// As `ExpireIfEqual`; sets the key to `V` if it does not exist.
    ExpireOrAcquire(Answer),
    /// As `ExpireIfEqual`; sets the key to `V` if it does not exist and the third argument is `yes`. `OK` or null.
    ExpireOrAcquireIf,
    /// As `ExpireIfEqual`, but only if the key expires at all; adds to the remaining time unless the third argument is `1`.
    Extend,
    /// The value, and the remaining time in ms.
    ValueAndTtl,
    /// The remaining time in ms if the value is `V`, else -3.
    TtlIfEqual,
    /// Sets all keys to `V` with a time to live (second argument, ms) if none of them exists: the number of keys, or 0.
    AcquireAll,
    /// Sets all keys to `V` with a time to live (third argument, ms) if none of them exists, or if each begins as `V` does: the second argument
    /// is the length of the beginning. `OK` or null.
    ObtainAll,
    /// Gives all keys a time to live (second argument, ms) if all have the value `V`.
    ExtendAll(Answer),
    /// Deletes those keys whose value is `V`: their number.
    ReleaseAll,
    /// Deletes all keys if all have the value `V`: `OK` or null.
    ReleaseAllOrNone,
    /// The shortest remaining time in ms if all keys have the value `V`, else null.
    TtlOfAll,
    /// python-redis-lock: deletes the first key if its value is `V`, and wakes waiters at the second key. 0, or 1 if the value differs.
    Unlock,
    /// python-redis-lock: gives the first key a time to live (second argument, s) if its value is `V`. 0; 1 if the value differs; 2 if it
    /// never expires.
    ExtendSeconds,
    /// python-redis-lock: deletes all keys that begin with `lock:`. Their number.
    ResetAll,
    /// Redisson: acquires the lock for a holder (second argument), or adds a hold, with a time to live (first argument, ms): null. If another
    /// holder has it: its remaining time.
    Enter,
    /// The same; -1 and the fencing token, or the remaining time and -1.
    EnterFenced,
    /// Redisson: ends a hold. 1 if it was the last one, 0 if not, and null if the holder does not hold the lock.
    Leave(Leave),
    /// Redisson: gives the lock a time to live (first argument, ms) if the holder (second argument) holds it: 1 or 0.
    Renew,
    /// The same for several locks, each with its holder: a list of 1 and 0.
    RenewAll,
}

/// A known script.
struct Script {
    sha1: &'static str,
    operation: Operation,
}

/// Script of a library whose package brings it.
const fn script(sha1: &'static str, operation: Operation) -> Script {
    Script { sha1, operation }
}

/// Script of a library that is known by its repository only.
const fn source_script(sha1: &'static str, operation: Operation) -> Script {
    Script { sha1, operation }
}

use Answer::{Count, Flag, OkOrNull, OneOrNull};

/// Known scripts, by library.
#[rustfmt::skip]
const SCRIPTS: [Script; 64] = [
    // redis-py 3.5 to 8.1, `Lock`, synchronous and asyncio: release, extend, reacquire. Celery's redbeat uses the first one, too.
    script("c3f8721cbb97f72bc19e972846bd7aaf91901658", Operation::DeleteIfEqual(Flag)),
    script("a4e8783852e6b949f9ef3a97212805108459a890", Operation::Extend),
    script("1cac51482acf5858da00f6d685d68f886cd6b6b2", Operation::ExpireIfEqual(Flag)),
    // node-redlock 5: acquire, extend, release.
    script("96da70f7716f27d278a5218544df37fd8b0a5e4c", Operation::AcquireAll),
    script("aed6f382e410db8ba7926d4e5e9aab410bf2a78a", Operation::ExtendAll(Count)),
    script("e4612211c9f8f51c257e26e056b0a654b3187242", Operation::ReleaseAll),
    // node-redlock 4: the same.
    script("e5a322e2634ef59a516e8ea150cb085afafee684", Operation::AcquireAll),
    script("ce46f80993d5dac20dd066eb301a4e37994bdbed", Operation::ExtendAll(Count)),
    script("0f0f23b9048b36752b5be114f357ba083449f908", Operation::ReleaseAll),
    // redis-semaphore 5, mutex: release, refresh.
    script("7157921a7cc7cfba979acf6d63f073151df17d12", Operation::DeleteIfEqual(Flag)),
    script("594683e49a64ebaf975caf5f8079a1d097c438f1", Operation::ExpireIfEqual(Flag)),
    // python-redis-lock 3.7 and 4: unlock, extend, reset, reset all.
    script("90da91872223f85eb1376a17e3c4df21ace8c54b", Operation::Unlock),
    script("fed16109024d968d9496e4140fe1355bac05ebff", Operation::ExtendSeconds),
    script("afbc8014508f92e446b56567e8ba600e811c1bd5", Operation::Delete(Flag)),
    script("b121d3548d693116c3851b63befe947e49f28c7c", Operation::ResetAll),
    // redlock-rb: lock of 0.2 to 1.2.1 and from 1.2.2 on, unlock to 0.0.3 and of 1.2.2 on, unlock of 0.0.4 to 1.2.1, remaining time of 1.2.1
    // and from 1.2.2 on.
    source_script("a90bf4be8a6e440e3cc24540eb2f9ff1e16fbcc3", Operation::ExpireOrAcquireIf),
    source_script("ceb2b2062e40c51a2b3963fd078bc71f11bdc65c", Operation::ExpireOrAcquireIf),
    source_script("8e4905cee18e7c3188d10f2b8b170e403baed34f", Operation::DeleteIfEqual(Flag)),
    source_script("963db4d9f0ccfdb859098be0b29f8b41dc02ed97", Operation::DeleteIfEqual(Flag)),
    source_script("cd1ae9bb543136ebc0a80a277cd59a7cec83b296", Operation::ValueAndTtl),
    source_script("78d2ca48a6dc9ef6892059792a3a0c5237733d64", Operation::ValueAndTtl),
    // redsync: release to 4.11, extend of 1.2 to 3 and from 4.0 on, release and extend with SetNX from 4.12 on.
    source_script("00583931c4e4d483f6233879c133c71ed5393f9d", Operation::DeleteIfEqual(Flag)),
    source_script("53692746b44cae854b8dfa32b177218bbe40baee", Operation::ExpireIfEqual(Flag)),
    source_script("d75bb8b5bd13532ddedd17762e772346e39b321e", Operation::ExpireIfEqual(Flag)),
    source_script("e950836ed1e694540c503ef9972b8de518044d3b", Operation::DeleteOrReason { missing: -1, differs: 0 }),
    source_script("b6b55c439e02c6f52ffb8be7ec8c0d0ac816ea79", Operation::ExpireOrAcquire(Flag)),
    // bsm/redislock 0.3 to 0.9.4: refresh, release, remaining time; obtain of 0.9.4.
    source_script("a7aba3bc5d6e99b3003da8b9d80a63b9f4092ecf", Operation::ExpireIfEqual(Flag)),
    source_script("cf0e94b2e9ffc7e04395cf88f7583fc309985910", Operation::DeleteIfEqual(Flag)),
    source_script("6484da7d58920897fdc22b7f9afd1a3d47524ea8", Operation::TtlIfEqual),
    source_script("80a1b5f2cfccec3b7119ba7721d2127682b691a7", Operation::ObtainAll),
    // bsm/redislock from 0.10 on: obtain, release, refresh, remaining time.
    source_script("eb0c00d98f6f33b4262419a509002884540f30be", Operation::ObtainAll),
    source_script("9470c810040e272ee6c579d8d4331aaf6332a7b1", Operation::ReleaseAllOrNone),
    source_script("5a22d7e8431313862816d4416b5e46dd70fc340d", Operation::ExtendAll(OkOrNull)),
    source_script("66e1084c2d842a7e8c271925aae90219fac4e129", Operation::TtlOfAll),
    // Spring Integration, `RedisLockRegistry`: obtain of 5.0 to 5.5 and 6.0, of 5.5.13 to 5.5.20, and from 6.1 on; renew from 6.4 on.
    source_script("8426c8df41c64d8177dce3ecbbe9146ef3759cd2", Operation::ExpireOrAcquire(OneOrNull)),
    source_script("6d2bc6d16248df19e144841297222544e3c7800a", Operation::ExpireOrAcquire(OneOrNull)),
    source_script("175897a4e379e99e79a54937be09226f76cdcfe5", Operation::ExpireOrAcquire(OneOrNull)),
    source_script("879e0f7b8d83c3266d4e996627438c05dbda0b89", Operation::ExpireIfEqual(OneOrNull)),
    // The same, unlock: with UNLINK and DEL, without a comparison (5.5.7 to 5.5.20), with a message from 6.0.7 on, and without one. Its
    // messages are sent whatever has ended the lock.
    source_script("c1ae6c899d164de076f40ffe82eba8fb8e27af6c", Operation::Delete(OneOrNull)),
    source_script("20b5c3728736e2367b496c16390f9df56916a76f", Operation::Delete(OneOrNull)),
    source_script("7a71e9443a2a41539fb115a5a27d5a748a871aed", Operation::DeleteIfEqual(OneOrNull)),
    source_script("b2dedc0ab01c17f9f20e3e6ddb62dcb6afbed0bd", Operation::DeleteIfEqual(OneOrNull)),
    source_script("67aebbcba76d9674162e8906de1f669866f48e07", Operation::DeleteIfEqual(OneOrNull)),
    source_script("4d7192f70618a620282e427698f9cde890151e58", Operation::DeleteIfEqual(OneOrNull)),
    source_script("f0f9038aa2b6d6c3436c72d147573ea2a58f0ef2", Operation::DeleteIfEqual(OneOrNull)),
    source_script("356d97191f2b63031781ccc0e8e82f02e1995a90", Operation::DeleteIfEqual(OneOrNull)),
    // ShedLock from 6.7 on: unlock, extend.
    source_script("194f3902b2dd08557818d09fc2e7682d91480e53", Operation::DeleteIfEqual(Flag)),
    source_script("67256370c2d1c87e2250898075542b1a7fa5b917", Operation::ExpireIfEqual(Flag)),
    // Dapr from 1.12 on: unlock.
    source_script("08741c111900b6318ee3f60cb3c2fa1f6c74d859", Operation::DeleteOrReason { missing: -1, differs: -2 }),
    // Redisson, `RLock` and `RSpinLock`: try of 3.0 to 3.12.2, of 3.12.3 and later, and from 3.19 on.
    source_script("9401052d872adfd0179ef8c8e8c028512707629a", Operation::Enter),
    source_script("dad0f8d619e548e04f21fb48d50be5034df3adae", Operation::Enter),
    source_script("149c5a8bf18676fd99e9e6e24923bd64d9b62f94", Operation::Enter),
    // Redisson, `RFencedLock` from 3.19 on: try with and without the token.
    source_script("49babb5a1e6a0c5f188c2ae62b93b51cdfd63e45", Operation::EnterFenced),
    source_script("46b5551ba403d6152a7a6eca122e08728d6c8c66", Operation::Enter),
    // Redisson, unlock: 3.10.6 to 3.21, 3.22 and 3.23, from 3.24 on; of `RSpinLock` 3.15 to 3.23 and from 3.24 on.
    source_script("3ffe249c16dee540ac8ab32e39bd408626b9aff7", Operation::Leave(Leave { holder: 2, ms: 1, id: None })),
    source_script("778cea8aada230ae060b432fc333adaec85f2f4c", Operation::Leave(Leave { holder: 2, ms: 1, id: None })),
    source_script("6866459238a13a701d42f4971f12d9f3a50e2442", Operation::Leave(Leave { holder: 2, ms: 1, id: Some(2) })),
    source_script("5b9e58d1bcb8498e14aa1d5b49a1ca5b90748946", Operation::Leave(Leave { holder: 1, ms: 0, id: None })),
    source_script("73ac2729af29ea9a975f95e8097f7ee9a74cce3d", Operation::Leave(Leave { holder: 1, ms: 0, id: Some(1) })),
    // Redisson, forced unlock to 3.21 and from 3.22 on, and of `RSpinLock`; renewal of one lock to 3.43, and of several from 3.44 on.
    source_script("7e9c80b3d786b95d5d4aaf8fd73adb9775fa6fb1", Operation::Delete(Flag)),
    source_script("605e338249a7a1d40df83b04f7658354f883b41b", Operation::Delete(Flag)),
    source_script("51b433c3cc9a6ca991b3aefec63d23490c246318", Operation::Delete(Flag)),
    source_script("8e19a1ddbdee9138df9f32a480c57addab4353d1", Operation::Renew),
    source_script("6a3d31570dc6f4b0bd32bcdc8e75667747c6f635", Operation::RenewAll),
];

/// Returns what a script does; `None` if it is not known.
pub(super) fn find(sha1: &[u8]) -> Option<Operation> {
    let known = SCRIPTS
        .iter()
        .find(|known| sha1.eq_ignore_ascii_case(known.sha1.as_bytes()))?;
    Some(known.operation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha1_is_found_in_either_case_and_listed_once() {
        let own = SCRIPTS[0].sha1;
        assert!(find(own.as_bytes()).is_some() && find(own.to_uppercase().as_bytes()).is_some());
        assert!(find(b"").is_none() && find(&own.as_bytes()[1..]).is_none());
        for known in &SCRIPTS {
            let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            assert!(
                known.sha1.len() == 40 && known.sha1.bytes().all(is_digit),
                "{}",
                known.sha1
            );
            let same = SCRIPTS.iter().filter(|other| other.sha1 == known.sha1);
            assert_eq!(same.count(), 1, "{}", known.sha1);
        }
    }
}
