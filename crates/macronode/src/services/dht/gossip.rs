//! Announcements of the DHT over the overlay: every node of it hears where the others are.

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, stream};
use ron_auth::Subject;
use ron_store::PeerId;
use svc_dht::{Announcement, Gossip};
use svc_overlay::words::Item;
use svc_overlay::{DHT_LANE, LaneName, Overlay, Subscription};

/// The overlay, as the DHT uses it.
pub struct OverlayGossip {
    overlay: Overlay,
    lane: LaneName,
}

impl OverlayGossip {
    /// Announces over this overlay.
    pub fn new(overlay: Overlay) -> Self {
        let lane = LaneName::new(DHT_LANE).expect("the lane has a valid name");
        OverlayGossip { overlay, lane }
    }
}

impl Gossip for OverlayGossip {
    fn announce(&self, announcement: Bytes) {
        if let Err(error) = self.overlay.announce(self.lane, announcement) {
            // It is announced again within a minute.
            tracing::debug!(%error, "the overlay takes no announcement now");
        }
    }

    fn announcements(&self) -> BoxStream<'static, Announcement> {
        let (overlay, lane) = (self.overlay.clone(), self.lane);
        let opened = async move {
            let subscribed = overlay.subscribe(&Subject::operator("dht"), lane, Vec::new(), false).await;
            subscribed.inspect_err(|error| tracing::warn!(%error, "announcements of nodes cannot be heard")).ok()
        };
        stream::once(opened).filter_map(std::future::ready).flat_map(heard).boxed()
    }
}

/// What is announced; that something was missed is no matter, because it is announced again.
fn heard(subscription: Subscription) -> BoxStream<'static, Announcement> {
    let items = stream::unfold(subscription, |mut subscription| async {
        let item = subscription.next().await?;
        Some((item, subscription))
    });
    // The key of a node of the overlay is that of its peer id.
    let announcement = |item: Item| match item {
        Item::Message(message) => Some(Announcement { origin: PeerId::from(message.origin), content: message.payload }),
        _ => None,
    };
    items.filter_map(move |item| std::future::ready(announcement(item))).boxed()
}
