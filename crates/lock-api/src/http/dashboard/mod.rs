//! Dashboard: a page for operators, part of the program. This module serves static files that are the same for all users.
//! The page fetches its content through the API on behalf of its user, so it needs no rights of its own.
//!
//! `page/` has the files as browsers get them: HTML, a style sheet, and ES modules, without a build step.

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderValue, Uri};
use axum::response::Response;

use super::extract::{HandlerResult, no_query};
use super::problem::Problem;

/// Content security policy of the page. It loads all resources from this node, runs only the node's own script files,
/// and never converts text to markup: assignments of strings that are parsed as HTML (`innerHTML` and the like) throw.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

const PAGE: &str = include_str!("page/index.html");

macro_rules! files {
    ($($kind:ident: $($name:literal),*;)*) => {
        &[$($(($name, $kind, include_str!(concat!("page/", $name)))),*),*]
    };
}

/// Files of the page: name, type, content.
const FILES: &[(&str, &str, &str)] = files! {
    CSS: "style.css", "parts.css";
    SVG: "icon.svg";
    SCRIPT: "app.js", "api.js", "stream.js", "dom.js", "words.js", "list.js", "pages.js", "dialog.js", "rights.js", "theme.js",
        "cluster.js", "namespaces.js", "locks.js", "lock.js", "graph.js", "sessions.js", "tree.js", "events.js", "access.js";
};

/// Serves `GET /`, the page.
pub async fn page(uri: Uri) -> HandlerResult {
    no_query(&uri)?;
    let mut response = fixed(PAGE, HTML);
    let policy = HeaderValue::from_static(PAGE_POLICY);
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    Ok(response)
}

/// Serves `GET /dashboard/{file}`, a file of the page.
pub async fn file(uri: Uri) -> HandlerResult {
    no_query(&uri)?;
    let name = uri.path().rsplit('/').next().unwrap_or_default();
    let found = FILES.iter().find(|(known, ..)| *known == name);
    let (_, kind, content) = found.ok_or_else(|| Problem::no_route(uri.path()))?;
    Ok(fixed(content, kind))
}

fn fixed(content: &'static str, content_type: &'static str) -> Response {
    let mut response = Response::new(Body::from(Bytes::from_static(content.as_bytes())));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests;
