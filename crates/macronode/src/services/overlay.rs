//! The overlay: sessions with other nodes, and lanes of live messages between them.

mod commands;

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use ron_api::{OVERLAY_SURFACE, Surface};
use ron_auth::Capabilities;
use ron_kernel::metrics::MetricSpec;
use ron_kernel::spec::{QueueSpec, ServiceSpec};
use ron_transport::{ConnectError, Session, SessionLimits, Tls};
use ron_types::Error;
use svc_overlay::capabilities::CAPABILITIES;
use svc_overlay::config::{FrameLimits, Options};
use svc_overlay::{Overlay as Handle, OverlayOptions, specs};

use super::{ApiClient, Code, Failure, Installed, Pane, Parts, Section, Service, ServiceCommand};
use crate::config::Config;
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

    fn commands(&self) -> Vec<ServiceCommand> {
        vec![ServiceCommand::new(
            "overlay",
            "Join nodes, publish and hear live messages, follow their way",
            &["macronode overlay pub chat hello       publish on a lane; then: overlay sub chat"],
            commands::overlay,
        )]
    }

    fn panes(&self) -> Vec<Box<dyn Pane>> {
        commands::panes()
    }

    fn has_joined<'a>(&'a self, api: &'a mut ApiClient) -> LocalBoxFuture<'a, Result<bool, Failure>> {
        Box::pin(commands::has_joined(api))
    }

    fn install(&self, node: &mut Parts<'_>) -> Result<Installed, Failure> {
        let config = node.config.keep();
        let options = config.value.section::<Options>();
        let live = node.config.derive(|config| config.section::<Options>().live(frame_limits(config)));
        let tls = Tls::new(node.key, options.tls_pq.into())
            .map_err(|error| Failure::new(Code::CannotStart, format!("the node's certificate: {error}")))?;
        let (key, node_id) = (node.key.clone(), node.key.node_id());
        let fixed = OverlayOptions { tls: tls.clone(), node_id, key, listen: node.oap_address };
        let overlay = svc_overlay::install(node.builder, fixed, live);
        node.ports.offer(overlay.clone());
        let authority = node.authority.clone();
        let frames = ron_api::overlay_frames(overlay.clone(), authority.clone());
        let peers: Arc<dyn PeerPort> = Arc::new(Port { overlay: overlay.clone(), tls });
        let routes = Box::new(move |plane| ron_api::overlay_routes(plane, overlay, authority));
        Ok(Installed { routes, frames: vec![frames], peers: Some(peers) })
    }
}

/// Sessions that this node opens keep the bounds of those that it accepts.
fn frame_limits(config: &Config) -> FrameLimits {
    FrameLimits {
        frame_bytes_max: config.oap.max_frame_bytes.bytes(),
        read_timeout: config.io.read_timeout.duration(),
        write_timeout: config.io.write_timeout.duration(),
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

    fn count_session(&self, tls_group: &'static str) {
        self.overlay.count_session(tls_group);
    }

    fn count_failure(&self, error: &ConnectError) {
        self.overlay.count_failed_handshake(error);
    }
}

#[cfg(test)]
mod tests {
    use crate::cli;

    #[test]
    fn every_command_parses() {
        let id = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
        for line in [
            "overlay id --data-dir d --json",
            "overlay peers --api 127.0.0.1:1 --token x",
            &format!("overlay connect {id}@[::1]:9500 --json"),
            &format!("overlay disconnect {id}"),
            "overlay pub chat hello --json",
            "overlay pub chat --file f",
            "overlay pub chat -",
            &format!("overlay sub chat --from {id}:3 --no-own --count 5 --json"),
            "overlay trace 00112233445566778899aabbccddeeff --data-dir a --data-dir b --json",
        ] {
            let line = format!("macronode {line}");
            assert!(cli::parse(line.split_whitespace().map(Into::into)).is_ok(), "{line}");
        }
        for line in [
            "overlay connect 127.0.0.1:9500",
            "overlay connect x@127.0.0.1:9500",
            "overlay disconnect x",
            "overlay pub chat text --file f",
            "overlay trace 0011",
        ] {
            let line = format!("macronode {line}");
            assert!(cli::parse(line.split_whitespace().map(Into::into)).is_err(), "{line}");
        }
    }
}
