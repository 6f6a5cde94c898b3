//! The page that draws the last lookups of this node.

use ron_types::Kind;

use super::Routes;
use crate::extract::Path;
use crate::handler::HandlerResult;
use crate::operation::Operation;
use crate::web_page::{FRAME_STYLE, LIVE_SCRIPT, SCRIPT, STYLE, WebPage};

static PAGE: Operation = Operation::get(
    "/index",
    "upkeep",
    "a page that draws the last lookups of this node: whom it asked, when, and who won",
)
.speaks(&[], &["text/html"]);

static PAGE_FILE: Operation = Operation::get("/index/page/{file}", "upkeep", "a script or style sheet of that page")
    .speaks(&[], &["text/javascript", "text/css"])
    .errors(&[Kind::NotFound]);

static FILES: WebPage = WebPage {
    html: include_str!("page/page.html"),
    files: &[
        FRAME_STYLE,
        LIVE_SCRIPT,
        ("page.css", STYLE, include_str!("page/page.css")),
        ("page.mjs", SCRIPT, include_str!("page/page.mjs")),
        ("course.mjs", SCRIPT, include_str!("page/course.mjs")),
    ],
};

pub(super) const OPERATIONS: &[&Operation] = &[&PAGE, &PAGE_FILE];

pub(super) fn routes(routes: Routes) -> Routes {
    routes.add(&PAGE, page).add(&PAGE_FILE, file)
}

async fn page() -> HandlerResult {
    Ok(FILES.page())
}

async fn file(name: Path<String>) -> HandlerResult {
    FILES.file(&name.0)
}
