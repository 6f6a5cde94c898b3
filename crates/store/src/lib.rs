//! Names of content, signed records about it, and the store that keeps them.
