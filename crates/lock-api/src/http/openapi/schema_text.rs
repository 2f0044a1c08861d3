//! Schemas as one line of HTML: the allowed values in words.

use serde_json::Value;

/// Escapes text for HTML.
pub fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
    html
}

/// Escapes text for HTML, with text between backticks as code and text between two asterisks in bold.
pub fn code_spans(text: &str) -> String {
    let html = between(&escape(text), "`", "code");
    between(&html, "**", "strong")
}

fn between(text: &str, mark: &str, element: &str) -> String {
    let pieces = text.split(mark).enumerate();
    pieces
        .map(|(index, piece)| match index % 2 {
            0 => piece.to_owned(),
            _ => format!("<{element}>{piece}</{element}>"),
        })
        .collect()
}

/// Returns the anchor of a schema on the page.
pub fn anchor(name: &str) -> String {
    format!("schema-{name}")
}

fn name_of(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.rsplit('/').next()
}

/// Returns the description of a schema, or of the one that it refers to.
pub fn describe(schemas: &Value, schema: &Value) -> String {
    let own = schema["description"].as_str();
    let choices = schema["oneOf"].as_array();
    let choice = choices
        .into_iter()
        .flatten()
        .find(|choice| choice["type"] != "null");
    let of_choice = || choice.map(|choice| describe(schemas, choice));
    let of_named = || {
        schemas[name_of(schema)?]["description"]
            .as_str()
            .map(str::to_owned)
    };
    own.map(str::to_owned)
        .or_else(of_choice)
        .or_else(of_named)
        .unwrap_or_default()
}

/// Returns the type of a schema's values.
pub fn type_of(schema: &Value) -> String {
    if let Some(name) = name_of(schema) {
        return format!("<a href=\"#{}\">{}</a>", anchor(name), escape(name));
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let choices = choices.iter().map(type_of);
        return choices.collect::<Vec<_>>().join(" or ");
    }
    if let Some(words) = schema["enum"].as_array() {
        let words = words
            .iter()
            .map(|word| format!("<code>{}</code>", escape(word.as_str().unwrap_or_default())));
        return words.collect::<Vec<_>>().join(", ");
    }
    if let (Some(fields), true) = (schema["properties"].as_object(), schema["type"] == "object") {
        let fields = fields
            .iter()
            .map(|(name, field)| format!("<code>{}</code>: {}", escape(name), type_of(field)));
        return format!("{{{}}}", fields.collect::<Vec<_>>().join(", "));
    }
    let names = match &schema["type"] {
        Value::String(name) => name.clone(),
        Value::Array(names) => {
            let names = names.iter().filter_map(Value::as_str);
            names.collect::<Vec<_>>().join(" or ")
        }
        _ => "bytes".to_owned(),
    };
    let mut words = vec![names];
    if let Some(items) = schema.get("items") {
        words[0] = words[0].replace("array", &format!("list of {}", type_of(items)));
    }
    words.extend(limits(schema));
    words.join(", ")
}

fn limits(schema: &Value) -> impl Iterator<Item = String> {
    let range = match (schema.get("minimum"), schema.get("maximum")) {
        (Some(min), Some(max)) => Some(format!("{min} to {max}")),
        (Some(min), None) => Some(format!("at least {min}")),
        _ => None,
    };
    let length = |min: &str, max: &str, what: &str| match (schema.get(min), schema.get(max)) {
        (Some(min), Some(max)) => Some(format!("{min} to {max} {what}")),
        (None, Some(max)) => Some(format!("at most {max} {what}")),
        (Some(min), None) => Some(format!("at least {min} {what}")),
        (None, None) => None,
    };
    let characters = length("minLength", "maxLength", "bytes");
    let items = length("minItems", "maxItems", "items");
    let format = schema["format"].as_str().filter(|format| *format == "date-time");
    let default = schema
        .get("default")
        .map(|value| format!("default {}", escape(&value.to_string())));
    [range, characters, items, format.map(str::to_owned), default]
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn types_of_schemas() {
        let schemas = json!({"Name": {"type": "string", "description": "A name."}});
        let name = json!({"$ref": "#/components/schemas/Name"});
        for (schema, text) in [
            (
                json!({"type": "integer", "minimum": 1, "maximum": 5, "default": 2}),
                "integer, 1 to 5, default 2",
            ),
            (
                json!({"type": ["integer", "null"], "minimum": 0}),
                "integer or null, at least 0",
            ),
            (
                json!({"type": "string", "maxLength": 9}),
                "string, at most 9 bytes",
            ),
            (
                json!({"enum": ["a", "<b>"]}),
                "<code>a</code>, <code>&lt;b&gt;</code>",
            ),
            (
                json!({"type": "array", "items": name, "minItems": 1, "maxItems": 3}),
                "list of <a href=\"#schema-Name\">Name</a>, 1 to 3 items",
            ),
            (
                json!({"oneOf": [name, {"type": "null"}]}),
                "<a href=\"#schema-Name\">Name</a> or null",
            ),
        ] {
            assert_eq!(type_of(&schema), text);
        }
        assert_eq!(
            describe(&schemas, &json!({"oneOf": [name, {"type": "null"}]})),
            "A name."
        );
        assert_eq!(
            code_spans("**b** `<x>` & 'y'"),
            "<strong>b</strong> <code>&lt;x&gt;</code> &amp; &#39;y&#39;"
        );
    }
}
