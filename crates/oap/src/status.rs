//! What became of a request: the numbers of HTTP, so that a reader knows them already.

/// The `code` of a response, and of a GOAWAY.
pub type Status = u16;

/// Done.
pub const OK: Status = 200;
/// Taken, and done later.
pub const ACCEPTED: Status = 202;
/// The frame or its payload is not understood. On a frame that breaks the protocol the connection is closed.
pub const BAD_REQUEST: Status = 400;
/// A valid capability is needed.
pub const UNAUTHENTICATED: Status = 401;
/// The capability does not cover this.
pub const FORBIDDEN: Status = 403;
/// There is nothing of that name, or no application of that number.
pub const NOT_FOUND: Status = 404;
/// A peer took too long over a frame or a handshake.
pub const TIMEOUT: Status = 408;
/// The request contradicts an earlier one.
pub const CONFLICT: Status = 409;
/// The frame, or what it would inflate to, is larger than agreed.
pub const TOO_LARGE: Status = 413;
/// The content does not match its hash.
pub const UNPROCESSABLE: Status = 422;
/// Too much at once; ask again later.
pub const BUSY: Status = 429;
/// The node failed.
pub const INTERNAL: Status = 500;
/// The service does not serve now, or is closing down.
pub const UNAVAILABLE: Status = 503;
/// The deadline of the request passed.
pub const DEADLINE: Status = 504;
/// No version in common.
pub const VERSION_UNKNOWN: Status = 505;
