//! What callers without a credential, slow peers and web pages can take from others: nothing.
