//! Mutations of inputs that keep their lengths and checksums valid. The fuzzer's own mutation, which changes
//! arbitrary bytes, would hardly ever produce valid ones. It is applied within the pieces of an input, and
//! sometimes to the whole.

use bytes::Bytes;
use lock_node::fuzz::{CommandBatch, Envelope, decode, encode};

use crate::disk::files;
use crate::http::script;
use crate::snapshot::Layout;
use crate::{http, peer, seeds, wire};

/// The fuzzer's own mutation of bytes without a known structure. The second argument is the number of bytes
/// in use at the start of the buffer; the rest of the buffer is free. Returns the new number of bytes in use.
pub type ByteMutator<'a> = dyn FnMut(&mut [u8], usize) -> usize + 'a;

/// One in this many mutations is an arbitrary one of the whole input, so that wrong lengths occur, too.
const WHOLE_INPUT_RATIO: u64 = 8;

/// Mutates an input of [`crate::command::run`] in place, within the buffer `data`.
pub fn command(data: &mut [u8], size: usize, seed: u32, mutate_bytes: &mut ByteMutator<'_>) -> usize {
    let mut rng = Rng(seed.into());
    let decoded = CommandBatch::decode(Bytes::copy_from_slice(&data[..size]));
    let (Ok(mut batch), false) = (decoded, rng.one_in(WHOLE_INPUT_RATIO)) else {
        return mutate_bytes(data, size);
    };
    match rng.below(6) {
        0 => batch.time_ms = batch.time_ms.wrapping_add(rng.below(2_000)),
        1 => {
            let requests = seeds::requests();
            let request = requests[rng.index(requests.len())].clone();
            let at = rng.index(batch.envelopes.len() + 1);
            batch.envelopes.insert(at, seeds::envelope(request));
        }
        2 => copy_field(&mut batch.envelopes, &mut rng),
        _ => change_pieces(&mut batch.envelopes, data.len(), &mut rng, mutate_bytes),
    }
    replace(data, size, &batch.encode(), mutate_bytes)
}

/// Mutates an input of [`crate::snapshot::run`] in place, within the buffer `data`.
pub fn snapshot(data: &mut [u8], size: usize, seed: u32, mutate_bytes: &mut ByteMutator<'_>) -> usize {
    let mut rng = Rng(seed.into());
    let (Some(mut layout), false) = (Layout::of(&data[..size]), rng.one_in(WHOLE_INPUT_RATIO)) else {
        return mutate_bytes(data, size);
    };
    if rng.one_in(WHOLE_INPUT_RATIO) {
        layout.header = changed(&layout.header, data.len(), mutate_bytes);
    } else {
        change_pieces(&mut layout.parts, data.len(), &mut rng, mutate_bytes);
    }
    replace(data, size, &layout.file(), mutate_bytes)
}

/// Mutates an input of [`crate::wire::run`] in place, within the buffer `data`.
pub fn wire(data: &mut [u8], size: usize, seed: u32, mutate_bytes: &mut ByteMutator<'_>) -> usize {
    let mut rng = Rng(seed.into());
    let (Some(mut frames), false) = (wire::frames_of(&data[..size]), rng.one_in(WHOLE_INPUT_RATIO)) else {
        return mutate_bytes(data, size);
    };
    if rng.one_in(WHOLE_INPUT_RATIO) {
        let others = wire::seeds::frames();
        let other = wire::frames_of(&others[rng.index(others.len())]).expect("seeds consist of whole frames");
        frames.splice(frames.len().min(1).., other);
    } else {
        change_pieces(&mut frames, data.len(), &mut rng, mutate_bytes);
    }
    replace(data, size, &wire::stream_of(&frames), mutate_bytes)
}

/// Mutates an input of [`crate::peer::run`] in place, within the buffer `data`.
pub fn peer(data: &mut [u8], size: usize, seed: u32, mutate_bytes: &mut ByteMutator<'_>) -> usize {
    let mut rng = Rng(seed.into());
    let (Some(mut frames), false) = (peer::frames_of(&data[..size]), rng.one_in(WHOLE_INPUT_RATIO)) else {
        return mutate_bytes(data, size);
    };
    change_pieces(&mut frames, data.len(), &mut rng, mutate_bytes);
    replace(data, size, &peer::stream_of(&frames), mutate_bytes)
}

/// Mutates an input of [`crate::disk::files::run`] in place, within the buffer `data`.
pub fn log(data: &mut [u8], size: usize, seed: u32, mutate_bytes: &mut ByteMutator<'_>) -> usize {
    let mut rng = Rng(seed.into());
    let (Some(mut files), false) = (files::files_of(&data[..size]), rng.one_in(WHOLE_INPUT_RATIO)) else {
        return mutate_bytes(data, size);
    };
    let (at, other) = (rng.index(files.len()), rng.index(files.len()));
    match rng.below(10) {
        0 => drop(files.remove(at)),
        1 => files.push((rng.below(4) as u8, files[at].1.clone())),
        2 => files[at].0 = files[other].0,
        _ => files[at].1 = changed(&files[at].1, data.len(), mutate_bytes),
    }
    replace(data, size, &files::input_of(&files), mutate_bytes)
}

/// Mutates an input of [`crate::http::run`] in place, within the buffer `data`.
pub fn http(data: &mut [u8], size: usize, seed: u32, mutate_bytes: &mut ByteMutator<'_>) -> usize {
    let mut rng = Rng(seed.into());
    if rng.one_in(WHOLE_INPUT_RATIO) {
        return mutate_bytes(data, size);
    }
    let separated = |bytes: &[u8]| -> Vec<Vec<u8>> {
        let requests = bytes.split(|byte| *byte == script::SEPARATOR);
        requests.map(<[u8]>::to_vec).collect()
    };
    let mut requests = separated(&data[..size]);
    if rng.one_in(4) {
        let others = http::seeds::scripts();
        let other = separated(&others[rng.index(others.len())]);
        let at = rng.index(requests.len() + 1);
        requests.insert(at, other[rng.index(other.len())].clone());
    } else {
        change_pieces(&mut requests, data.len(), &mut rng, mutate_bytes);
    }
    replace(data, size, &requests.join(&script::SEPARATOR), mutate_bytes)
}

/// Copies one field of a request to another request.
fn copy_field(envelopes: &mut [Bytes], rng: &mut Rng) {
    let (to, from) = (rng.index(envelopes.len()), rng.index(envelopes.len()));
    let decoded = |at: usize| envelopes.get(at).and_then(|bytes| decode::<Envelope>(bytes).ok());
    let (Some(mut to_envelope), Some(from)) = (decoded(to), decoded(from)) else {
        return;
    };
    let (request, other) = (&mut to_envelope.request, from.request);
    match rng.below(4) {
        0 => request.session = other.session,
        1 => request.request_id = other.request_id,
        2 => request.caller = other.caller,
        _ => request.command = other.command,
    }
    envelopes[to] = encode(&to_envelope).into();
}

/// Changes one of the pieces, their order, or their number.
fn change_pieces<P>(pieces: &mut Vec<P>, room: usize, rng: &mut Rng, mutate_bytes: &mut ByteMutator<'_>)
where
    P: AsRef<[u8]> + From<Vec<u8>>,
{
    if pieces.is_empty() {
        return;
    }
    let (at, other) = (rng.index(pieces.len()), rng.index(pieces.len()));
    match rng.below(10) {
        0 => drop(pieces.remove(at)),
        1 => pieces.insert(other, pieces[at].as_ref().to_vec().into()),
        2 => pieces.swap(at, other),
        _ => pieces[at] = changed(pieces[at].as_ref(), room, mutate_bytes).into(),
    }
}

fn changed(piece: &[u8], room: usize, mutate_bytes: &mut ByteMutator<'_>) -> Vec<u8> {
    let mut bytes = piece.to_vec();
    bytes.resize(room.max(piece.len()), 0);
    let size = mutate_bytes(&mut bytes, piece.len());
    bytes.truncate(size);
    bytes
}

/// Replaces the input by the changed one. If that exceeds the buffer, applies the fuzzer's own mutation
/// instead.
fn replace(data: &mut [u8], size: usize, new: &[u8], mutate_bytes: &mut ByteMutator<'_>) -> usize {
    match data.get_mut(..new.len()) {
        Some(room) => {
            room.copy_from_slice(new);
            new.len()
        }
        None => mutate_bytes(data, size),
    }
}

/// Pseudorandom numbers from a seed, by SplitMix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }

    fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}
