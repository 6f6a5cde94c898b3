//! A wall clock that jumps ahead holds expiry back instead of dropping messages.
