//! Four kinds of abusers at once beside one honest client.
