//! The document as a page for people: HTML and a style sheet, without scripts and without resources from elsewhere, so
//! that it can be read without internet access. It shows the content of the document, and adds only an example command.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::schema_text::{anchor, code_spans, describe, escape, type_of};
use crate::http::problem::Code;

/// Style sheet of the page.
pub const STYLE: &str = include_str!("style.css");

/// Order of the methods of an address.
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// Renders the page.
pub fn render(document: &Value) -> String {
    let info = &document["info"];
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title} HTTP API</title>\n<link rel=\"stylesheet\" href=\"/docs/style.css\">\n</head>\n<body>\n\
         <header>\n<h1>{title} HTTP API</h1>\n<p class=\"version\">{version}, as OpenAPI 3.1: \
         <a href=\"/v1/openapi.json\">/v1/openapi.json</a></p>\n<p>{description}</p>\n</header>\n",
        title = escape(text(&info["title"])),
        version = escape(text(&info["version"])),
        description = code_spans(text(&info["description"])),
    );
    let tags = document["tags"].as_array().map_or(&[][..], Vec::as_slice);
    contents(&mut page, document, tags);
    page.push_str("<main>\n");
    for tag in tags {
        let name = text(&tag["name"]);
        add(
            &mut page,
            format_args!(
                "<section id=\"{name}\">\n<h2>{name}</h2>\n<p>{}</p>\n",
                code_spans(text(&tag["description"]))
            ),
        );
        for (path, method, operation) in operations(document, name) {
            show(&mut page, document, path, method, operation);
        }
        page.push_str("</section>\n");
    }
    errors(&mut page);
    schemas(&mut page, &document["components"]["schemas"]);
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn add(page: &mut String, piece: std::fmt::Arguments<'_>) {
    page.write_fmt(piece).expect("memory takes it");
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

/// Returns the operations of a tag, in the order of their addresses.
fn operations<'d>(
    document: &'d Value,
    tag: &str,
) -> impl Iterator<Item = (&'d String, &'static str, &'d Value)> {
    fields(&document["paths"]).flat_map(move |(path, item)| {
        METHODS.into_iter().filter_map(move |method| {
            let operation = item.get(method)?;
            (operation["tags"][0] == tag).then_some((path, method, operation))
        })
    })
}

fn contents(page: &mut String, document: &Value, tags: &[Value]) {
    page.push_str("<nav>\n<h2>Contents</h2>\n");
    for tag in tags {
        let name = text(&tag["name"]);
        add(
            page,
            format_args!("<h3><a href=\"#{name}\">{name}</a></h3>\n<ul>\n"),
        );
        for (path, method, operation) in operations(document, name) {
            add(
                page,
                format_args!(
                    "<li><a href=\"#{id}\"><b class=\"{method}\">{method}</b> <code>{path}</code></a> {summary}</li>\n",
                    id = text(&operation["operationId"]),
                    path = escape(path),
                    summary = escape(text(&operation["summary"])),
                ),
            );
        }
        page.push_str("</ul>\n");
    }
    page.push_str(
        "<h3><a href=\"#errors\">errors</a></h3>\n<h3><a href=\"#schemas\">schemas</a></h3>\n</nav>\n",
    );
}

fn show(page: &mut String, document: &Value, path: &str, method: &str, operation: &Value) {
    add(
        page,
        format_args!(
            "<article id=\"{id}\">\n<h3><b class=\"{method}\">{method}</b> <code>{path}</code></h3>\n<p><strong>{summary}.</strong> \
             {description}</p>\n",
            id = text(&operation["operationId"]),
            path = escape(path),
            summary = code_spans(text(&operation["summary"])),
            description = code_spans(text(&operation["description"])),
        ),
    );
    let schemas = &document["components"]["schemas"];
    if let Some(parameters) = operation["parameters"].as_array() {
        page.push_str("<h4>Parameters</h4>\n<table>\n");
        for parameter in parameters {
            let place = match text(&parameter["in"]) {
                "path" => "in the address",
                "header" => "header",
                _ if parameter["required"] == true => "required",
                _ => "",
            };
            let said = match text(&parameter["description"]) {
                "" => describe(schemas, &parameter["schema"]),
                own => own.to_owned(),
            };
            row(page, text(&parameter["name"]), place, &parameter["schema"], &said);
        }
        page.push_str("</table>\n");
    }
    let body = &operation["requestBody"]["content"]["application/json"];
    if !body.is_null() {
        let optional = match operation["requestBody"]["required"] == true {
            true => "",
            false => " (may be left away)",
        };
        add(
            page,
            format_args!("<h4>Body{optional}: {}</h4>\n", type_of(&body["schema"])),
        );
        let name = text(&body["schema"]["$ref"])
            .rsplit('/')
            .next()
            .unwrap_or_default();
        table(page, schemas, &schemas[name]);
    }
    add(
        page,
        format_args!(
            "<h4>Try it</h4>\n<pre>{}</pre>\n",
            escape(&command(path, method, operation))
        ),
    );
    page.push_str("<h4>Answers</h4>\n<table>\n");
    for (status, answer) in fields(&operation["responses"]) {
        for (content_type, content) in fields(&answer["content"]) {
            answered(page, status, answer, Some((content_type, content)));
        }
        if answer.get("content").is_none() {
            answered(page, status, answer, None);
        }
    }
    page.push_str("</table>\n</article>\n");
}

fn answered(page: &mut String, status: &str, answer: &Value, content: Option<(&String, &Value)>) {
    let mut what = code_spans(text(&answer["description"]));
    if let Some((content_type, content)) = content {
        match content_type.as_str() {
            "application/problem+json" => {}
            "application/json" => {
                add(&mut what, format_args!(" {}", type_of(&content["schema"])));
            }
            other => add(&mut what, format_args!(" <code>{}</code>", escape(other))),
        }
        for (word, schema) in fields(&content["x-events"]) {
            add(
                &mut what,
                format_args!("<br><code>{}</code>: {}", escape(word), type_of(schema)),
            );
        }
        if let Some(example) = content.get("example") {
            add(&mut what, format_args!("<pre>{}</pre>", escape(&pretty(example))));
        }
    }
    add(page, format_args!("<tr><th>{status}</th><td>{what}</td></tr>\n"));
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("it is JSON")
}

/// Returns a command to type at a node of a local cluster.
fn command(path: &str, method: &str, operation: &Value) -> String {
    let (mut address, mut query) = (path.to_owned(), Vec::new());
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let (name, example) = (text(&parameter["name"]), &parameter["example"]);
        let example = match example {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        match text(&parameter["in"]) {
            "path" => address = address.replace(&format!("{{{name}}}"), &example.replace('/', "%2F")),
            _ if !parameter["example"].is_null() => query.push(format!("{name}={example}")),
            _ => {}
        }
    }
    if !query.is_empty() {
        address = format!("{address}?{}", query.join("&"));
    }
    let method = match method {
        "get" => String::new(),
        other => format!("-X {} ", other.to_ascii_uppercase()),
    };
    let body = &operation["requestBody"]["content"]["application/json"]["example"];
    let body = match body {
        Value::Null => String::new(),
        body => format!(" \\\n  -d '{body}'"),
    };
    format!("curl {method}'http://127.0.0.1:7401{address}'{body}")
}

/// Renders all codes of problems: the pages that their `type` refers to.
fn errors(page: &mut String) {
    page.push_str("<section id=\"errors\">\n<h2>errors</h2>\n");
    for code in Code::ALL {
        add(
            page,
            format_args!(
                "<article id=\"{word}\">\n<h3><code>{word}</code></h3>\n<p><strong>{status} {title}.</strong> {meaning}</p>\n</article>\n",
                word = code.word(),
                status = code.status().as_u16(),
                title = escape(code.title()),
                meaning = code_spans(code.meaning()),
            ),
        );
    }
    page.push_str("</section>\n");
}

fn schemas(page: &mut String, schemas: &Value) {
    page.push_str("<section id=\"schemas\">\n<h2>schemas</h2>\n");
    for (name, schema) in fields(schemas) {
        add(
            page,
            format_args!(
                "<article id=\"{}\">\n<h3>{}</h3>\n<p>{}</p>\n",
                anchor(name),
                escape(name),
                code_spans(text(&schema["description"]))
            ),
        );
        match schema.get("properties") {
            Some(_) => table(page, schemas, schema),
            None => add(page, format_args!("<p class=\"type\">{}</p>\n", type_of(schema))),
        }
        page.push_str("</article>\n");
    }
    page.push_str("</section>\n");
}

/// Renders the table of an object's fields.
fn table(page: &mut String, schemas: &Value, schema: &Value) {
    let required = |name: &String| {
        let names = schema["required"].as_array();
        names.is_some_and(|names| names.iter().any(|required| *required == *name))
    };
    page.push_str("<table>\n");
    for (name, field) in fields(&schema["properties"]) {
        let need = if required(name) { "required" } else { "" };
        row(page, name, need, field, &describe(schemas, field));
    }
    page.push_str("</table>\n");
}

fn row(page: &mut String, name: &str, need: &str, schema: &Value, said: &str) {
    add(
        page,
        format_args!(
            "<tr><th><code>{}</code></th><td>{need}</td><td class=\"type\">{}</td><td>{}</td></tr>\n",
            escape(name),
            type_of(schema),
            code_spans(said),
        ),
    );
}
