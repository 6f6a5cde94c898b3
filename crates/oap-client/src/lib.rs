//! A client of OAP/1: one session with a node, to publish, to subscribe and to use its mailbox.
