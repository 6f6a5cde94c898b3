//! OAP/1 from outside: the vectors of the document, and what holds for any frames and any noise.

mod compression;
mod decoding;
mod document;
mod naive;
mod reference;
mod streaming;
mod vectors;
