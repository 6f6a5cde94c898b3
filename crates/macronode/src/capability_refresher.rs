//! The capability refresher: forgets tokens past their time and takes up revocations.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ron_auth::{Authority, RevocationsFile};
use ron_kernel::{TaskContext, TaskResult, clock};

use crate::specs;

/// Pause between two looks at the revocation file; a revocation is effective within this time.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Condition of the unit, as `/readyz` and the metrics name it.
const CONDITION: &str = "revocations";

/// What is wrong with the list of revoked tokens, for people. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct ListProblem(Arc<Mutex<Option<String>>>);

impl ListProblem {
    /// The problem, if there is one now.
    pub fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces what is known; true if it is news.
    fn set(&self, problem: Option<String>) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = *known != problem;
        *known = problem;
        is_news
    }
}

/// The task: takes up changes of the revocation file until it is told to stop.
pub async fn capability_refresher(
    context: TaskContext,
    authority: Authority,
    revocations: Option<Arc<PathBuf>>,
    problem: ListProblem,
) -> TaskResult {
    let mut list = revocations.map(|path| RevocationsFile::new(path.to_path_buf()));
    refresh(&context, &authority, &mut list, &problem).await?;
    context.ready().await;
    loop {
        tokio::select! {
            () = context.stopping() => return Ok(()),
            () = context.beating(tokio::time::sleep(LOOK_EVERY)) => {
                refresh(&context, &authority, &mut list, &problem).await?;
            }
        }
    }
}

/// Takes up the list where it may have changed. A node that cannot read all of it might let in what was taken back, so
/// that it is not ready until the list is mended; what could be read holds meanwhile.
async fn refresh(
    context: &TaskContext,
    authority: &Authority,
    list: &mut Option<RevocationsFile>,
    problem: &ListProblem,
) -> TaskResult {
    authority.trim();
    let Some(mut file) = list.take() else { return Ok(()) };
    let path = file.path().to_path_buf();
    let looking = tokio::task::spawn_blocking(move || {
        let changes = file.changes(clock::unix_millis());
        (file, changes)
    });
    let Ok((file, changes)) = looking.await else {
        *list = Some(RevocationsFile::new(path));
        return Ok(());
    };
    *list = Some(file);
    let Some(changes) = changes else { return Ok(()) };
    let found = authority.follow(changes);
    let found = found.map(|found| format!("the list of revoked tokens {}: {found}", path.display()));
    let is_bad = found.is_some();
    if problem.set(found) {
        match problem.get() {
            Some(problem) => tracing::error!("{problem}"),
            None => tracing::info!("the list of revoked tokens can be read"),
        }
        context.kernel().dependency(specs::ACCESS.name, CONDITION, !is_bad).await?;
    }
    Ok(())
}
