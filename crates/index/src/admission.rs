//! What one address may have of the index: so many questions at once, and if configured so many in a second.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ron_kernel::connection_limiter::network_of;
use ron_kernel::rate::TenantRates;
use ron_types::Error;
use ron_types::limits::index::ADDRESSES_MAX;

/// Questions under way, by address.
pub(crate) struct Addresses {
    under_way: Mutex<HashMap<IpAddr, usize>>,
    rates: TenantRates,
}

/// A question of one address that was let in. Dropping it makes room for the next.
pub struct QuestionSlot {
    addresses: Arc<Addresses>,
    /// The address, or for IPv6 its network.
    network: IpAddr,
}

impl Addresses {
    /// Nobody asks.
    pub fn new() -> Arc<Self> {
        Arc::new(Addresses { under_way: Mutex::default(), rates: TenantRates::new("questions", ADDRESSES_MAX) })
    }

    /// Lets a question in, if the address has fewer than `at_once` under way and, unless that is 0, asked fewer than
    /// `per_second`.
    pub fn admit(self: &Arc<Self>, ip: IpAddr, at_once: usize, per_second: u64) -> Result<QuestionSlot, Error> {
        let network = network_of(ip);
        if per_second > 0 {
            self.rates.take(&network.to_string(), per_second, 1)?;
        }
        let mut under_way = self.lock();
        let count = under_way.get(&network).copied().unwrap_or(0);
        if count >= at_once {
            return Err(Error::busy(format_args!("the share of {network}")));
        }
        if count == 0 && under_way.len() >= ADDRESSES_MAX {
            return Err(Error::busy("the list of addresses"));
        }
        under_way.insert(network, count + 1);
        Ok(QuestionSlot { addresses: Arc::clone(self), network })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for QuestionSlot {
    fn drop(&mut self) {
        let mut under_way = self.addresses.lock();
        if let Some(count) = under_way.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                under_way.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_has_its_share_and_others_theirs() {
        let addresses = Addresses::new();
        let held: Vec<_> = (0..256).map(|_| addresses.admit(ip(1), 256, 0).expect("its share")).collect();
        assert_eq!(addresses.admit(ip(1), 256, 0).err().map(|error| error.kind), Some(ron_types::Kind::Busy));
        assert!(addresses.admit(ip(2), 256, 0).is_ok(), "others are not concerned");
        drop(held);
        assert!(addresses.admit(ip(1), 256, 0).is_ok());
        assert!(addresses.lock().is_empty(), "nothing is left behind");
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_is_kept() {
        let addresses = Addresses::new();
        let passed = (0..100).filter(|_| addresses.admit(ip(1), 256, 10).is_ok()).count();
        assert_eq!(passed, 10);
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        assert!(addresses.admit(ip(1), 256, 10).is_ok());
    }
}
