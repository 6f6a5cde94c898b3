//! How others learn what is durable, and that the log failed.

use crate::error::LogError;
use crate::model::Lsn;
use tokio::sync::watch;

/// State of the log that its watchers see.
#[derive(Clone, Debug)]
pub struct Published {
    pub durable: Lsn,
    pub failed: Option<LogError>,
}

/// Follows what is durable. Each clone follows on its own.
#[derive(Clone, Debug)]
pub struct Watch {
    receiver: watch::Receiver<Published>,
}

impl Watch {
    pub(crate) fn new(receiver: watch::Receiver<Published>) -> Watch {
        Watch { receiver }
    }

    /// Waits until more is durable than this watch saw last; `Err` once the log has failed (what became durable
    /// before is told by [`Watch::durable`]). Cancel-safe.
    pub async fn changed(&mut self) -> Result<Lsn, LogError> {
        if let Some(error) = self.failed() {
            return Err(error);
        }
        self.receiver.changed().await.map_err(|_closed| LogError::Closed)?;
        let published = self.receiver.borrow_and_update();
        match &published.failed {
            Some(error) => Err(error.clone()),
            None => Ok(published.durable),
        }
    }

    /// Waits until everything up to `lsn` is durable. What became durable before a failure counts. Cancel-safe.
    pub async fn reached(&mut self, lsn: Lsn) -> Result<Lsn, LogError> {
        let over = |published: &Published| published.durable >= lsn || published.failed.is_some();
        let published = self.receiver.wait_for(over).await.map_err(|_closed| LogError::Closed)?;
        match &published.failed {
            Some(error) if published.durable < lsn => Err(error.clone()),
            _ => Ok(published.durable),
        }
    }

    /// Every record up to here is durable.
    pub fn durable(&self) -> Lsn {
        self.receiver.borrow().durable
    }

    /// The error that ended the log as a place to write; none while it works.
    pub fn failed(&self) -> Option<LogError> {
        self.receiver.borrow().failed.clone()
    }
}
