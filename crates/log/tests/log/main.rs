//! The log from outside: crashes, damage, failing disks, limits and threads.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod crash;
mod damage;
mod failing;
mod files;
mod limits;
mod lone;
mod model;
mod threads;
mod workload;
