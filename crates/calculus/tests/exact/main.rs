//! What an allocation promises, tried on made-up epochs: against rules, against a naive division, against Python.

mod case;

mod oracle;

mod random;
