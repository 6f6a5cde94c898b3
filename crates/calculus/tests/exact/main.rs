//! What an allocation promises, tried on made-up epochs: against rules, against a naive division, against Python.

mod case;
mod explained;
mod golden;
mod hostile;
mod naive;
mod oracle;
mod properties;
mod random;
mod trees;
