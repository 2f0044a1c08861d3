//! Errors of decoding. The server decides how to answer them.

/// Reason why bytes are not a record of the expected type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// No request that clients may send has this code. (ZooKeeper also accepts deleteContainer and
    /// createSession from clients, which it should not.) ZooKeeper answers
    /// [`ErrorCode::UNIMPLEMENTED`](crate::ErrorCode::UNIMPLEMENTED) and closes the connection.
    #[error("unknown operation {0}")]
    UnknownOperation(i32),
    /// The record ends too early, or has a value that its type does not allow. ZooKeeper answers
    /// [`ErrorCode::MARSHALLING_ERROR`](crate::ErrorCode::MARSHALLING_ERROR) and continues the connection,
    /// but closes it without a reply if the request is auth or sasl.
    #[error("malformed {0}")]
    Malformed(&'static str),
}
