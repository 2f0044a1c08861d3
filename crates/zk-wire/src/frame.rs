//! Frames: a length of four bytes, followed by the body. The module does not interpret the body.

use bytes::{Buf, Bytes, BytesMut};

use crate::Writer;

/// ZooKeeper's default maximum of a body (`jute.maxbuffer`), in bytes.
pub const DEFAULT_MAX_LENGTH: usize = 0xf_ffff;

/// Size of a frame's length field in bytes.
const LENGTH_BYTES: usize = 4;

/// Invalid length of a frame. The stream cannot be decoded any further, so the connection has to be closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// The length is negative.
    #[error("invalid frame length {0}")]
    Negative(i32),
    /// The length exceeds the maximum.
    #[error("frame length {length} exceeds the maximum of {max}")]
    TooLong {
        /// Length of the frame.
        length: usize,
        /// Maximum length.
        max: usize,
    },
}

/// Removes the first frame from the received bytes and returns its body; `None` if it is incomplete. No
/// memory is reserved for the rest of a frame.
///
/// # Errors
///
/// If the length of the body is negative or exceeds `max`, as soon as the length is received.
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
    // Often the buffer contains exactly this frame, in an allocation made for it. Then the allocation becomes
    // the body, without a reference count for a shared one.
    let mut body = match from.len() == LENGTH_BYTES + length && from.capacity() == from.len() {
        true => std::mem::take(from),
        false => from.split_to(LENGTH_BYTES + length),
    };
    body.advance(LENGTH_BYTES);
    Ok(Some(body.freeze()))
}

/// Returns the length of the first frame's body, if it is received already. [`take`] decides whether it is
/// valid.
pub fn announced(from: &[u8]) -> Option<usize> {
    let length = i32::from_be_bytes(*from.first_chunk::<LENGTH_BYTES>()?);
    usize::try_from(length).ok()
}

/// Appends a frame whose body is written by `body`.
///
/// # Panics
///
/// If the body has 2 GiB or more.
pub fn write(to: &mut BytesMut, body: impl FnOnce(&mut Writer<'_>)) {
    let begin = to.len();
    let mut writer = Writer::new(to);
    // Placeholder until the length is known.
    writer.int(0);
    body(&mut writer);
    let body_begin = begin + LENGTH_BYTES;
    let length = i32::try_from(to.len() - body_begin).expect("a frame is far smaller than 2 GiB");
    to[begin..body_begin].copy_from_slice(&length.to_be_bytes());
}
