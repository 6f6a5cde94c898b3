//! The binary: read the command line, do what it says, exit with a code that means something.

use std::process::ExitCode;

/// Messages are allocated on one thread and freed on another all the time, which it does best.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    macronode::main(std::env::args_os()).into()
}
