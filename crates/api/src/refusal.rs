//! Refused connections: told so cheaply, and closed so that the answer is not lost.

use std::collections::VecDeque;
use std::io::Read as _;
use std::net::Shutdown;
use std::time::Duration;

use bytes::Bytes;
use ron_kernel::clock;
use ron_kernel::connection_limiter::ConnectionRefusal;
use ron_types::Error;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::problem::Problem;

/// Refused connections kept open for a moment, so that closing them does not overtake their answer.
const LINGERING_MAX: usize = 256;
const LINGERING_TIME: Duration = Duration::from_secs(1);

/// Answers connections beyond the limit with a refusal, then closes them.
pub(crate) struct Refusals {
    /// The whole answer to a connection refused by each limit.
    answers: [(ConnectionRefusal, Bytes); 3],
    lingering: VecDeque<(Instant, std::net::TcpStream)>,
}

impl Refusals {
    pub(crate) fn new() -> Self {
        let every = [ConnectionRefusal::Total, ConnectionRefusal::PerIp, ConnectionRefusal::Rate];
        let answers = every.map(|refusal| (refusal, answer(refusal)));
        Refusals { answers, lingering: VecDeque::with_capacity(LINGERING_MAX) }
    }

    /// Tells a plain connection that it is refused. Never waits. Refused connections never hold more than a quarter of
    /// the descriptors that accepted ones may; one of them always can.
    pub(crate) fn refuse(&mut self, stream: TcpStream, refusal: ConnectionRefusal, connections_max: usize) {
        discard_input(&stream);
        if let Some((_, answer)) = self.answers.iter().find(|(of, _)| *of == refusal) {
            let _ = stream.try_write(answer);
        }
        let Ok(stream) = stream.into_std() else { return };
        let _ = stream.shutdown(Shutdown::Write);
        self.lingering.push_back((clock::now() + LINGERING_TIME, stream));
        while self.lingering.len() > LINGERING_MAX.min(connections_max.div_ceil(4))
            && let Some((_, oldest)) = self.lingering.pop_front()
        {
            close(oldest);
        }
    }

    /// Closes those whose moment is over. Called about twice a second.
    pub(crate) fn tidy(&mut self) {
        let now = clock::now();
        while self.lingering.front().is_some_and(|(until, _)| *until <= now) {
            if let Some((_, stream)) = self.lingering.pop_front() {
                close(stream);
            }
        }
    }
}

fn answer(refusal: ConnectionRefusal) -> Bytes {
    let full = match refusal {
        ConnectionRefusal::Total => "the listener (connections.max, or fewer if there are not enough file descriptors)",
        ConnectionRefusal::PerIp => "the share of your address (connections.per_ip_max)",
        ConnectionRefusal::Rate => "the share of your address in this second (connections.accepts_per_ip_per_second)",
    };
    let body = Problem::from(Error::busy(full)).body(None, None);
    let mut answer = format!(
        "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    answer.extend_from_slice(&body);
    Bytes::from(answer)
}

/// Closing a socket with unread input resets it.
fn discard_input(stream: &TcpStream) {
    let mut waste = [0; 4096];
    for _ in 0..4 {
        if !stream.try_read(&mut waste).is_ok_and(|bytes| bytes == waste.len()) {
            return;
        }
    }
}

fn close(mut stream: std::net::TcpStream) {
    let mut waste = [0; 4096];
    for _ in 0..4 {
        if !stream.read(&mut waste).is_ok_and(|bytes| bytes == waste.len()) {
            return;
        }
    }
}
