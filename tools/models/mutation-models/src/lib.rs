//! Mistakes planted in the policy, each of which the simulator or the model of the supervisor must find.

#[cfg(test)]
mod tests;
