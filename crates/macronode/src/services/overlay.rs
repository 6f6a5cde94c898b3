//! The overlay: sessions with other nodes, and lanes of live messages between them.

use std::sync::Arc;

use ron_api::{OVERLAY_SURFACE, Surface};
use ron_auth::Capabilities;
use ron_kernel::metrics::MetricSpec;
use ron_kernel::spec::{QueueSpec, ServiceSpec};
use ron_transport::{ConnectError, Session, SessionLimits, Tls};
use ron_types::Error;
use svc_overlay::capabilities::CAPABILITIES;
use svc_overlay::config::Options;
use svc_overlay::{Overlay as Handle, OverlayOptions, specs};

use super::{Code, Failure, Installed, Parts, Section, Service};
use crate::config::cpus;
use crate::ingress::{ConnectionSlot, PeerPort};

/// The overlay as a service of the node.
pub struct Overlay;

impl Service for Overlay {
    fn spec(&self) -> &'static ServiceSpec {
        &specs::OVERLAY
    }

    fn queues(&self) -> Vec<&'static QueueSpec> {
        specs::queues().collect()
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        svc_overlay::METRICS
    }

    fn sections(&self) -> &'static [Section] {
        const SECTIONS: &[Section] = &[Section::of::<Options>("overlay")];
        SECTIONS
    }

    fn capabilities(&self) -> Option<&'static Capabilities> {
        Some(&CAPABILITIES)
    }

    fn surfaces(&self) -> &'static [&'static Surface] {
        static SURFACES: [&Surface; 1] = [&OVERLAY_SURFACE];
        &SURFACES
    }

    fn install(&self, node: &mut Parts<'_>) -> Result<Installed, Failure> {
        let config = node.config.keep();
        let options = config.value.section::<Options>();
        let live = node.config.derive(|config| config.section::<Options>().live());
        let tls = Tls::new(node.key, options.tls_pq.into())
            .map_err(|error| Failure::new(Code::CannotStart, format!("the node's certificate: {error}")))?;
        let fixed = OverlayOptions {
            tls: tls.clone(),
            node_id: node.key.node_id(),
            listen: node.oap_address,
            engines: if options.engines == 0 { cpus() } else { options.engines },
            egress_overflow: options.egress_overflow,
            ring_bytes: options.ring_bytes.bytes(),
        };
        let overlay = svc_overlay::install(node.builder, fixed, live);
        let authority = node.authority.clone();
        let frames = ron_api::overlay_frames(overlay.clone(), authority.clone());
        let peers: Arc<dyn PeerPort> = Arc::new(Port { overlay: overlay.clone(), tls });
        let routes = Box::new(move |plane| ron_api::overlay_routes(plane, overlay, authority));
        Ok(Installed { routes, frames: vec![frames], peers: Some(peers) })
    }
}

/// The overlay's end of the framed plane.
struct Port {
    overlay: Handle,
    tls: Tls,
}

impl PeerPort for Port {
    fn tls(&self) -> &Tls {
        &self.tls
    }

    fn limits(&self) -> SessionLimits {
        self.overlay.session_limits()
    }

    fn offer(&self, session: Session, slot: ConnectionSlot) -> Result<(), Error> {
        self.overlay.offer_session(session, Box::new(slot))
    }

    fn count_failure(&self, error: &ConnectError) {
        self.overlay.count_failed_handshake(error);
    }
}
