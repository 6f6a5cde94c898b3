//! Models of what threads and tasks share, which shuttle runs under random schedules; SHUTTLE_ITERATIONS sets how many.

#[cfg(test)]
mod commit;
#[cfg(test)]
mod kernel;
#[cfg(test)]
mod mailbox;
#[cfg(test)]
mod outbox;

/// Schedules of a model for every change.
#[cfg(test)]
const SCHEDULES: usize = 50_000;

/// Runs a model under so many schedules, or as many as the environment asks for.
#[cfg(test)]
fn check(schedules: usize, model: impl Fn() + Send + Sync + 'static) {
    let asked_for = std::env::var("SHUTTLE_ITERATIONS").ok().and_then(|number| number.parse().ok());
    shuttle::check_random(model, asked_for.unwrap_or(schedules));
}
