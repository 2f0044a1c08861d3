//! Why bytes are not what they should be. What a server answers then is its own affair.

/// Bytes that are no record of the type that was expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// There is no request with this number that clients may send. (To deleteContainer and createSession ZooKeeper listens, and should not.)
    /// ZooKeeper answers
    /// [`ErrorCode::UNIMPLEMENTED`](crate::ErrorCode::UNIMPLEMENTED) and closes the connection.
    #[error("there is no operation {0}")]
    UnknownOperation(i32),
    /// The record ends too early, or has what its type cannot have. ZooKeeper answers
    /// [`ErrorCode::MARSHALLING_ERROR`](crate::ErrorCode::MARSHALLING_ERROR) and keeps the connection, but closes it
    /// without a word if the request is auth or sasl.
    #[error("malformed {0}")]
    Malformed(&'static str),
}
