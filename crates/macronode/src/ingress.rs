//! The framed plane: one port for other nodes and for clients, OAP/1 over TLS.
//!
//! The task accepts connections within the listener's limits and does the handshake, in which a node shows its
//! certificate and a client none. Sessions of nodes go to the service that keeps them; sessions of clients are served
//! here: each frame goes to the surface of its application, whole requests by way of the work queue.

mod arrivals;
mod client;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use oap::Hello;
use ron_api::SharedShares;
use ron_api::frames::FrameSurface;
use ron_auth::Authority;
use ron_kernel::connection_limiter::{ConnectionLimiter, Slot};
use ron_kernel::scope::Children;
use ron_kernel::{Deadline, KernelHandle, Metrics, Snapshot, TaskContext, TaskError, TaskResult};
use ron_transport::{ConnectError, GoAway, NodeId, Remote, Session, SessionLimits, Tls};
use ron_types::{Error, Kind};
use tokio::net::TcpListener;

use self::arrivals::{Arrival, Arrivals};
use crate::config::Config;
use crate::work::WorkPort;

/// After a failed accept the listener rests this long: the usual cause is a lack of file descriptors.
const ACCEPT_REST: Duration = Duration::from_millis(50);
/// Pause between two rounds in which the listener forgets quiet addresses and beats.
const TIDY_EVERY: Duration = Duration::from_millis(500);
/// Time a refused session has to read why.
const REFUSAL_TIME: Duration = Duration::from_secs(1);

/// Slot of a connection at the listener, given back when the connection ends.
pub type ConnectionSlot = Slot;

/// The service that keeps sessions with other nodes.
pub trait PeerPort: Send + Sync {
    /// Identity and key exchange of the plane.
    fn tls(&self) -> &Tls;
    /// Bounds of a session with a node.
    fn limits(&self) -> SessionLimits;
    /// Hands over a session that another node opened.
    fn offer(&self, session: Session, slot: ConnectionSlot) -> Result<(), Error>;
    /// A session with a client began.
    fn count_session(&self, tls_group: &'static str);
    /// A handshake came to nothing.
    fn count_failure(&self, error: &ConnectError);
}

/// The surface of a service on the plane.
#[derive(Clone)]
pub struct ServedSurface {
    /// Service that does the work; while that is not to be asked, its requests are refused.
    pub service: &'static str,
    /// Its surface.
    pub surface: Arc<dyn FrameSurface>,
}

/// What the plane serves.
#[derive(Clone)]
pub struct Ingress {
    /// The configuration in force.
    pub config: Snapshot<Config>,
    /// Identity of the plane.
    pub tls: Tls,
    /// Id of this node.
    pub node_id: NodeId,
    /// Decides on tokens.
    pub authority: Authority,
    /// Sessions of other nodes; none on a node without a service for them.
    pub peers: Option<Arc<dyn PeerPort>>,
    /// Surfaces of services, by application.
    pub surfaces: Arc<[ServedSurface]>,
    /// Kernel of the node, which knows the services that are not to be asked.
    pub kernel: KernelHandle,
    /// What its callers share with those of the HTTP plane.
    pub shares: Arc<SharedShares>,
    /// Way to the workers.
    pub work: WorkPort,
}

impl Ingress {
    fn limits(&self) -> SessionLimits {
        let config = self.config.get();
        let bounds = self.peers.as_ref().map_or_else(SessionLimits::default, |peers| peers.limits());
        SessionLimits {
            frame_bytes_max: config.value.oap.max_frame_bytes.bytes(),
            read_timeout: config.value.io.read_timeout.duration(),
            write_stall: config.value.io.write_timeout.duration(),
            ..bounds
        }
    }

    fn hello(&self, limits: &SessionLimits) -> Hello {
        let frame_bytes_max = u32::try_from(limits.frame_bytes_max).unwrap_or(u32::MAX);
        let hello = Hello::new(frame_bytes_max, limits.max_inflight);
        let features = vec![oap::FEATURE_ZSTD.to_owned()];
        Hello { node_id: Some(self.node_id.to_string()), features, ..hello }
    }
}

/// The task: accepts connections and serves them until it is told to stop.
pub async fn transport_ingress(context: TaskContext, listener: std::net::TcpListener, ingress: Ingress) -> TaskResult {
    let listener = TcpListener::from_std(listener).map_err(|error| TaskError::Failed(error.to_string()))?;
    let arrivals = Arrivals::new(listener, &ingress).map_err(|error| TaskError::Failed(error.to_string()))?;
    let metrics = Arc::clone(context.kernel().metrics());
    let connection_limits = || ingress.config.get().value.connection_limits();
    let mut limiter = ConnectionLimiter::new("oap", &metrics, connection_limits());
    // The limiter bounds connections by limits that may change; this only catches what the limiter cannot.
    let mut connections = Children::new("oap_connection", usize::MAX, &metrics);
    let mut tidy = tokio::time::interval(TIDY_EVERY);
    context.ready().await;
    loop {
        let accepted = tokio::select! {
            biased;
            () = context.stopping() => break,
            _ = tidy.tick() => {
                context.beat();
                limiter.tidy();
                continue;
            }
            accepted = arrivals.next() => accepted,
        };
        match accepted {
            Ok((arrival, address)) => {
                // Refused before the handshake: it is the costly part, and without it there is nothing to answer in.
                let Ok(slot) = limiter.admit(address.ip(), connection_limits()) else { continue };
                let metrics = Arc::clone(&metrics);
                let connection = Connection { context: context.clone(), ingress: ingress.clone(), metrics, address };
                connections.spawn(connection.serve(arrival, slot));
            }
            Err(error) => {
                metrics.io_errors.at("accept").inc();
                tracing::warn!(%error, "cannot accept");
                tokio::time::sleep(ACCEPT_REST).await;
            }
        }
    }
    arrivals.close();
    connections.finish(context.stop_deadline()).await;
    Ok(())
}

/// One connection.
struct Connection {
    context: TaskContext,
    ingress: Ingress,
    metrics: Arc<Metrics>,
    address: SocketAddr,
}

impl Connection {
    async fn serve(self, arrival: Arrival, slot: Slot) {
        let limits = self.ingress.limits();
        let hello = self.ingress.hello(&limits);
        let accepting = arrival.accept(&self.ingress.tls, hello, &limits);
        let accepted = tokio::select! {
            () = self.context.stopping() => return,
            accepted = accepting => accepted,
        };
        let session = match accepted {
            Ok(session) => session,
            Err(error) => return self.count_failure(&error),
        };
        match (session.facts.remote, &self.ingress.peers) {
            (Remote::Client, peers) => {
                if let Some(peers) = peers {
                    peers.count_session(session.facts.tls_group);
                }
                client::serve(self.context, self.ingress, self.metrics, session, slot).await;
            }
            (Remote::Node(_), Some(peers)) => {
                if let Err(error) = peers.offer(session, slot) {
                    tracing::debug!(address = %self.address, %error, "a node's session found no room");
                }
            }
            (Remote::Node(_), None) => {
                refuse(session, &Error::new(Kind::NotFound, "this node keeps no sessions with others")).await;
            }
        }
    }

    fn count_failure(&self, error: &ConnectError) {
        tracing::debug!(address = %self.address, %error, "a handshake came to nothing");
        if matches!(error, ConnectError::Timeout { .. }) {
            self.metrics.io_timeouts.at("handshake").inc();
        }
        if let Some(peers) = &self.ingress.peers {
            peers.count_failure(error);
        }
    }
}

/// Says why, for a moment, then cuts the connection.
async fn refuse(session: Session, error: &Error) {
    let farewell = GoAway::new(error.kind.http_status(), 0, error.to_string());
    session.outbox.close(&farewell, Deadline::after(REFUSAL_TIME));
    let _ = Deadline::after(REFUSAL_TIME).run("refusal", session.writer.run()).await;
}
