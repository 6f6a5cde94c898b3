//! A connection whose peer does not read, in a time that passes at once.

use bytes::Bytes;
use ron_kernel::{Builder, Deadline, KernelOptions, Snapshot};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;
use crate::operation::Operation;
use crate::route::ApiBuilder;
use crate::surface::Surface;
use crate::write_stall::WriteStallGuard;

const SOCKET_BYTES: usize = 1024;
const ANSWER_BYTES: usize = 256 * 1024;
/// Bytes that a peer must take within the default time.
const SPAN_BYTES: usize = 30 * 1024;

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
        ServedConnection::over(limits, SOCKET_BYTES)
    }

    /// Over a socket that holds so many bytes.
    fn over(limits: HttpLimits, socket_bytes: usize) -> ServedConnection {
        let kernel = Builder::new(KernelOptions::default(), Metrics::new());
        let builder = ApiBuilder::new(kernel.handle(), Snapshot::new(limits.clone()));
        let api = builder.surface(&SURFACE).operation(&WHOLE, whole).operation(&PIECES, pieces).build();
        api.shared.entrance.open();
        let metrics = Arc::clone(&api.shared.metrics);
        let (client, socket) = duplex(socket_bytes);
        let (drain, draining) = watch::channel(false);
        let served = Box::pin(async move {
            let pace = ConnectionState::new(&limits);
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
        served.read(SPAN_BYTES + SOCKET_BYTES).await;
        let lasted = served.lasts().await;
        assert!(about(stall, lasted), "{target}: {lasted:?} since the last byte");
        assert_eq!((served.stalls(), served.metrics.io_timeouts.at("header").get()), (1, 0), "{target}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_its_whole_answer_and_then_may_rest() {
    let limits = HttpLimits::default();
    let mut served = ServedConnection::asking("/whole").await;
    let (slow_reads, piece) = (8, SPAN_BYTES + SOCKET_BYTES);
    let pause = limits.write_stall * 2 / 3;
    assert!(pause * slow_reads > limits.idle_timeout * 2, "it takes longer than a rest may");
    let head = served.read(SOCKET_BYTES).await;
    let head_bytes = head.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
    for _ in 0..slow_reads {
        served.rest(pause).await;
        served.read(piece).await;
    }
    served.read(head_bytes + ANSWER_BYTES - slow_reads as usize * piece - SOCKET_BYTES).await;
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

#[tokio::test(start_paused = true)]
async fn an_answer_arrives_although_nobody_reads_the_body_of_its_request() {
    let mut served = ServedConnection::new(HttpLimits::default());
    let body = vec![b'x'; 50_000];
    let head = format!("GET /whole HTTP/1.1\r\nhost: node\r\ncontent-length: {}\r\n\r\n", body.len());
    served.client.write_all(head.as_bytes()).await.expect("room");
    served.read(ANSWER_BYTES).await;
    // Its sender is still at it: a connection that is gone would cut it off before it has read the answer.
    let sending = async {
        let (mut answer, mut request) = tokio::io::split(&mut served.client);
        let rest = async {
            let mut rest = Vec::new();
            answer.read_to_end(&mut rest).await.map(|_| rest.len())
        };
        tokio::join!(rest, request.write_all(&body))
    };
    let (rest, sent) = tokio::select! {
        ended = sending => ended,
        () = &mut served.served => panic!("the connection ended"),
    };
    assert!(rest.is_ok_and(|bytes| bytes > 0) && sent.is_ok());
    drop(served.client);
    served.served.await;
}

/// The head of a request for the long answer.
fn http2_head(stream: u8) -> Vec<u8> {
    let fields = b"\x82\x86\x04\x06/whole\x01\x04node";
    [&[0, 0, fields.len() as u8, 1, 5, 0, 0, 0, stream], fields.as_slice()].concat()
}

/// A request for the long answer, from a peer that lets this many bytes of it out.
fn http2_request(room: u32) -> Vec<u8> {
    let room = room.to_be_bytes();
    // The window of each stream, then that of the connection, then the head.
    let settings = [&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4], room.as_slice()].concat();
    let window = [&[0, 0, 4, 8, 0, 0, 0, 0, 0], (1_u32 << 20).to_be_bytes().as_slice()].concat();
    let head = http2_head(1);
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

/// Reads what comes for a while and returns how many bytes that were.
async fn read_for(served: &mut ServedConnection, time: Duration) -> usize {
    let end = clock::now() + time;
    let (mut waste, mut total) = ([0; SOCKET_BYTES], 0);
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(end) => return total,
            read = served.client.read(&mut waste) => match read {
                Ok(bytes @ 1..) => total += bytes,
                ended => panic!("it goes on: {ended:?}"),
            },
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
async fn answers_are_bounded_in_memory_until_their_last_byte_has_left() {
    let limits = HttpLimits { answer_memory_bytes_max: 4 * ANSWER_BYTES, ..HttpLimits::default() };
    let mut served = ServedConnection::new(limits);
    let metrics = Arc::clone(&served.metrics);
    let (held, refused) = (&metrics.http_answer_bytes, metrics.busy_rejections.at("answer_memory"));
    let requests = [http2_request(0), http2_head(3), http2_head(5), http2_head(7)].concat();
    served.client.write_all(&requests).await.expect("room");
    read_for(&mut served, Duration::from_secs(1)).await;
    assert_eq!((held.get(), refused.get()), (2 * ANSWER_BYTES as i64, 2), "one caller has half");
    // Most of the first leaves, then all of it.
    for (more, left) in [(ANSWER_BYTES as u32 - 1, 2), (1, 1)] {
        served.client.write_all(&open_window(more)).await.expect("room");
        read_for(&mut served, Duration::from_secs(1)).await;
        assert_eq!(held.get(), left * ANSWER_BYTES as i64);
    }
    served.client.write_all(&http2_head(9)).await.expect("room");
    read_for(&mut served, Duration::from_secs(1)).await;
    assert_eq!((held.get(), refused.get()), (2 * ANSWER_BYTES as i64, 2), "there is room again");
    drop(served);
    // The streams of a connection end with it, once the runtime gets to them.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(held.get(), 0);
}

/// Lets so many bytes more of the first answer out.
fn open_window(bytes: u32) -> Vec<u8> {
    [&[0, 0, 4, 8, 0, 0, 0, 0, 1], bytes.to_be_bytes().as_slice()].concat()
}

#[tokio::test(start_paused = true)]
async fn a_window_that_opens_fast_enough_is_progress_and_a_byte_now_and_then_is_not() {
    let limits = HttpLimits { write_stall: Duration::from_secs(7), ..HttpLimits::default() };
    let mut served = ServedConnection::new(limits.clone());
    served.client.write_all(&http2_request(0)).await.expect("room");
    // Longer than anybody may be silent, and no frame but these says that the peer is there.
    for _ in 0..20 {
        read_for(&mut served, Duration::from_secs(5)).await;
        served.client.write_all(&open_window(8 * 1024)).await.expect("room");
    }
    read_for(&mut served, Duration::from_secs(1)).await;
    let trickle = async {
        loop {
            read_for(&mut served, Duration::from_secs(1)).await;
            served.client.write_all(&open_window(1)).await.expect("room");
        }
    };
    Deadline::after(Duration::from_secs(5)).run("trickle", trickle).await.expect_err("it goes on");
    let lasted = read_to_end(&mut served).await;
    assert!(about(Duration::from_secs(1), lasted), "{lasted:?}");
    assert_eq!(served.stalls(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_not_cut_while_its_peer_reads() {
    let limits = HttpLimits::default();
    for request in [http2_request(1 << 20), b"GET /whole HTTP/1.1\r\nhost: node\r\n\r\n".to_vec()] {
        let mut served = ServedConnection::new(limits.clone());
        served.client.write_all(&request).await.expect("room");
        // Two kilobytes in a second: two minutes in all, in which no question of the node's is answered.
        let since = clock::now();
        for _ in 0..ANSWER_BYTES / (2 * SOCKET_BYTES) {
            served.rest(Duration::from_secs(1)).await;
            served.read(2 * SOCKET_BYTES).await;
        }
        assert!(since.elapsed() > 2 * limits.idle_timeout);
        assert_eq!(served.stalls(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_leaves_slowly_through_its_window_is_no_rest() {
    let limits = HttpLimits::default();
    // The socket takes all that the window lets out, as a network does that is faster than its reader.
    let mut served = ServedConnection::over(limits.clone(), 2 * ANSWER_BYTES);
    served.client.write_all(&http2_request(0)).await.expect("room");
    let (piece, pause) = (8 * 1024, Duration::from_secs(5));
    let pieces = ANSWER_BYTES.div_ceil(piece);
    assert!(pause * pieces as u32 > limits.idle_timeout * 2, "it takes longer than a rest may");
    let mut received = 0;
    for _ in 0..pieces {
        received += read_for(&mut served, pause).await;
        served.client.write_all(&open_window(piece as u32)).await.expect("room");
    }
    received += read_for(&mut served, pause).await;
    assert!(received > ANSWER_BYTES, "{received}");
    let lasted = read_to_end(&mut served).await;
    assert!(lasted > limits.idle_timeout - 2 * pause, "{lasted:?}: its rest begins once it has all");
    assert_eq!(served.stalls(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_an_answer_that_leaves_through_its_window() {
    let mut served = ServedConnection::over(HttpLimits::default(), 2 * ANSWER_BYTES);
    served.client.write_all(&http2_request(1)).await.expect("room");
    read_for(&mut served, CLOSING_PAUSE).await;
    served.drain.send_replace(true);
    let pause = CLOSING_PATIENCE * 4 / 5;
    for _ in 0..5 {
        read_for(&mut served, pause).await;
        served.client.write_all(&open_window(8 * 1024)).await.expect("room");
    }
    let lasted = read_to_end(&mut served).await;
    assert!(about(CLOSING_PATIENCE, lasted), "{lasted:?} since the last byte");
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
