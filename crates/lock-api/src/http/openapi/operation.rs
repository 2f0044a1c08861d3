//! One operation of the document: its parameters, answers and failures. This module knows no operation by name.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde_json::{Map, Value, json};
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::{RefOr, Required, Schema};
use utoipa::{IntoParams, ToSchema};

use crate::http::openapi::words;
use crate::http::problem::{Code, Problem};

/// Failures before an operation reads its body.
const BODY: [Code; 3] = [Code::BadRequest, Code::TooLarge, Code::RequestTimeout];

/// Failures of authentication: the token is invalid, or its validity cannot be determined.
const AT_THE_DOOR: [Code; 2] = [Code::Unauthenticated, Code::Unavailable];

/// Builds the content of a body or an answer: a JSON document of one schema.
fn document(schema: RefOr<Schema>, example: Value) -> Value {
    json!({"application/json": {"schema": schema, "example": example}})
}

fn path_parameter(name: &str, description: &str, schema: RefOr<Schema>, example: Value) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some(description))
        .schema(Some(schema))
        .example(Some(example))
        .build()
}

fn with_examples(parameters: Vec<Parameter>, examples: &[(&str, Value)]) -> Vec<Parameter> {
    let with_example = |parameter: Parameter| {
        let own = examples.iter().find(|(name, _)| *name == parameter.name);
        let own = own.map(|(_, value)| value.clone());
        ParameterBuilder::from(parameter).example(own).build()
    };
    parameters.into_iter().map(with_example).collect()
}

/// Schemas that operations refer to, by name.
pub type Components = BTreeMap<String, RefOr<Schema>>;

/// One method at one address.
pub struct Operation {
    /// `get`, `post`…
    pub method: &'static str,
    /// Address in OpenAPI's notation.
    pub path: &'static str,
    /// Identifier for programs that generate clients from the document.
    pub id: &'static str,
    /// Summary in a few words.
    summary: &'static str,
    /// Full description.
    description: String,
    parameters: Vec<Parameter>,
    body: Option<Value>,
    answers: Vec<(u16, Value)>,
    codes: Vec<Code>,
    /// Set if the caller is authenticated.
    has_door: bool,
    components: Components,
}

impl Operation {
    /// Creates an operation that reads.
    pub fn get(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new("get", path, id, summary)
    }

    /// Creates an operation that acts or creates.
    pub fn post(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new("post", path, id, summary)
    }

    /// Creates an operation that replaces.
    pub fn put(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new("put", path, id, summary)
    }

    /// Creates an operation that changes the fields that the body has.
    pub fn patch(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new("patch", path, id, summary)
    }

    /// Creates an operation that deletes.
    pub fn delete(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new("delete", path, id, summary)
    }

    fn new(method: &'static str, path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self {
            method,
            path,
            id,
            summary,
            description: String::new(),
            parameters: Vec::new(),
            body: None,
            answers: Vec::new(),
            codes: Vec::new(),
            has_door: true,
            components: Components::new(),
        }
    }

    /// Adds a description.
    pub fn describe(mut self, description: &str) -> Self {
        self.description = description.to_owned();
        self
    }

    /// Adds a path parameter, the part of the address in braces.
    pub fn names<T: ToSchema>(mut self, name: &str, description: &str, example: Value) -> Self {
        let schema = self.schema_of::<T>();
        self.parameters
            .push(path_parameter(name, description, schema, example));
        self
    }

    /// Adds the parameters of the query; the route rejects others.
    pub fn query_parameters<T: IntoParams>(mut self, example: &[(&str, Value)]) -> Self {
        self.parameters.extend(with_examples(
            T::into_params(|| Some(ParameterIn::Query)),
            example,
        ));
        self.fails(&[Code::BadRequest])
    }

    /// Adds a parameter that no type of the code declares.
    pub fn asks_also(mut self, parameter: Value) -> Self {
        let parameter = serde_json::from_value(parameter).expect("it is a parameter that utoipa knows");
        self.parameters.push(parameter);
        self.fails(&[Code::BadRequest])
    }

    /// Adds an answer of server-sent events: each event name with the schema of its data.
    pub fn answers_events(self, description: &str, events: &[(&str, &str)]) -> Self {
        let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
        let events: Map<_, _> = events
            .iter()
            .map(|(word, schema)| ((*word).to_owned(), reference(schema)))
            .collect();
        let content = json!({"text/event-stream": {"schema": {"type": "string"}, "x-events": events}});
        self.answer(
            StatusCode::OK,
            json!({"description": description, "content": content}),
        )
    }

    /// Adds the schema that parameters of the query refer to.
    pub fn with_words<T: ToSchema>(mut self) -> Self {
        self.schema_of::<T>();
        self
    }

    /// Adds the body, a JSON object. It can be omitted unless `required` is set.
    pub fn request_body<T: ToSchema>(mut self, required: bool, example: Value) -> Self {
        let schema = self.schema_of::<T>();
        self.body = Some(json!({"required": required, "content": document(schema, example)}));
        self.fails(&BODY)
    }

    /// Adds an answer with a JSON document.
    pub fn answers<T: ToSchema>(mut self, status: StatusCode, description: &str, example: Value) -> Self {
        let schema = self.schema_of::<T>();
        self.answers_document(status, description, document(schema, example))
    }

    // Not generic, like all code after the schema is known: there are some hundred types.
    fn answers_document(self, status: StatusCode, description: &str, content: Value) -> Self {
        self.answer(status, json!({"description": description, "content": content}))
    }

    /// Adds an answer of another content type: `binary` bytes or text.
    pub fn answers_in(self, content_type: &str, description: &str, schema: Value) -> Self {
        let content = json!({content_type: {"schema": schema}});
        self.answer(
            StatusCode::OK,
            json!({"description": description, "content": content}),
        )
    }

    /// Adds an answer with text in any of these content types.
    pub fn answers_in_any(self, content_types: &[&str], description: &str) -> Self {
        let content: Map<_, _> = content_types
            .iter()
            .map(|kind| ((*kind).to_owned(), json!({"schema": {"type": "string"}})))
            .collect();
        self.answer(
            StatusCode::OK,
            json!({"description": description, "content": content}),
        )
    }

    /// Adds an answer with status 204.
    pub fn answers_nothing(self, description: &str) -> Self {
        self.answer(StatusCode::NO_CONTENT, json!({"description": description}))
    }

    fn answer(mut self, status: StatusCode, mut answer: Value) -> Self {
        if status == StatusCode::CREATED {
            answer["headers"] = json!({"Location": {
                "description": "Address of what was created.",
                "schema": {"type": "string", "format": "uri-reference"},
            }});
        }
        self.answers.push((status.as_u16(), answer));
        self
    }

    /// Declares that callers are not authenticated.
    pub fn for_everybody(mut self) -> Self {
        self.has_door = false;
        self
    }

    /// Adds failures.
    pub fn fails(mut self, codes: &[Code]) -> Self {
        for code in codes {
            if !self.codes.contains(code) {
                self.codes.push(*code);
            }
        }
        self
    }

    /// Adds the header that every request that may change something can have.
    fn takes_idempotency_key(mut self) -> Self {
        let schema = self.schema_of::<words::RequestId>();
        let header = ParameterBuilder::new()
            .name("Idempotency-Key")
            .parameter_in(ParameterIn::Header)
            .description(Some(
                "The same as `request_id`. If a request has both and they are different, it is rejected.",
            ))
            .schema(Some(schema));
        self.parameters.push(header.build());
        self.fails(&[Code::BadRequest])
    }

    fn schema_of<T: ToSchema>(&mut self) -> RefOr<Schema> {
        let mut schemas = Vec::new();
        T::schemas(&mut schemas);
        self.add_schemas(T::name().into_owned(), T::schema(), schemas)
    }

    fn add_schemas(
        &mut self,
        name: String,
        schema: RefOr<Schema>,
        of_parts: Vec<(String, RefOr<Schema>)>,
    ) -> RefOr<Schema> {
        let reference = utoipa::openapi::Ref::from_schema_name(&name);
        self.components.insert(name, schema);
        self.components.extend(of_parts);
        RefOr::Ref(reference)
    }

    /// Builds the operation's object in the document, and adds its schemas to `components`.
    pub fn document(mut self, tag: &str, components: &mut Components) -> Value {
        let has_door = self.has_door;
        if has_door {
            self = self.fails(&AT_THE_DOOR);
        }
        if self.method != "get" && self.path != "/v1/read" {
            self = self.takes_idempotency_key();
        }
        let problems = self.problems();
        let answers = std::mem::take(&mut self.answers).into_iter();
        let responses: Map<_, _> = answers
            .map(|(status, answer)| (status.to_string(), answer))
            .chain(problems)
            .collect();
        components.append(&mut self.components);
        let mut document = json!({
            "operationId": self.id,
            "tags": [tag],
            "summary": self.summary,
            "responses": responses,
        });
        if !has_door {
            document["security"] = json!([]);
        }
        let mut set = |name: &str, value: Value| document[name] = value;
        if !self.description.is_empty() {
            set("description", json!(self.description));
        }
        if !self.parameters.is_empty() {
            set("parameters", json!(self.parameters));
        }
        if let Some(body) = self.body {
            set("requestBody", body);
        }
        document
    }

    /// Builds one answer for each status, with its codes.
    fn problems(&mut self) -> Vec<(String, Value)> {
        if !self.codes.is_empty() {
            self.schema_of::<Problem>();
        }
        let mut statuses: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
        // In the order of the table, so that the document does not depend on the order in which the operation lists
        // them.
        for code in Code::ALL.iter().filter(|code| self.codes.contains(code)) {
            statuses.entry(code.status().as_u16()).or_default().push(*code);
        }
        statuses
            .into_iter()
            .map(|(status, codes)| (status.to_string(), answer_of(status, &codes)))
            .collect()
    }
}

fn answer_of(status: u16, codes: &[Code]) -> Value {
    let words: Vec<_> = codes.iter().map(|code| code.word()).collect();
    let titles: Vec<_> = codes
        .iter()
        .map(|code| format!("`{}`: {}", code.word(), code.title()))
        .collect();
    let schema = json!({
        "allOf": [{"$ref": "#/components/schemas/Problem"}],
        "properties": {"status": {"const": status}, "code": {"enum": words}},
    });
    let mut answer = json!({
        "description": titles.join(". "),
        "content": {"application/problem+json": {"schema": schema}},
    });
    if status == StatusCode::UNAUTHORIZED.as_u16() {
        answer["headers"] = json!({"WWW-Authenticate": {
            "description": "How to say who one is.",
            "schema": {"type": "string", "const": "Bearer"},
        }});
    }
    if [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE]
        .iter()
        .any(|code| code.as_u16() == status)
    {
        answer["headers"] = json!({"Retry-After": {
            "description": "Seconds after which another try makes sense.",
            "schema": {"type": "integer", "minimum": 1},
        }});
    }
    answer
}
