//! Who may connect: a total, a number for each address, and a rate for each address; the rest is told so cheaply.

use std::collections::{HashMap, VecDeque};
use std::io::Read as _;
use std::net::{IpAddr, Ipv6Addr, Shutdown};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use ron_kernel::{Metrics, clock};
use ron_types::Error;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::limits::HttpLimits;
use crate::problem::Problem;

/// Refused connections kept open for a moment, so that closing them does not overtake their answer.
const LINGERING_MAX: usize = 256;
const LINGERING_TIME: Duration = Duration::from_secs(1);

/// Addresses whose rate is remembered; beyond this the stale ones are forgotten at once.
const RATED_ADDRESSES_MAX: usize = 16 * 1024;

/// The doorkeeper of one listener.
pub(crate) struct Door {
    held: Arc<Mutex<Held>>,
    open: Gauge,
    rate: DefaultKeyedRateLimiter<IpAddr>,
    per_second: u32,
    refused: Refused,
    /// The whole answer to a refused connection.
    answer: Bytes,
    lingering: VecDeque<(Instant, std::net::TcpStream)>,
}

struct Refused {
    total: Counter,
    per_ip: Counter,
    rate: Counter,
}

#[derive(Default)]
struct Held {
    total: usize,
    by_ip: HashMap<IpAddr, usize>,
}

/// The place of one connection; given back when dropped.
pub(crate) struct Slot {
    held: Arc<Mutex<Held>>,
    open: Gauge,
    ip: IpAddr,
}

impl Door {
    pub(crate) fn new(metrics: &Metrics, limits: &HttpLimits) -> Self {
        Door {
            held: Arc::default(),
            open: metrics.connections_open.at("http"),
            rate: limiter(limits.accepts_per_ip_per_second),
            per_second: limits.accepts_per_ip_per_second,
            refused: Refused {
                total: metrics.connections_refused.at("total"),
                per_ip: metrics.connections_refused.at("per_ip"),
                rate: metrics.connections_refused.at("rate"),
            },
            answer: answer(),
            lingering: VecDeque::with_capacity(LINGERING_MAX),
        }
    }

    /// A place for a connection from this address, if there is one.
    pub(crate) fn admit(&mut self, ip: IpAddr, limits: &HttpLimits) -> Option<Slot> {
        let ip = bucket(ip);
        if self.per_second != limits.accepts_per_ip_per_second {
            self.per_second = limits.accepts_per_ip_per_second;
            self.rate = limiter(self.per_second);
        }
        let mut held = lock(&self.held);
        let refusal = if held.total >= limits.connections_max {
            Some(&self.refused.total)
        } else if held.by_ip.get(&ip).is_some_and(|count| *count >= limits.connections_per_ip_max) {
            Some(&self.refused.per_ip)
        } else if self.rate.check_key(&ip).is_err() {
            Some(&self.refused.rate)
        } else {
            None
        };
        if let Some(counter) = refusal {
            counter.inc();
            return None;
        }
        held.total += 1;
        *held.by_ip.entry(ip).or_default() += 1;
        self.open.inc();
        Some(Slot { held: Arc::clone(&self.held), open: self.open.clone(), ip })
    }

    /// Tells a plain connection that it is refused. Never waits.
    pub(crate) fn refuse(&mut self, stream: TcpStream) {
        discard_input(&stream);
        let _ = stream.try_write(&self.answer);
        let Ok(stream) = stream.into_std() else { return };
        let _ = stream.shutdown(Shutdown::Write);
        if self.lingering.len() == LINGERING_MAX
            && let Some((_, oldest)) = self.lingering.pop_front()
        {
            close(oldest);
        }
        self.lingering.push_back((clock::now() + LINGERING_TIME, stream));
    }

    /// Forgets what is over: refused connections and addresses that were quiet. Called about twice a second.
    pub(crate) fn tidy(&mut self) {
        let now = clock::now();
        while self.lingering.front().is_some_and(|(until, _)| *until <= now) {
            if let Some((_, stream)) = self.lingering.pop_front() {
                close(stream);
            }
        }
        self.rate.retain_recent();
        if self.rate.len() > RATED_ADDRESSES_MAX {
            self.rate = limiter(self.per_second);
        }
        self.rate.shrink_to_fit();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.open.dec();
        let mut held = lock(&self.held);
        held.total -= 1;
        if let Some(count) = held.by_ip.get_mut(&self.ip) {
            *count -= 1;
            if *count == 0 {
                held.by_ip.remove(&self.ip);
            }
        }
    }
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

fn limiter(per_second: u32) -> DefaultKeyedRateLimiter<IpAddr> {
    RateLimiter::keyed(Quota::per_second(NonZeroU32::new(per_second).unwrap_or(NonZeroU32::MIN)))
}

/// One household owns a whole /64 of IPv6, so that is what counts as an address.
fn bucket(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

fn answer() -> Bytes {
    let body = Problem::from(Error::busy("the listener, or the share of your address,")).body(None, None);
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

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const AWAY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn limits() -> HttpLimits {
        HttpLimits { connections_max: 3, connections_per_ip_max: 2, ..HttpLimits::default() }
    }

    #[test]
    fn places_are_bounded_in_total_and_for_each_address_and_given_back() {
        let metrics = Metrics::new();
        let mut door = Door::new(&metrics, &limits());
        let first = door.admit(HOME, &limits()).expect("empty");
        let second = door.admit(HOME, &limits()).expect("two are allowed");
        assert!(door.admit(HOME, &limits()).is_none());
        let third = door.admit(AWAY, &limits()).expect("another address");
        assert!(door.admit(AWAY, &limits()).is_none());
        assert_eq!(metrics.connections_open.at("http").get(), 3);
        drop(third);
        drop(first);
        assert!(door.admit(HOME, &limits()).is_some());
        drop(second);
        assert_eq!(metrics.connections_open.at("http").get(), 0);
        assert!(lock(&door.held).by_ip.is_empty());
        let refused = |reason| metrics.connections_refused.at(reason).get();
        assert_eq!((refused("per_ip"), refused("total"), refused("rate")), (1, 1, 0));
    }

    #[test]
    fn the_rate_is_for_each_address_and_follows_the_limits() {
        let metrics = Metrics::new();
        let slow = HttpLimits { accepts_per_ip_per_second: 1, ..HttpLimits::default() };
        let mut door = Door::new(&metrics, &slow);
        let admitted = |door: &mut Door, ip, limits| door.admit(ip, limits).is_some();
        assert!(admitted(&mut door, HOME, &slow));
        assert!(!admitted(&mut door, HOME, &slow));
        assert!(admitted(&mut door, AWAY, &slow));
        assert!(admitted(&mut door, HOME, &HttpLimits::default()), "raised at run time");
        assert_eq!(metrics.connections_refused.at("rate").get(), 1);
    }

    #[test]
    fn a_household_is_one_address() {
        let of = |text: &str| bucket(text.parse().expect("an address"));
        assert_eq!(of("2001:db8:1:2::5"), of("2001:db8:1:2:ffff::6"));
        assert_ne!(of("2001:db8:1:2::5"), of("2001:db8:1:3::5"));
        assert_eq!(of("::ffff:192.0.2.1"), HOME);
    }
}
