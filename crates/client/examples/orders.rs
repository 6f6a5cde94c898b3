//! Sends an order to a node on this machine, receives it, and says that it is done.

use std::time::Duration;

use macronode_client::{Mailbox, Options, Receive};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let token = std::fs::read_to_string("macronode-data/operator.token")?;
    let mailbox = Mailbox::connect(Options::new("http://127.0.0.1:8080", token)).await?;
    let sent = mailbox.send("orders", "a book").await?;
    println!("{} is {}", sent.msg_id, sent.durability);
    for message in mailbox.receive("orders", Receive::up_to(10).waiting(Duration::from_secs(5))).await? {
        println!("{} says {:?}", message.msg_id, message.payload);
        mailbox.ack(&message.receipt).await?;
    }
    Ok(())
}
