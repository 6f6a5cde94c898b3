//! Dead letters and redrives touch only what belongs to them and what the caller may touch.
