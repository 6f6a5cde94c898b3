//! Who may connect to a listener: a total, a number for each address, and a rate for each address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::metrics::Metrics;

/// Addresses whose rate is remembered; beyond this the stale ones are forgotten at once.
const RATED_ADDRESSES_MAX: usize = 16 * 1024;

/// Connection limits of one listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Maximum open connections of the listener.
    pub total: usize,
    /// Connections one address may hold at once.
    pub per_ip: usize,
    /// New connections one address may open in a second, sustained.
    pub per_ip_per_second: u32,
}

/// Limit that a connection was refused by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionRefusal {
    /// The listener has no place left.
    Total,
    /// Its address holds as many as one may.
    PerIp,
    /// Its address opens them faster than one may.
    Rate,
}

/// Counts the connections of one listener and refuses those past its limits.
pub struct ConnectionLimiter {
    held: Arc<Mutex<Held>>,
    open: Gauge,
    rate: DefaultKeyedRateLimiter<IpAddr>,
    per_second: u32,
    refused: Refused,
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
pub struct Slot {
    held: Arc<Mutex<Held>>,
    open: Gauge,
    ip: IpAddr,
}

impl ConnectionLimiter {
    /// A limiter without connections; `listener` labels the metric `connections_open`.
    pub fn new(listener: &'static str, metrics: &Metrics, limits: ConnectionLimits) -> Self {
        ConnectionLimiter {
            held: Arc::default(),
            open: metrics.connections_open.at(listener),
            rate: limiter(limits.per_ip_per_second),
            per_second: limits.per_ip_per_second,
            refused: Refused {
                total: metrics.connections_refused.at("total"),
                per_ip: metrics.connections_refused.at("per_ip"),
                rate: metrics.connections_refused.at("rate"),
            },
        }
    }

    /// A place for a connection from this address, if there is one. The limits may change from call to call.
    pub fn admit(&mut self, ip: IpAddr, limits: ConnectionLimits) -> Result<Slot, ConnectionRefusal> {
        let ip = network_of(ip);
        if self.per_second != limits.per_ip_per_second {
            self.per_second = limits.per_ip_per_second;
            self.rate = limiter(self.per_second);
        }
        let mut held = lock(&self.held);
        let refusal = if held.total >= limits.total {
            Some(ConnectionRefusal::Total)
        } else if held.by_ip.get(&ip).is_some_and(|count| *count >= limits.per_ip) {
            Some(ConnectionRefusal::PerIp)
        } else if self.rate.check_key(&ip).is_err() {
            Some(ConnectionRefusal::Rate)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            self.refused.counter(refusal).inc();
            return Err(refusal);
        }
        held.total += 1;
        *held.by_ip.entry(ip).or_default() += 1;
        self.open.inc();
        Ok(Slot { held: Arc::clone(&self.held), open: self.open.clone(), ip })
    }

    /// Forgets addresses that were quiet. Called about twice a second.
    pub fn tidy(&mut self) {
        self.rate.retain_recent();
        if self.rate.len() > RATED_ADDRESSES_MAX {
            self.rate = limiter(self.per_second);
        }
        self.rate.shrink_to_fit();
    }
}

impl Refused {
    fn counter(&self, refusal: ConnectionRefusal) -> &Counter {
        match refusal {
            ConnectionRefusal::Total => &self.total,
            ConnectionRefusal::PerIp => &self.per_ip,
            ConnectionRefusal::Rate => &self.rate,
        }
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

/// What counts as one address: one household owns a whole /64 of IPv6.
pub fn network_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const AWAY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    const LIMITS: ConnectionLimits = ConnectionLimits { total: 3, per_ip: 2, per_ip_per_second: 1000 };

    #[test]
    fn places_are_bounded_in_total_and_for_each_address_and_given_back() {
        let metrics = Metrics::new();
        let mut limiter = ConnectionLimiter::new("http", &metrics, LIMITS);
        let first = limiter.admit(HOME, LIMITS).expect("empty");
        let second = limiter.admit(HOME, LIMITS).expect("two are allowed");
        assert_eq!(limiter.admit(HOME, LIMITS).err(), Some(ConnectionRefusal::PerIp));
        let third = limiter.admit(AWAY, LIMITS).expect("another address");
        assert_eq!(limiter.admit(AWAY, LIMITS).err(), Some(ConnectionRefusal::Total));
        assert_eq!(metrics.connections_open.at("http").get(), 3);
        drop(third);
        drop(first);
        assert!(limiter.admit(HOME, LIMITS).is_ok());
        drop(second);
        assert_eq!(metrics.connections_open.at("http").get(), 0);
        assert!(lock(&limiter.held).by_ip.is_empty());
        let refused = |reason| metrics.connections_refused.at(reason).get();
        assert_eq!((refused("per_ip"), refused("total"), refused("rate")), (1, 1, 0));
    }

    #[test]
    fn the_rate_is_for_each_address_and_follows_the_limits() {
        let metrics = Metrics::new();
        let slow = ConnectionLimits { per_ip_per_second: 1, ..LIMITS };
        let mut limiter = ConnectionLimiter::new("http", &metrics, slow);
        let admitted = |limiter: &mut ConnectionLimiter, ip, limits| limiter.admit(ip, limits).is_ok();
        assert!(admitted(&mut limiter, HOME, slow));
        assert!(!admitted(&mut limiter, HOME, slow));
        assert!(admitted(&mut limiter, AWAY, slow));
        assert!(admitted(&mut limiter, HOME, LIMITS), "raised at run time");
        assert_eq!(metrics.connections_refused.at("rate").get(), 1);
    }

    #[test]
    fn a_household_is_one_address() {
        let of = |text: &str| network_of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8:1:2::5"), of("2001:db8:1:2:ffff::6"));
        assert_ne!(of("2001:db8:1:2::5"), of("2001:db8:1:3::5"));
        assert_eq!(of("::ffff:192.0.2.1"), HOME);
    }
}
