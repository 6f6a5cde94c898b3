//! Readings of whole files: every format, packing, split and number of threads gives what a plain map gives; what is
//! wrong is refused with its place.

mod bad;
mod damage;
mod rows;
mod same;
