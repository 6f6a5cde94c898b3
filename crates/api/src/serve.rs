//! The accept loop: takes connections, hands each to a child, and in a drain lets them end with their answers.

use std::io;
use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use ron_kernel::connection_limiter::{ConnectionLimiter, Slot};
use ron_kernel::scope::Children;
use ron_kernel::snapshot::Versioned;
use ron_kernel::{Deadline, TaskContext, TaskError, TaskResult};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::connection::serve_connection;
use crate::connection_state::ConnectionState;
use crate::limits::HttpLimits;
use crate::refusal::Refusals;
use crate::route::{Api, Peer};
use crate::socket;
use crate::write_stall::WriteStallGuard;

/// The limiter bounds connections by limits that change while it runs; this only catches what the limiter cannot.
const CONNECTION_TASKS_MAX: usize = 1 << 20;

/// Pause of the accept loop when the system has no file descriptor or memory for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const TIDY_EVERY: Duration = Duration::from_millis(500);

/// Serves the plane on a listener until the task is told to stop. May be called again, with the listener cloned.
pub async fn serve(
    context: TaskContext,
    listener: StdListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    api: Api,
) -> TaskResult {
    let listener = listen(listener).map_err(|error| TaskError::Failed(format!("the listener is unusable: {error}")))?;
    let (drain, draining) = watch::channel(false);
    let mut plane = Plane {
        limiter: ConnectionLimiter::new("http", &api.shared.metrics, api.shared.limits.get().value.connections()),
        refusals: Refusals::new(),
        children: Children::new("http_connection", CONNECTION_TASKS_MAX, &api.shared.metrics),
        api: api.secured(tls.is_some()),
        tls: tls.map(TlsAcceptor::from),
        draining,
    };
    if let Ok(address) = listener.local_addr() {
        plane.api.listens_at(address);
    }
    plane.api.shared.entrance.open();
    context.ready().await;
    plane.accept_until_stopped(&context, &listener).await;
    drop(listener);
    plane.api.shared.entrance.close();
    drain.send_replace(true);
    context.beating(plane.children.finish(context.stop_deadline())).await;
    Ok(())
}

fn listen(listener: StdListener) -> io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// State of the listener from its start to its end or restart.
struct Plane {
    api: Api,
    tls: Option<TlsAcceptor>,
    limiter: ConnectionLimiter,
    refusals: Refusals,
    children: Children,
    draining: watch::Receiver<bool>,
}

impl Plane {
    async fn accept_until_stopped(&mut self, context: &TaskContext, listener: &TcpListener) {
        let stopping = context.stopping();
        tokio::pin!(stopping);
        let mut tidy = tokio::time::interval(TIDY_EVERY);
        loop {
            tokio::select! {
                biased;
                () = &mut stopping => return,
                _ = tidy.tick() => {
                    // Under a flood of connections the last branch may never get its turn.
                    context.beat();
                    self.limiter.tidy();
                    self.refusals.tidy();
                }
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => self.take(stream, peer.ip()),
                    Err(error) if is_the_peers_doing(&error) => {}
                    Err(error) => {
                        self.api.shared.metrics.io_errors.at("accept").inc();
                        tracing::warn!(%error, "cannot accept; resting for a moment");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                () = context.heartbeat() => {}
            }
        }
    }

    fn take(&mut self, stream: TcpStream, ip: std::net::IpAddr) {
        let limits = self.api.shared.limits.keep();
        let slot = match self.limiter.admit(ip, limits.value.connections()) {
            Ok(slot) => slot,
            Err(refusal) => {
                // Without the handshake there is nothing a TLS client could read.
                if self.tls.is_none() {
                    self.refusals.refuse(stream, refusal, limits.value.connections_max);
                }
                return;
            }
        };
        let api = self.api.clone().met_by(Peer::new(ip, stream.local_addr().ok()));
        let (tls, draining) = (self.tls.clone(), self.draining.clone());
        self.children.spawn(connection(stream, tls, api, limits, draining, slot));
    }
}

async fn connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    api: Api,
    limits: Arc<Versioned<HttpLimits>>,
    draining: watch::Receiver<bool>,
    _slot: Slot,
) {
    let limits = &limits.value;
    socket::prepare(&stream, limits);
    let pace = ConnectionState::new(limits);
    let stream = WriteStallGuard::new(stream, Arc::clone(&pace));
    let Some(tls) = tls else {
        return serve_connection(stream, pace, api, limits, draining).await;
    };
    if let Some(stream) = shake_hands(stream, &tls, &api, limits, draining.clone()).await {
        // Boxed, so that plain connections do not carry the room for it.
        Box::pin(serve_connection(stream, pace, api, limits, draining)).await;
    }
}

async fn shake_hands(
    stream: WriteStallGuard<TcpStream>,
    tls: &TlsAcceptor,
    api: &Api,
    limits: &HttpLimits,
    mut draining: watch::Receiver<bool>,
) -> Option<tokio_rustls::server::TlsStream<WriteStallGuard<TcpStream>>> {
    let deadline = Deadline::after(limits.handshake_timeout);
    let outcome = tokio::select! {
        outcome = deadline.run("handshake", tls.accept(stream)) => outcome,
        _ = draining.wait_for(|draining| *draining) => return None,
    };
    let metrics = &api.shared.metrics;
    match outcome {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => {
            metrics.io_errors.at("handshake").inc();
            tracing::debug!(%error, "a TLS handshake failed");
        }
        Err(_) => {
            metrics.io_timeouts.at("handshake").inc();
        }
    }
    None
}

/// Errors of a connection that ended between arriving and being accepted.
fn is_the_peers_doing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
