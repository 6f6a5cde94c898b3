//! Decisions of a lookup without I/O: hedging, breakers, ranking, distance, sweeps.
