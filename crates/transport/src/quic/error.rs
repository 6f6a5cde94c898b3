//! What the end of a connection means for a session that was to begin on it.

use std::io;

use quinn::ConnectionError;
use rustls::AlertDescription;

use crate::closed::{ConnectError, Stage};
use crate::tls::PostQuantum;

/// The codes of QUIC that carry an alert of TLS in their last byte (RFC 9001, section 4.8).
const ALERTS: std::ops::RangeInclusive<u64> = 0x100..=0x1ff;

/// Why there is no session.
pub(super) fn of(lost: ConnectionError, policy: PostQuantum) -> ConnectError {
    match lost {
        ConnectionError::TransportError(ref error) => {
            let reason = error.reason.clone();
            of_code(error.code.into(), policy, |_| rustls::Error::General(reason)).unwrap_or_else(|| io_error(lost))
        }
        ConnectionError::ConnectionClosed(ref close) => {
            of_code(close.error_code.into(), policy, rustls::Error::AlertReceived).unwrap_or_else(|| io_error(lost))
        }
        ConnectionError::TimedOut => ConnectError::Timeout { stage: Stage::Tls },
        _ => io_error(lost),
    }
}

fn io_error(lost: ConnectionError) -> ConnectError {
    ConnectError::Io(io::Error::from(lost))
}

fn of_code(
    code: u64,
    policy: PostQuantum,
    other: impl FnOnce(AlertDescription) -> rustls::Error,
) -> Option<ConnectError> {
    let alert = ALERTS.contains(&code).then_some(AlertDescription::from((code & 0xff) as u8))?;
    Some(match alert {
        // A side that can do both has a group in common with every side of ours.
        AlertDescription::HandshakeFailure if policy != PostQuantum::Hybrid => ConnectError::NotPostQuantum,
        AlertDescription::NoApplicationProtocol => rustls::Error::NoApplicationProtocol.into(),
        _ => other(alert).into(),
    })
}
