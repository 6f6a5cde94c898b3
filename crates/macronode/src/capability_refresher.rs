//! The capability refresher: forgets verdicts past their time and takes up revocations.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ron_auth::{Authority, Revocations};
use ron_kernel::{TaskContext, TaskResult};

/// Pause between two looks at the revocation file; a revocation is effective within this time.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The task: takes up changes of the revocation file until it is told to stop.
pub async fn capability_refresher(
    context: TaskContext,
    authority: Authority,
    revocations: Option<Arc<PathBuf>>,
) -> TaskResult {
    refresh(&authority, revocations.clone()).await;
    context.ready().await;
    loop {
        tokio::select! {
            () = context.stopping() => return Ok(()),
            () = context.beating(tokio::time::sleep(LOOK_EVERY)) => refresh(&authority, revocations.clone()).await,
        }
    }
}

async fn refresh(authority: &Authority, revocations: Option<Arc<PathBuf>>) {
    authority.trim();
    let Some(path) = revocations else { return };
    match tokio::task::spawn_blocking(move || Revocations::load(&path)).await {
        Ok(Ok(revoked)) => authority.set_revoked(revoked.ids),
        Ok(Err(error)) => {
            tracing::error!(%error, "the list of revoked capabilities cannot be read; the last one stays in force")
        }
        Err(_) => {}
    }
}
