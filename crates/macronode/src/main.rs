//! The binary: read the command line, do what it says, exit with a code that means something.

use std::process::ExitCode;

fn main() -> ExitCode {
    macronode::main(std::env::args_os()).into()
}
