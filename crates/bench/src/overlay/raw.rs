//! Bare TCP over loopback between threads: what the kernel allows, without TLS and without frames.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ron_kernel::clock;

/// Bytes of a frame with 64 KiB of payload.
const FRAME_BYTES: usize = 64 * 1024 + oap::HEADER_BYTES;
/// Bytes of one write in batches.
const BATCH_BYTES: usize = 4 * FRAME_BYTES;
const READ_BYTES: usize = 256 * 1024;

/// How the bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// One write for each frame.
    WriteEach,
    /// Four frames in a write.
    Batched,
    /// The same, read and written once more by a thread in between, as a node has to.
    Relayed,
}

/// Bytes a second that arrive.
pub fn bytes_per_second(time: Duration, way: Way) -> anyhow::Result<f64> {
    let (from, first_to) = pair()?;
    let (stop, arrived) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut threads = vec![std::thread::spawn(move || write_until_closed(from, way))];
    let to = if way == Way::Relayed {
        let (onward, to) = pair()?;
        threads.push(std::thread::spawn(move || relay(first_to, onward)));
        to
    } else {
        first_to
    };
    let reader = (Arc::clone(&stop), Arc::clone(&arrived));
    threads.push(std::thread::spawn(move || read_until_stopped(to, &reader.0, &reader.1)));
    std::thread::sleep(time / 4);
    let (began, before) = (clock::now(), arrived.load(Ordering::Acquire));
    std::thread::sleep(time);
    let rate = (arrived.load(Ordering::Acquire) - before) as f64 / began.elapsed().as_secs_f64();
    stop.store(true, Ordering::Release);
    threads.into_iter().for_each(|thread| drop(thread.join()));
    Ok(rate)
}

fn pair() -> anyhow::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let from = TcpStream::connect(listener.local_addr()?)?;
    let (to, _) = listener.accept()?;
    from.set_nodelay(true)?;
    Ok((from, to))
}

/// Ends when the other end is closed.
fn write_until_closed(mut from: TcpStream, way: Way) {
    let bytes = vec![7; if way == Way::WriteEach { FRAME_BYTES } else { BATCH_BYTES }];
    while from.write_all(&bytes).is_ok() {}
}

fn relay(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = vec![0; READ_BYTES];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

fn read_until_stopped(mut to: TcpStream, stop: &AtomicBool, arrived: &AtomicU64) {
    let mut bytes = vec![0; READ_BYTES];
    while !stop.load(Ordering::Acquire)
        && let Ok(count @ 1..) = to.read(&mut bytes)
    {
        arrived.fetch_add(count as u64, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_on_every_way() {
        for way in [Way::WriteEach, Way::Batched, Way::Relayed] {
            assert!(bytes_per_second(Duration::from_millis(20), way).expect("loopback") > 0.0);
        }
    }
}
