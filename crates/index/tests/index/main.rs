//! The index in a running kernel under paused time, over a network that does as it is told.

mod flood;
mod hedging;
mod life;
mod outcomes;
mod possession;
mod pressure;
mod publishing;
mod renewal;
mod room;
mod strangers;
mod watching;
mod windows;
mod world;
