//! Connections that stop speaking HTTP: a handler says what follows, and the task of the connection does it.

use std::pin::Pin;
use std::sync::Arc;

use hyper::upgrade::OnUpgrade;

use crate::connection_state::ConnectionState;

/// What a connection does after the answer that ended HTTP on it.
pub(crate) type Takeover = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Left with every request that asks for another protocol: the connection it came on.
#[derive(Clone)]
pub(crate) struct UpgradeOffer(Arc<ConnectionState>);

impl UpgradeOffer {
    /// Lets the connection go on with this once the answer is out. A detached task would outlive its connection's slot
    /// and the drain.
    pub(crate) fn accept(self, takeover: Takeover) {
        self.0.hand_over(takeover);
    }
}

/// Leaves the offer with a request that can take it.
pub(crate) fn offer<B>(request: &mut http::Request<B>, connection: &Arc<ConnectionState>) {
    if request.extensions().get::<OnUpgrade>().is_some() {
        request.extensions_mut().insert(UpgradeOffer(Arc::clone(connection)));
    }
}
