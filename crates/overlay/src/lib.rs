//! The overlay: sessions with peers, lanes of live messages, and who may join.
