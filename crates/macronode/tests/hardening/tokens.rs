//! A token costs no more than its size, and secrets belong to one node.
