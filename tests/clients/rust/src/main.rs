//! The Rust SDK does a real job on the endpoint of the environment: checks in order, one line each.

mod fifo;
mod refusals;
mod standard;
mod words;

use std::future::Future;
use std::process::ExitCode;
use std::time::Instant;

use words::Words;

/// How the checks went so far.
struct Report {
    failed: bool,
}

impl Report {
    async fn check(&mut self, name: &str, action: impl Future<Output = anyhow::Result<()>>) {
        let started = Instant::now();
        match action.await {
            Ok(()) => println!("pass {name} {:.1}s", started.elapsed().as_secs_f64()),
            Err(error) => {
                self.failed = true;
                eprintln!("{name}: {error:#}");
                println!("fail {name}");
            }
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let words = Words::from_environment().await;
    let mut report = Report { failed: false };
    report.check("queues_and_tags", standard::queues_and_tags(&words)).await;
    report.check("a_message_arrives_as_it_was_sent", standard::a_message_arrives_as_it_was_sent(&words)).await;
    report.check("batches", standard::batches(&words)).await;
    report.check("a_long_poll_waits_and_is_woken", standard::a_long_poll_waits_and_is_woken(&words)).await;
    report.check("visibility", standard::visibility(&words)).await;
    report.check("dead_letters_and_their_move_home", standard::dead_letters_and_their_move_home(&words)).await;
    report.check("fifo_order_groups_and_duplicates", fifo::order_groups_and_duplicates(&words)).await;
    report.check("errors_are_told_apart_by_kind", refusals::errors_are_told_apart_by_kind(&words)).await;
    ExitCode::from(u8::from(report.failed))
}
