//! Gossip without I/O: lanes, trees, repair, credits and fairness. Events in, actions out; clock and chance are passed in.
