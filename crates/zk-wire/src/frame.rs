//! Frames: a length of four bytes, and so many bytes. What is in them is not looked at.

use bytes::{Buf, Bytes, BytesMut};

use crate::Writer;

/// The longest body that ZooKeeper accepts unless it is told otherwise (`jute.maxbuffer`), in bytes.
pub const DEFAULT_MAX_LENGTH: usize = 0xf_ffff;

/// The bytes of a frame's length.
const LENGTH_BYTES: usize = 4;

/// A length that no frame can have. Nothing that follows can be understood, so the connection has to be closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// It is below 0.
    #[error("a frame announces {0} bytes")]
    Negative(i32),
    /// It is more than was allowed.
    #[error("a frame announces {length} bytes, more than the {max} that are allowed")]
    TooLong {
        /// What was announced.
        length: usize,
        /// What is allowed.
        max: usize,
    },
}

/// Takes the body of the first frame out of what has come; none if more has to come first. `max` is the longest body that
/// is allowed, in bytes; a longer one is refused as soon as its length is there. Nothing is reserved for what is to come.
pub fn take(from: &mut BytesMut, max: usize) -> Result<Option<Bytes>, FrameError> {
    let Some(length) = from.first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let length = i32::from_be_bytes(*length);
    let length = usize::try_from(length).map_err(|_| FrameError::Negative(length))?;
    if length > max {
        return Err(FrameError::TooLong { length, max });
    }
    if from.len() - LENGTH_BYTES < length {
        return Ok(None);
    }
    // What has come is often this frame alone, in room that was made for it: then that becomes the body as it is, without a count of who
    // else has a part of it.
    let mut body = match from.len() == LENGTH_BYTES + length && from.capacity() == from.len() {
        true => std::mem::take(from),
        false => from.split_to(LENGTH_BYTES + length),
    };
    body.advance(LENGTH_BYTES);
    Ok(Some(body.freeze()))
}

/// How long the body of the first frame is going to be, if that is known already. Nothing that [`take`] refuses has a length.
pub fn announced(from: &[u8]) -> Option<usize> {
    let length = i32::from_be_bytes(*from.first_chunk::<LENGTH_BYTES>()?);
    usize::try_from(length).ok()
}

/// Appends a frame whose body is what `body` writes.
///
/// # Panics
///
/// If the body has 2 GiB or more.
pub fn write(to: &mut BytesMut, body: impl FnOnce(&mut Writer<'_>)) {
    let begin = to.len();
    let mut writer = Writer::new(to);
    // Filled in when it is known.
    writer.int(0);
    body(&mut writer);
    let body_begin = begin + LENGTH_BYTES;
    let length = i32::try_from(to.len() - body_begin).expect("a frame is far smaller than 2 GiB");
    to[begin..body_begin].copy_from_slice(&length.to_be_bytes());
}
