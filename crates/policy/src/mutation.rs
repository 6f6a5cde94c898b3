//! Wrong branches on purpose: each must be caught by the invariant it names.

/// One deliberate mistake in `Supervisor::step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// Restarts go on during a drain (I1).
    RestartWhileDraining,
    /// A dependent is published ready whatever its providers do (I2).
    DependentReadyFirst,
    /// The tasks of the flush phase are never told to stop (I3).
    LostShutdown,
    /// Within a phase, providers are stopped before their dependents (I3).
    ProvidersStopFirst,
    /// The lower bound of the delay is capped like the upper one, so that all delays become the cap (I4).
    DelayCollapsesAtCap,
    /// A crash loop is never over (I5).
    DegradedNeverClears,
    /// After an abort, the end is never announced (I6).
    ForgetsToFinish,
    /// A frozen task is started again before it is gone (I7).
    StartsBeforeExit,
}

#[cfg_attr(not(feature = "mutation"), allow(dead_code))]
impl Mutation {
    /// All mutations.
    pub const ALL: [Mutation; 8] = [
        Mutation::RestartWhileDraining,
        Mutation::DependentReadyFirst,
        Mutation::LostShutdown,
        Mutation::ProvidersStopFirst,
        Mutation::DelayCollapsesAtCap,
        Mutation::DegradedNeverClears,
        Mutation::ForgetsToFinish,
        Mutation::StartsBeforeExit,
    ];

    /// The invariant that must catch it.
    pub const fn caught_by(self) -> &'static str {
        match self {
            Mutation::RestartWhileDraining => "I1",
            Mutation::DependentReadyFirst => "I2",
            Mutation::LostShutdown | Mutation::ProvidersStopFirst => "I3",
            Mutation::DelayCollapsesAtCap => "I4",
            Mutation::DegradedNeverClears => "I5",
            Mutation::ForgetsToFinish => "I6",
            Mutation::StartsBeforeExit => "I7",
        }
    }
}
