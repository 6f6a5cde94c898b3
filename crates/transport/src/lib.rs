//! Sessions over TLS: who the other side is, what it may cost, one reader and one writer for each.
