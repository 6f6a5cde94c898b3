//! The plane on a real listener, under a real kernel, asked by real sockets.

mod bodies;
mod connections;
mod drain;
mod harness;
mod layers;
mod secure;
