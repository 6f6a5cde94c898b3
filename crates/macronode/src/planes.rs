//! The node's planes and their sockets: bound before anything is built, opened for each life of the task that serves.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use ron_kernel::{Snapshot, TaskContext, TaskError, TaskResult};

use crate::config::{Api, Config};
use crate::data_dir::DataDir;
use crate::errors::{Code, Failure};
use crate::listeners::Listeners;

/// How a plane answers: in the clear or by TLS.
pub type Tls = Option<Arc<rustls::ServerConfig>>;

/// All ports first: a conflict should cost milliseconds and leave nothing behind.
pub fn bind(config: &Config) -> Result<Listeners, Failure> {
    let listeners = Listeners::default();
    let admin = ("admin", config.admin.addr);
    for (plane, address) in std::iter::once(admin).chain(served(config)) {
        listeners.take(plane, address, |_| {}).map_err(|error| cannot_bind(plane, address, &error))?;
    }
    Ok(listeners)
}

/// Binds what a reload moves, ahead of the restarts that take it up.
pub fn stage(listeners: &Listeners, next: &Config) -> Result<(), Failure> {
    let mut planes = served(next);
    planes.try_for_each(|(plane, address)| {
        listeners.stage(plane, address).map_err(|error| cannot_bind(plane, address, &error))
    })
}

/// The planes of services that this configuration runs; their addresses follow a reload.
fn served(config: &Config) -> impl Iterator<Item = (&'static str, SocketAddr)> {
    let planes = [("api", config.api.addr, config.runs("http")), ("oap", config.oap.addr, config.runs("oap"))];
    planes.into_iter().filter(|(.., wanted)| *wanted).map(|(plane, address, _)| (plane, address))
}

/// A plane's address that cannot be listened on.
pub fn cannot_bind(plane: &str, address: SocketAddr, error: &io::Error) -> Failure {
    let message =
        format!("{plane}.addr = {address} cannot be listened on: {error}; choose another with --{plane} ADDR");
    Failure::new(Code::CannotBind, message)
}

/// Opens the planes' sockets for each life of their tasks, on the addresses configured at that time.
#[derive(Clone)]
pub struct PlaneSockets {
    listeners: Arc<Listeners>,
    data: DataDir,
    config: Snapshot<Config>,
    /// What HTTP was last served with. A certificate that was broken on disk since then must not keep a task that is
    /// only being restarted from coming back.
    last_tls: Arc<Mutex<Option<(TlsFiles, Tls)>>>,
}

/// Paths of certificate and key.
type TlsFiles = Option<(PathBuf, PathBuf)>;

impl PlaneSockets {
    /// The sockets of a node with this configuration.
    pub fn new(listeners: Arc<Listeners>, data: DataDir, config: Snapshot<Config>) -> Self {
        PlaneSockets { listeners, data, config, last_tls: Arc::default() }
    }

    /// Socket and certificate of the HTTP plane.
    pub fn open_http(&self) -> Result<(TcpListener, Tls), TaskError> {
        let config = self.config.get();
        let api = &config.value.api;
        let tls = self.tls_or_last(api).map_err(|failure| cannot_start(&failure))?;
        Ok((self.open("api", api.addr)?, tls))
    }

    /// Socket of the plane of frames.
    pub fn open_oap(&self) -> Result<TcpListener, TaskError> {
        self.open("oap", self.config.get().value.oap.addr)
    }

    /// Serves; a drain closes the plane's port at once, a restart leaves it open for the next life.
    pub async fn closed_by_drain(
        &self,
        plane: &'static str,
        context: &TaskContext,
        serving: impl Future<Output = TaskResult>,
    ) -> TaskResult {
        tokio::pin!(serving);
        tokio::select! {
            biased;
            () = context.stopping() => {}
            result = &mut serving => return result,
        }
        if context.kernel().is_draining() {
            self.listeners.close(plane);
        }
        serving.await
    }

    fn open(&self, plane: &'static str, address: SocketAddr) -> Result<TcpListener, TaskError> {
        let listener = self.listeners.take(plane, address, |addresses| self.data.note_addresses(addresses));
        listener.map_err(|error| cannot_start(&cannot_bind(plane, address, &error)))
    }

    /// The certificate as it is on disk now, else the one last served if the same files are meant.
    fn tls_or_last(&self, api: &Api) -> Result<Tls, Failure> {
        let mut last = self.last_tls.lock().unwrap_or_else(PoisonError::into_inner);
        let files = api.tls_cert.clone().zip(api.tls_key.clone());
        let failure = match tls_of(api) {
            Ok(tls) => {
                *last = Some((files, tls.clone()));
                return Ok(tls);
            }
            Err(failure) => failure,
        };
        match last.as_ref().filter(|(of, _)| *of == files) {
            Some((_, tls)) => {
                tracing::error!("{failure}; the certificate read before stays in use");
                Ok(tls.clone())
            }
            None => Err(failure),
        }
    }
}

fn cannot_start(failure: &Failure) -> TaskError {
    TaskError::Init { code: failure.code.exit().number(), detail: failure.to_string() }
}

/// The certificate of the HTTP plane, if it has one.
pub fn tls_of(api: &Api) -> Result<Tls, Failure> {
    tls(api.tls_cert.as_ref().zip(api.tls_key.as_ref()))
}

/// A certificate and its key, read from disk.
pub fn tls(files: Option<(&PathBuf, &PathBuf)>) -> Result<Tls, Failure> {
    let Some((certificate, key)) = files else { return Ok(None) };
    let read = |path: &PathBuf| {
        std::fs::read(path).map_err(|error| Failure::new(Code::TlsUnusable, format!("{}: {error}", path.display())))
    };
    let config = ron_api::tls_config(&read(certificate)?, &read(key)?);
    config.map(Some).map_err(|error| Failure::new(Code::TlsUnusable, format!("{}: {error}", certificate.display())))
}
