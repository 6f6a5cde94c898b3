//! The addresses of a node that is dialled: found by its name and tried one after another, each in its share of the
//! time, so that one which does not answer leaves time for the others.

use std::io;
use std::net::SocketAddr;

use ron_kernel::Deadline;

use crate::address::PeerAddress;
use crate::closed::{ConnectError, Stage};

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// Addresses of a node.
pub(crate) async fn addresses_of(peer: &PeerAddress, deadline: Deadline) -> Result<Vec<SocketAddr>, ConnectError> {
    let looking = tokio::net::lookup_host((peer.host.as_str(), peer.port));
    let found = deadline.run("dns", looking).await.map_err(|_| ConnectError::Timeout { stage: Stage::Connect })??;
    Ok(found.take(ADDRESSES_MAX).collect())
}

/// What the first of the addresses leads to that leads anywhere; else the last error.
pub(crate) async fn by_turns<T, F>(
    addresses: Vec<SocketAddr>,
    deadline: Deadline,
    connect: impl Fn(SocketAddr, Deadline) -> F,
) -> Result<T, ConnectError>
where
    F: Future<Output = Result<T, ConnectError>>,
{
    let mut outcome = Err(io::Error::from(io::ErrorKind::AddrNotAvailable).into());
    let count = addresses.len();
    for (index, address) in addresses.into_iter().enumerate() {
        let left = u32::try_from(count - index).unwrap_or(1);
        let turn = Deadline::after(deadline.remaining() / left);
        let connecting = turn.run("connect", connect(address, turn)).await;
        outcome = connecting.unwrap_or(Err(ConnectError::Timeout { stage: Stage::Connect }));
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ron_kernel::clock;

    use super::*;

    const TIME: Duration = Duration::from_secs(9);

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 1))
    }

    /// Tries addresses of which those below 10 are silent and those below 20 refuse; gives what became of it, and when.
    async fn tried(addresses: &[u8]) -> (Result<u8, String>, Duration) {
        let started = clock::now();
        let connect = |to: SocketAddr, _| async move {
            let SocketAddr::V4(to) = to else { unreachable!("all are") };
            match to.ip().octets()[3] {
                silent @ ..10 => std::future::pending::<Result<u8, ConnectError>>().await.map(|_| silent),
                10..20 => Err(io::Error::from(io::ErrorKind::ConnectionRefused).into()),
                open => Ok(open),
            }
        };
        let addresses = addresses.iter().copied().map(address).collect();
        let outcome = by_turns(addresses, Deadline::after(TIME), connect).await;
        (outcome.map_err(|error| error.to_string()), started.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn the_addresses_of_a_name_share_the_time() {
        let second = Duration::from_secs(1);
        assert_eq!(tried(&[20]).await, (Ok(20), Duration::ZERO));
        assert_eq!(tried(&[1, 20]).await, (Ok(20), TIME / 2));
        assert_eq!(tried(&[1, 2, 20]).await, (Ok(20), 6 * second));
        assert_eq!(tried(&[10, 1, 20]).await, (Ok(20), TIME / 2), "what is refused at once takes nobody's time");
        let (silent, took) = tried(&[1, 2, 3]).await;
        assert!(silent.is_err() && took == TIME, "{silent:?} after {took:?}");
        assert!(tried(&[1, 10]).await.0.expect_err("refused").contains("refused"));
        assert!(tried(&[]).await.0.is_err());
    }
}
