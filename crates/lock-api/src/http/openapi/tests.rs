//! Checks of the document by itself. `tests/http` compares it with a server.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{PAGE, openapi};
use crate::http::url::Verb;

fn operations() -> impl Iterator<Item = (&'static String, &'static String, &'static Value)> {
    let paths = openapi()["paths"].as_object().unwrap();
    paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().iter();
        methods.map(move |(method, operation)| (path, method, operation))
    })
}

#[test]
fn every_lock_verb_is_documented_with_its_method() {
    for verb in Verb::ALL {
        let item = &openapi()["paths"][format!("/v1/locks/{{name}}/{}", verb.word())];
        let methods: Vec<_> = item.as_object().unwrap().keys().collect();
        let method = verb.method().split(',').next().unwrap().to_ascii_lowercase();
        assert_eq!(methods, [&method], "{verb:?}");
    }
}

#[test]
fn operations_have_names_of_their_own_and_say_what_they_take() {
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations() {
        let at = format!("{method} {path}");
        assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{at}");
        let parameters = operation["parameters"].as_array();
        let named: BTreeSet<_> = parameters
            .into_iter()
            .flatten()
            .filter(|parameter| parameter["in"] == "path")
            .map(|parameter| format!("{{{}}}", parameter["name"].as_str().unwrap()))
            .collect();
        let in_path: BTreeSet<_> = path
            .split('/')
            .filter(|part| part.starts_with('{'))
            .map(str::to_owned)
            .collect();
        assert_eq!(named, in_path, "{at}");
    }
}

#[test]
fn every_schema_is_referred_to_and_every_reference_resolves() {
    let mut named = BTreeSet::new();
    references(openapi(), &mut named);
    let schemas = openapi()["components"]["schemas"].as_object().unwrap();
    assert_eq!(named, schemas.keys().map(String::as_str).collect());
}

fn references<'v>(value: &'v Value, found: &mut BTreeSet<&'v str>) {
    match value {
        Value::Object(fields) => {
            if let Some(name) = fields.get("$ref").and_then(Value::as_str) {
                found.insert(name.strip_prefix("#/components/schemas/").unwrap());
            }
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(all) => all.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn the_page_shows_every_operation_and_schema_and_fetches_nothing() {
    let page = std::str::from_utf8(&PAGE).unwrap();
    for (_, _, operation) in operations() {
        let id = operation["operationId"].as_str().unwrap();
        assert!(page.contains(&format!("<article id=\"{id}\">")), "{id}");
    }
    for name in openapi()["components"]["schemas"].as_object().unwrap().keys() {
        assert!(
            page.contains(&format!("<article id=\"schema-{name}\">")),
            "{name}"
        );
    }
    for elsewhere in ["<script", "src=", "style=", "href=\"http", "@import"] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
    for element in [
        "article", "section", "table", "tr", "td", "pre", "code", "ul", "li", "strong",
    ] {
        let opened =
            page.matches(&format!("<{element}>")).count() + page.matches(&format!("<{element} ")).count();
        assert_eq!(
            opened,
            page.matches(&format!("</{element}>")).count(),
            "{element}"
        );
    }
}

#[test]
fn every_object_has_a_name() {
    let document = openapi();
    let mut nameless = Vec::new();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        for (field, value) in schema.as_object().unwrap() {
            nameless_objects(&format!("{name}/{field}"), value, &mut nameless);
        }
    }
    nameless_objects("paths", &document["paths"], &mut nameless);
    assert_eq!(nameless, [""; 0]);
}

fn nameless_objects(at: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let choices = ["oneOf", "anyOf", "allOf"]
                .iter()
                .filter_map(|of| fields.get(*of));
            let is_choice = choices
                .flat_map(|choices| choices.as_array().unwrap())
                .any(|choice| choice["type"] == "object");
            if is_choice
                || fields.get("type").is_some_and(|of| of == "object") && fields.contains_key("properties")
            {
                found.push(at.to_owned());
            }
            for (name, value) in fields {
                nameless_objects(&format!("{at}/{name}"), value, found);
            }
        }
        Value::Array(all) => all.iter().for_each(|value| nameless_objects(at, value, found)),
        _ => {}
    }
}
