//! Deliberate mistakes in the policy, which exist only with the feature `mutation`.

use ron_policy::Supervisor;

#[cfg(feature = "mutation")]
pub use ron_policy::Mutation;

/// A mistake of which there is none: this build has the policy as the node has it.
#[cfg(not(feature = "mutation"))]
#[derive(Clone, Copy, Debug)]
pub enum Mutation {}

/// The supervisor with a mistake in it, if there is one.
#[cfg(feature = "mutation")]
pub(crate) fn plant(mutation: Option<Mutation>, supervisor: Supervisor) -> Supervisor {
    supervisor.with_mutation(mutation)
}

#[cfg(not(feature = "mutation"))]
pub(crate) fn plant(_none: Option<Mutation>, supervisor: Supervisor) -> Supervisor {
    supervisor
}
