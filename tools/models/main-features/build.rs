//! Nothing to do: there must be a build script for cargo to read the dependencies of build scripts.

fn main() {}
