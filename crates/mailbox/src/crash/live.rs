//! The running mailbox, where only real threads meet: many make the same topic at once.

use std::time::Duration;

use ron_auth::Subject;
use ron_kernel::{Builder, Deadline, KernelOptions, Metrics, Snapshot};

use crate::{LiveOptions, Mailbox, MailboxOptions, Outgoing};

const SENDERS: usize = 8;
const TOPICS: usize = 300;

fn anybody() -> Subject {
    Subject::operator("test")
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

async fn send(mailbox: &Mailbox, topic: usize) {
    let name = format!("topic{topic}").parse().expect("a name");
    let message = Outgoing { payload: "x".into(), ..Outgoing::default() };
    mailbox.send(&anybody(), &name, message, soon()).await.expect("sent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "a test has no kernel to run its kernel on")]
async fn the_first_senders_of_a_topic_all_meet_in_one() {
    let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
    let live = Snapshot::new(LiveOptions::default());
    let mailbox = crate::install(&mut builder, MailboxOptions::default(), live);
    let kernel = builder.build().expect("a valid plan");
    let handle = kernel.handle();
    let running = tokio::spawn(kernel.run());
    let ready = async { handle.watch_status().wait_for(|status| status.is_ready()).await.map(drop) };
    soon().run("test", ready).await.expect("ready in time").expect("the kernel lives");
    for topic in 0..TOPICS {
        let senders: Vec<_> = (0..SENDERS)
            .map(|_| {
                let mailbox = mailbox.clone();
                tokio::spawn(async move { send(&mailbox, topic).await })
            })
            .collect();
        for sender in senders {
            sender.await.expect("it ends");
        }
        let name = format!("topic{topic}").parse().expect("a name");
        let stats = mailbox.stats(&name, soon()).await.expect("it exists");
        assert_eq!(stats.total.ready, SENDERS as u64, "all that was acknowledged is in {name}");
    }
    handle.drain().await.expect("the supervisor listens");
    assert_eq!(running.await.expect("it ends").code, 0);
}
