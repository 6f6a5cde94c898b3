//! The binary: read the command line, do what it says, exit with a code that means something.

use std::process::ExitCode;

use mimalloc::MiMalloc;
use ron_amnesia::WipingAllocator;

/// Messages are allocated on one thread and freed on another all the time, which mimalloc does best. In amnesia mode
/// what is freed is wiped.
#[global_allocator]
static ALLOCATOR: WipingAllocator<MiMalloc> = WipingAllocator(MiMalloc);

fn main() -> ExitCode {
    let exit = macronode::main(std::env::args_os());
    ron_amnesia::wipe_stack();
    exit.into()
}
