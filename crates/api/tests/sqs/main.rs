//! The SQS surface on a real listener with a real mailbox, asked in JSON: every action, every parameter, every refusal.

#[path = "../common/served.rs"]
mod served;

mod access;
mod attributes;
mod batches;
mod dead_letters;
mod fifo;
mod harness;
mod messages;
mod native;
mod queues;
mod receipts;
mod requests;
mod tags;
