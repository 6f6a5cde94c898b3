//! The thread the admin plane runs on: its start, its death, its restart, its end.

use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ron_kernel::{KernelHandle, TaskContext, TaskError, TaskResult};
use ron_types::web_page::OwnNames;
use rustls::ServerConfig;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::connection::{ConnectionSettings, serve};
use crate::control::Control;
use crate::process::ProcessNumbers;
use crate::routes::{Plane, router};
use crate::token::OperatorToken;

/// Interval and number of looks at a stopping thread before it is given up: one second in all.
const STOP_LOOKS: (Duration, u32) = (Duration::from_millis(5), 200);

/// Settings of the admin plane.
pub struct AdminOptions {
    /// Listener, bound before anything else starts.
    pub listener: TcpListener,
    /// TLS, where the operator asked for it.
    pub tls: Option<Arc<ServerConfig>>,
    /// Token that control requests must show.
    pub token: OperatorToken,
    /// Whether tasks may be killed and frozen on request.
    pub chaos: bool,
    /// Connections at once; more are closed at accept.
    pub connections_max: usize,
}

/// The admin plane on its own thread with its own runtime.
pub struct AdminThread {
    settings: Arc<ConnectionSettings>,
    life: Mutex<Life>,
}

struct Life {
    /// Kept so that a restarted thread takes up the connections that waited meanwhile; none once stopped for good.
    listener: Option<TcpListener>,
    running: Option<Running>,
}

struct Running {
    stop: watch::Sender<bool>,
    /// The thread holds the sender: when it is gone, so is the thread, whatever ended it.
    gone: watch::Receiver<()>,
    asked_to_stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl AdminThread {
    /// Starts serving; an error means that nothing was started.
    pub fn start(options: AdminOptions, kernel: KernelHandle, control: Arc<dyn Control>) -> io::Result<AdminThread> {
        let metrics = Arc::clone(kernel.metrics());
        metrics.register_collector(Box::new(ProcessNumbers::new()));
        let is_loopback = options.listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
        let own_names = is_loopback.then(OwnNames::default);
        let plane = Arc::new(Plane { kernel, control, token: options.token, own_names });
        let settings = ConnectionSettings {
            router: router(plane, options.chaos),
            tls: options.tls.map(|config| TlsAcceptor::from(http1_only(&config))),
            connections_max: options.connections_max,
            metrics,
        };
        let life = Life { listener: Some(options.listener), running: None };
        let admin = AdminThread { settings: Arc::new(settings), life: Mutex::new(life) };
        admin.restart()?;
        Ok(admin)
    }

    /// Whether the thread runs.
    pub fn is_alive(&self) -> bool {
        self.life().running.as_ref().is_some_and(|running| !running.thread.is_finished())
    }

    /// Resolves if the thread ended although nobody asked it to. Cancel-safe.
    pub async fn died(&self) {
        let watched =
            self.life().running.as_ref().map(|running| (running.gone.clone(), running.asked_to_stop.subscribe()));
        let Some((mut gone, asked_to_stop)) = watched else { return std::future::pending().await };
        while gone.changed().await.is_ok() {}
        if *asked_to_stop.borrow() {
            std::future::pending().await
        }
    }

    /// Ends the thread if it runs, and starts a new one on the same listener.
    pub fn restart(&self) -> io::Result<()> {
        let mut life = self.life();
        if let Some(running) = life.running.take() {
            running.end();
        }
        let listener = life.listener.as_ref().ok_or_else(|| io::Error::other("the admin plane was stopped"))?;
        life.running = Some(Running::start(listener.try_clone()?, Arc::clone(&self.settings))?);
        Ok(())
    }

    /// Closes the listener, lets answers in hand end, and joins the thread within a second.
    pub fn stop(&self) {
        let mut life = self.life();
        life.listener = None;
        if let Some(running) = life.running.take() {
            running.end();
        }
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the thread as if it had died by itself.
    #[cfg(test)]
    pub(crate) fn kill(&self) {
        self.life().running.as_ref().expect("running").stop.send_replace(true);
    }
}

impl Running {
    fn start(listener: TcpListener, settings: Arc<ConnectionSettings>) -> io::Result<Running> {
        let (stop, told) = watch::channel(false);
        let (alive, gone) = watch::channel(());
        let (said, heard) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("admin".to_owned()).spawn(move || {
            let _alive = alive;
            match runtime_and_listener(listener) {
                Ok((runtime, listener)) => {
                    let _ = said.send(Ok(()));
                    runtime.block_on(serve(listener, settings, told));
                }
                Err(error) => {
                    let _ = said.send(Err(error));
                }
            }
            ron_amnesia::wipe_stack();
        })?;
        let started = heard.recv().unwrap_or_else(|_| Err(io::Error::other("the admin thread ended at its start")));
        started.map(|()| Running { stop, gone, asked_to_stop: watch::Sender::new(false), thread })
    }

    fn end(self) {
        self.asked_to_stop.send_replace(true);
        self.stop.send_replace(true);
        let (pause, looks) = STOP_LOOKS;
        for _ in 0..looks {
            if self.thread.is_finished() {
                if self.thread.join().is_err() {
                    tracing::error!("the admin thread had panicked");
                }
                return;
            }
            std::thread::sleep(pause);
        }
        tracing::warn!("the admin thread did not end within a second and is left behind");
    }
}

fn runtime_and_listener(listener: TcpListener) -> io::Result<(tokio::runtime::Runtime, tokio::net::TcpListener)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    listener.set_nonblocking(true)?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    Ok((runtime, listener))
}

/// The same configuration, offering only the protocol spoken here.
fn http1_only(config: &ServerConfig) -> Arc<ServerConfig> {
    let mut config = config.clone();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// The supervised task that stands for the thread: starts it again if it died, and outlasts no drain itself while the
/// thread goes on answering until it is stopped.
pub async fn supervise(context: TaskContext, admin: Arc<AdminThread>) -> TaskResult {
    if !admin.is_alive() {
        admin.restart().map_err(|error| TaskError::Failed(format!("the admin thread cannot start: {error}")))?;
    }
    context.ready().await;
    let ended = async {
        tokio::select! {
            biased;
            () = context.stopping() => Ok(()),
            () = admin.died() => Err(TaskError::Failed("the admin thread ended".to_owned())),
        }
    };
    context.beating(ended).await
}
