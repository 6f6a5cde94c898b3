//! A full or damaged log recovers by consuming.
