//! Tests of what is known of other nodes.
