//! The operations of all surfaces as a page of Markdown.

use std::fmt::Write as _;

use crate::openapi;
use crate::operation::Operation;
use crate::surface::{Service, Surface, services};

const INTRODUCTION: &str = "# HTTP

This page is generated from the operations that the surfaces declare. A running node describes the same at
`/openapi.json`, for programs, and at `/docs`, for people.

A token goes into the header `Authorization: Bearer <token>`. Beside the answers listed, any operation may refuse with
400, 429, 503 and 504, and one that needs a token with 401 and 403.
";

/// The text of docs/http.md: what each of these surfaces offers, and the description that every plane has.
pub fn http_reference(surfaces: &[&Surface]) -> String {
    let all: Vec<&Surface> = surfaces.iter().copied().chain([&openapi::SURFACE]).collect();
    services(&all).iter().fold(INTRODUCTION.to_owned(), |page, service| page + &section(service))
}

fn section(service: &Service<'_>) -> String {
    let heading = format!("\n## {}\n\n{}\n", service.name, service.about());
    service.tag_names().into_iter().fold(heading, |page, tag| {
        let operations = service.surfaces.iter().flat_map(|surface| surface.operations.iter().copied());
        page + &group(tag, &operations.filter(|operation| operation.tag == tag).collect::<Vec<_>>())
    })
}

fn group(tag: &str, operations: &[&Operation]) -> String {
    let mut text = format!("\n### {tag}\n\n| operation | needs | does | answers |\n| --- | --- | --- | --- |\n");
    text.extend(operations.iter().map(|operation| row(operation)));
    let examples: String = operations.iter().filter_map(|operation| example(operation)).collect();
    if !examples.is_empty() {
        // A text that grows cannot fail to be written to.
        let _ = write!(text, "\n```http\n{examples}```\n");
    }
    text
}

fn row(operation: &Operation) -> String {
    let spec = &operation.spec;
    let needs = match (operation.needs_text, operation.needs) {
        (Some(text), _) => text.to_owned(),
        (None, Some(op)) => format!("`{op}`"),
        (None, None) => String::new(),
    };
    format!("| `{} {}` | {needs} | {} | {} |\n", spec.method.name(), spec.pattern, spec.does, answers(operation))
}

/// Statuses of what was done, and those refusals that not every operation has.
fn answers(operation: &Operation) -> String {
    let done = operation.success_statuses().iter().map(|status| (*status).to_owned());
    let refused = operation.errors.iter().map(|kind| format!("{} `{}`", operation.status_of(*kind), kind.code()));
    done.chain(refused).collect::<Vec<_>>().join(", ")
}

fn example(operation: &Operation) -> Option<String> {
    let body = operation.body.as_ref()?;
    Some(format!("{} {}\n{}\n", operation.spec.method.name(), operation.spec.pattern, body.example))
}

#[cfg(test)]
mod tests {
    use ron_auth::Action;
    use ron_types::Kind;
    use serde::Deserialize;
    use utoipa::ToSchema;

    use super::*;

    #[derive(Deserialize, ToSchema)]
    #[serde(transparent)]
    struct Shelf {
        #[expect(dead_code, reason = "only described")]
        books: Vec<String>,
    }

    static READ: Operation = Operation::get("/books/{id}", "books", "shows a book").errors(&[Kind::NotFound]);
    static WRITE: Operation =
        Operation::post("/books", "books", "adds books").allows(Action::new("books:add")).body::<Shelf>(r#"["a"]"#);
    static LEND: Operation = Operation::post("/loans", "loans", "lends a book").needs("a card of the library");

    static BOOKS: Surface =
        Surface { service: "library", about: "Books.", tags: &["books"], operations: &[&READ, &WRITE] };
    static LOANS: Surface = Surface { service: "library", about: "Loans.", tags: &["loans"], operations: &[&LEND] };

    const EXPECTED: &str = "
## library

Books.

Loans.

### books

| operation | needs | does | answers |
| --- | --- | --- | --- |
| `GET /books/{id}` |  | shows a book | 200, 404 `E_NOT_FOUND` |
| `POST /books` | `books:add` | adds books | 204 |

```http
POST /books
[\"a\"]
```

### loans

| operation | needs | does | answers |
| --- | --- | --- | --- |
| `POST /loans` | a card of the library | lends a book | 200 |

## node

The description you are reading.
";

    #[test]
    fn surfaces_of_one_service_stand_together_and_each_tag_has_its_table() {
        let page = http_reference(&[&BOOKS, &LOANS]);
        let described = page.strip_prefix(INTRODUCTION).expect("an introduction first");
        assert!(described.starts_with(EXPECTED), "{described}");
        assert!(described.contains("| `GET /openapi.json` |"), "{described}");
        assert_eq!(page, http_reference(&[&BOOKS, &LOANS]));
    }
}
