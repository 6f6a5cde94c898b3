//! Hears a lane and publishes each line of its input to it: a chat between whoever has the lane's name.
//!
//! `OAP_TOKEN=... cargo run -p oap-client --example lane -- NODEID@HOST:PORT LANE`

use std::process::ExitCode;

use oap_client::{Client, Error, Event, Options, Since, Subscription};
use tokio::io::{AsyncBufReadExt as _, BufReader};

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(node), Some(lane)) = (arguments.next().and_then(|node| node.parse().ok()), arguments.next()) else {
        eprintln!("NODEID@HOST:PORT LANE");
        return ExitCode::from(64);
    };
    let options = Options { token: std::env::var("OAP_TOKEN").ok(), ..Options::default() };
    match chat(&node, &lane, options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn chat(node: &oap_client::PeerAddress, lane: &str, options: Options) -> Result<(), Error> {
    let client = Client::connect(node, options).await?;
    eprintln!("connected to {} by {}", node.node_id, client.facts().tls_group);
    let hearing = hear(client.subscribe(lane, Since::now()).await?);
    let publisher = client.publisher(lane).await?;
    let publishing = async {
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let published = publisher.publish_acked(line).await?;
            eprintln!("#{} went to {} peers", published.seq, published.peers.len());
        }
        Ok(())
    };
    tokio::select! {
        ended = hearing => ended,
        ended = publishing => ended,
    }
}

async fn hear(mut subscription: Subscription) -> Result<(), Error> {
    let mut events = Vec::new();
    loop {
        subscription.next_batch(&mut events).await?;
        for event in events.drain(..) {
            match event {
                Event::Message(message) => {
                    println!("{}#{}: {}", message.origin, message.seq, String::from_utf8_lossy(&message.payload));
                }
                other => println!("{other:?}"),
            }
        }
    }
}
