//! Nothing: what this package depends on is used by others, with the features that the main workspace has it with.
