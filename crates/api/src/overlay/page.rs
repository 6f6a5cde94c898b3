//! The page that shows the mesh around this node.

use ron_types::Kind;

use super::Routes;
use crate::extract::Path;
use crate::handler::HandlerResult;
use crate::operation::Operation;
use crate::web_page::{FRAME_STYLE, LIVE_SCRIPT, SCRIPT, STYLE, WebPage};

static PAGE: Operation =
    Operation::get("/overlay", "peers", "a page that shows the mesh around this node: peers, links, queues")
        .speaks(&[], &["text/html"]);

static PAGE_FILE: Operation = Operation::get("/overlay/page/{file}", "peers", "a script or style sheet of that page")
    .speaks(&[], &["text/javascript", "text/css"])
    .errors(&[Kind::NotFound]);

static FILES: WebPage = WebPage {
    html: include_str!("page/page.html"),
    files: &[
        FRAME_STYLE,
        LIVE_SCRIPT,
        ("page.css", STYLE, include_str!("page/page.css")),
        ("page.mjs", SCRIPT, include_str!("page/page.mjs")),
        ("mesh.mjs", SCRIPT, include_str!("page/mesh.mjs")),
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
