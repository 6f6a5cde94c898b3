//! Announcements of the DHT over the overlay: every node of it hears where the others are.

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, stream};
use svc_dht::Gossip;
use svc_overlay::words::Item;
use svc_overlay::{LaneName, Overlay, PublishStream, StreamMessage, Subscription};

/// Lane of the announcements.
const LANE: &str = "_dht";
/// Whom the announcements are counted for.
const TENANT: &str = "dht";

/// The overlay, as the DHT uses it.
pub struct OverlayGossip {
    overlay: Overlay,
    lane: LaneName,
}

impl OverlayGossip {
    /// Announces over this overlay.
    pub fn new(overlay: Overlay) -> Self {
        let lane = LaneName::new(LANE).expect("the lane has a valid name");
        OverlayGossip { overlay, lane }
    }
}

impl Gossip for OverlayGossip {
    fn announce(&self, announcement: Bytes) {
        let message = StreamMessage { payload: announcement, outcome: None };
        // A stream of one message: a refusal of one announcement says nothing of the next.
        let (stream, _refused) = PublishStream::new();
        if let Err((_, error)) = self.overlay.publish_stream(TENANT, self.lane, &stream, vec![message]) {
            // It is announced again within a minute.
            tracing::debug!(%error, "the overlay takes no announcement now");
        }
    }

    fn announcements(&self) -> BoxStream<'static, Bytes> {
        let (overlay, lane) = (self.overlay.clone(), self.lane);
        let opened = async move {
            let subscribed = overlay.subscribe(lane, Vec::new(), false).await;
            subscribed.inspect_err(|error| tracing::warn!(%error, "announcements of nodes cannot be heard")).ok()
        };
        stream::once(opened).filter_map(std::future::ready).flat_map(payloads).boxed()
    }
}

/// What is announced; that something was missed is no matter, because it is announced again.
fn payloads(subscription: Subscription) -> BoxStream<'static, Bytes> {
    let items = stream::unfold(subscription, |mut subscription| async {
        let item = subscription.next().await?;
        Some((item, subscription))
    });
    let payload = |item: Item| match item {
        Item::Message(message) => Some(message.payload),
        _ => None,
    };
    items.filter_map(move |item| std::future::ready(payload(item))).boxed()
}
