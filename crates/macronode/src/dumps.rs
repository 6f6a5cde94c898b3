//! Keeps the memory of a forgetful node out of core files, and from other processes of its user.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

use crate::errors::{Code, Failure};

/// From here on a crash leaves no core file and no other process of the same user may look into this one. A node that
/// cannot promise that does not start: it was told to leave nothing behind.
pub fn forbid() -> Result<(), Failure> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none)
        // A limit alone is not enough: where cores go to a program instead of a file, only this keeps them from it.
        .and_then(|()| set_dumpable_behavior(DumpableBehavior::NotDumpable))
        .map_err(|error| {
            Failure::new(Code::CannotStart, format!("amnesia: core files could not be ruled out: {error}"))
        })
}
