//! What the handlers of all surfaces are written with.

use axum::response::Response;

use crate::problem::Problem;

/// Every handler answers with one of these.
pub type HandlerResult = Result<Response, Problem>;

/// A handler with the application as its first argument: `with!(app, function(argument, …))`.
macro_rules! with {
    ($app:expr, $function:ident($($argument:ident),*)) => {{
        let app = std::sync::Arc::clone(&$app);
        move |$($argument),*| $function(app, $($argument),*)
    }};
}
pub(crate) use with;
