//! The accept loop and the life of one connection: bounded in number, in time and in header size.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus_client::metrics::gauge::Gauge;
use ron_kernel::scope::Children;
use ron_kernel::{Deadline, Metrics};
use ron_types::limits::{HANDSHAKE_TIMEOUT, HEADER_BYTES_MAX};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::linger::{Lingering, Unread};
use crate::places::{Places, Working};
use crate::routes::REQUEST_DEADLINE;

/// Name of the listener in metrics.
const LISTENER: &str = "admin";
/// A connection is closed after this time, so that a peer that never reads cannot keep its place.
const CONNECTION_LIFE: Duration = Duration::from_secs(60);
/// Maximum time for answers in hand once the thread is to stop.
const STOP_GRACE: Duration = Duration::from_millis(600);
/// Pause after a failed accept, which would otherwise fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Settings that all connections share.
pub(crate) struct ConnectionSettings {
    pub router: Router,
    pub tls: Option<TlsAcceptor>,
    pub connections_max: usize,
    pub metrics: Arc<Metrics>,
}

/// Accepts until told to stop, then gives the answers in hand a moment.
pub(crate) async fn serve(listener: TcpListener, settings: Arc<ConnectionSettings>, mut stop: watch::Receiver<bool>) {
    let places = Places::new(settings.connections_max);
    // Those that have left their places are reaped a little later.
    let mut children = Children::new("admin_connection", 2 * settings.connections_max, &settings.metrics);
    let told = stop.clone();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let has_entered = match places.enter(peer.ip()).await {
                    Some(place) => {
                        let worker = place.worker();
                        let connection = connection(stream, Arc::clone(&settings), told.clone(), worker);
                        children.spawn(place.hold(connection))
                    }
                    None => false,
                };
                if !has_entered {
                    settings.metrics.connections_refused.at("admin_connections_max").inc();
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the admin listener could not accept");
                settings.metrics.io_errors.at("accept").inc();
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    children.finish(Deadline::after(STOP_GRACE)).await;
}

/// Left with every request: the address of the node at which its connection was accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcceptedAt(pub Option<SocketAddr>);

async fn connection<W>(stream: TcpStream, settings: Arc<ConnectionSettings>, stop: watch::Receiver<bool>, worker: W)
where
    W: Fn() -> Working + Clone + Send + 'static,
{
    let _open = Open::count(&settings.metrics);
    // Only latency is lost if the option cannot be set.
    let _ = stream.set_nodelay(true);
    let accepted_at = AcceptedAt(stream.local_addr().ok());
    let Some(acceptor) = &settings.tls else { return talk(stream, accepted_at, &settings, stop, worker).await };
    match Deadline::after(HANDSHAKE_TIMEOUT).run("tls_handshake", acceptor.accept(stream)).await {
        Ok(Ok(stream)) => talk(stream, accepted_at, &settings, stop, worker).await,
        Ok(Err(error)) => {
            tracing::debug!(%error, "a TLS handshake with the admin plane failed");
            settings.metrics.io_errors.at("tls_handshake").inc();
        }
        Err(_) => {
            settings.metrics.io_timeouts.at("tls_handshake").inc();
        }
    }
}

async fn talk<S, W>(
    stream: S,
    accepted_at: AcceptedAt,
    settings: &ConnectionSettings,
    mut stop: watch::Receiver<bool>,
    worker: W,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    W: Fn() -> Working + Clone + Send + 'static,
{
    let router = TowerToHyperService::new(settings.router.clone().layer(axum::Extension(accepted_at)));
    let unread = Unread::default();
    let stream = Lingering::new(stream, unread.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let (answer, working) = (router.call(unread.watch(request)), worker());
        async move {
            let answer = answer.await;
            drop(working);
            answer
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE_TIMEOUT)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => {}
        () = tokio::time::sleep(CONNECTION_LIFE) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = Deadline::after(REQUEST_DEADLINE).run("admin_connection", connection).await;
}

/// Counts a connection while it lives.
struct Open(Gauge);

impl Open {
    fn count(metrics: &Metrics) -> Self {
        let open = metrics.connections_open.at(LISTENER);
        open.inc();
        Open(open)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}
