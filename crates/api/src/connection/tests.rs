//! A connection whose peer does not read, in a time that passes at once.

use bytes::Bytes;
use ron_kernel::{Builder, KernelOptions, Snapshot};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;
use crate::operation::Operation;
use crate::route::ApiBuilder;
use crate::surface::Surface;
use crate::write_stall::WriteStallGuard;

const SOCKET_BYTES: usize = 1024;
const ANSWER_BYTES: usize = 256 * 1024;

static WHOLE: Operation = Operation::get("/whole", "tests", "answers at once");
static PIECES: Operation = Operation::get("/pieces", "tests", "answers without an end");

static SURFACE: Surface = Surface { service: "tests", about: "", tags: &["tests"], operations: &[&WHOLE, &PIECES] };

/// A long answer that is ready at once.
async fn whole() -> Vec<u8> {
    vec![b'x'; ANSWER_BYTES]
}

/// An answer without an end.
async fn pieces() -> Body {
    let piece = Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 4096]));
    Body::from_stream(futures_util::stream::repeat(piece))
}

/// A connection that runs while its client does something.
struct ServedConnection {
    client: DuplexStream,
    served: Pin<Box<dyn Future<Output = ()>>>,
    drain: watch::Sender<bool>,
    metrics: Arc<Metrics>,
    _kernel: Builder,
}

impl ServedConnection {
    fn new(limits: HttpLimits) -> ServedConnection {
        let kernel = Builder::new(KernelOptions::default(), Metrics::new());
        let builder = ApiBuilder::new(kernel.handle(), Snapshot::new(limits.clone()));
        let api = builder.surface(&SURFACE).operation(&WHOLE, whole).operation(&PIECES, pieces).build();
        api.shared.entrance.open();
        let metrics = Arc::clone(&api.shared.metrics);
        let (client, socket) = duplex(SOCKET_BYTES);
        let (drain, draining) = watch::channel(false);
        let served = Box::pin(async move {
            let pace = ConnectionState::new();
            let socket = WriteStallGuard::new(socket, Arc::clone(&pace));
            serve_connection(socket, pace, api, &limits, draining).await;
        });
        ServedConnection { client, served, drain, metrics, _kernel: kernel }
    }

    async fn asking(target: &str) -> ServedConnection {
        let mut served = ServedConnection::new(HttpLimits::default());
        served.client.write_all(format!("GET {target} HTTP/1.1\r\nhost: node\r\n\r\n").as_bytes()).await.expect("room");
        served
    }

    /// Reads so many bytes while the connection runs; it must not end.
    async fn read(&mut self, bytes: usize) -> Vec<u8> {
        let mut taken = vec![0; bytes];
        tokio::select! {
            read = self.client.read_exact(&mut taken) => drop(read.expect("it goes on")),
            () = &mut self.served => panic!("the connection ended"),
        }
        taken
    }

    async fn rest(&mut self, time: Duration) {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = &mut self.served => panic!("the connection ended"),
        }
    }

    /// How long the connection lasts from here on.
    async fn lasts(&mut self) -> Duration {
        let since = clock::now();
        (&mut self.served).await;
        since.elapsed()
    }

    fn stalls(&self) -> u64 {
        self.metrics.io_timeouts.at("write").get()
    }
}

fn about(expected: Duration, measured: Duration) -> bool {
    measured >= expected && measured < expected + Duration::from_millis(50)
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_stops_reading_loses_its_connection() {
    let stall = HttpLimits::default().write_stall;
    for target in ["/whole", "/pieces"] {
        let mut served = ServedConnection::asking(target).await;
        let lasted = served.lasts().await;
        assert!(about(stall, lasted), "{target}: {lasted:?}");

        let mut served = ServedConnection::asking(target).await;
        served.rest(stall / 2).await;
        served.read(2 * SOCKET_BYTES).await;
        let lasted = served.lasts().await;
        assert!(about(stall, lasted), "{target}: {lasted:?} since the last byte");
        assert_eq!((served.stalls(), served.metrics.io_timeouts.at("header").get()), (1, 0), "{target}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_its_whole_answer_and_then_may_rest() {
    let limits = HttpLimits::default();
    let mut served = ServedConnection::asking("/whole").await;
    let slow_reads = 8;
    assert!(limits.write_stall * 2 / 3 * slow_reads > limits.idle_timeout * 2, "it takes longer than a rest may");
    let head = served.read(SOCKET_BYTES).await;
    let head_bytes = head.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
    for _ in 0..slow_reads {
        served.rest(limits.write_stall * 2 / 3).await;
        served.read(SOCKET_BYTES).await;
    }
    served.read(head_bytes + ANSWER_BYTES - (slow_reads as usize + 1) * SOCKET_BYTES).await;
    let lasted = served.lasts().await;
    assert!(about(limits.idle_timeout, lasted), "{lasted:?}");
    assert_eq!(served.stalls(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_wait_for_a_reader_of_an_answer_that_is_done() {
    let mut served = ServedConnection::asking("/whole").await;
    served.rest(Duration::from_secs(1)).await;
    served.drain.send_replace(true);
    let lasted = served.lasts().await;
    assert!(about(CLOSING_PAUSE + CLOSING_PATIENCE, lasted), "{lasted:?}");
}

/// A request for the long answer, from a peer that lets this many bytes of it out.
fn http2_request(room: u32) -> Vec<u8> {
    let room = room.to_be_bytes();
    // The window of each stream, then that of the connection, then the head.
    let settings = [&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4], room.as_slice()].concat();
    let window = [&[0, 0, 4, 8, 0, 0, 0, 0, 0], (1_u32 << 20).to_be_bytes().as_slice()].concat();
    let fields = b"\x82\x86\x04\x06/whole\x01\x04node";
    let head = [&[0, 0, fields.len() as u8, 1, 5, 0, 0, 0, 1], fields.as_slice()].concat();
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), settings, window, head].concat()
}

#[tokio::test(start_paused = true)]
async fn http2_is_watched_the_same_way() {
    // Less than the pings take to find out.
    let limits = HttpLimits { write_stall: Duration::from_secs(7), ..HttpLimits::default() };
    let mut served = ServedConnection::new(limits.clone());
    served.client.write_all(&http2_request(1 << 20)).await.expect("room");
    served.read(32 * SOCKET_BYTES).await;
    let lasted = served.lasts().await;
    assert!(about(limits.write_stall, lasted), "{lasted:?}");
    assert_eq!(served.stalls(), 1);
}

/// Reads what comes for a while and returns nothing of it.
async fn read_for(served: &mut ServedConnection, time: Duration) {
    let end = clock::now() + time;
    let mut waste = [0; SOCKET_BYTES];
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(end) => return,
            read = served.client.read(&mut waste) => assert!(read.is_ok_and(|bytes| bytes > 0), "it goes on"),
            () = &mut served.served => panic!("the connection ended"),
        }
    }
}

/// Reads until the connection ends; returns how long that took.
async fn read_to_end(served: &mut ServedConnection) -> Duration {
    let since = clock::now();
    let mut waste = [0; SOCKET_BYTES];
    loop {
        tokio::select! {
            read = served.client.read(&mut waste) => match read {
                Ok(0) | Err(_) => return since.elapsed(),
                Ok(_) => {}
            },
            () = &mut served.served => return since.elapsed(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_window_that_stays_shut_is_a_peer_that_does_not_read() {
    let limits = HttpLimits { write_stall: Duration::from_secs(7), ..HttpLimits::default() };
    for room in [0, 1, 5000] {
        let mut served = ServedConnection::new(limits.clone());
        served.client.write_all(&http2_request(room)).await.expect("room");
        let lasted = read_to_end(&mut served).await;
        assert!(about(limits.write_stall, lasted), "{room}: {lasted:?}");
        assert_eq!(served.stalls(), 1, "{room}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_window_that_opens_slowly_is_progress() {
    let limits = HttpLimits { write_stall: Duration::from_secs(7), ..HttpLimits::default() };
    let mut served = ServedConnection::new(limits.clone());
    served.client.write_all(&http2_request(0)).await.expect("room");
    // Three times, which is before the pings find out that nobody answers them.
    for _ in 0..3 {
        read_for(&mut served, Duration::from_secs(5)).await;
        // A hundred bytes more for the first stream.
        served.client.write_all(&[0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 0, 0, 100]).await.expect("room");
    }
    let lasted = read_to_end(&mut served).await;
    assert!(about(limits.write_stall, lasted), "{lasted:?} since the last byte");
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_wait_for_a_window_that_stays_shut() {
    let mut served = ServedConnection::new(HttpLimits::default());
    served.client.write_all(&http2_request(0)).await.expect("room");
    read_for(&mut served, Duration::from_secs(1)).await;
    served.drain.send_replace(true);
    let lasted = read_to_end(&mut served).await;
    assert!(about(CLOSING_PAUSE + CLOSING_PATIENCE, lasted), "{lasted:?}");
}
