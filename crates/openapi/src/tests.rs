//! Tests of the model that documents of each version are read as.

mod fuzz;

use serde_json::json;

use crate::{
    BodyContent, DiscriminatedUnion, DocumentError, LinkTarget, MemberAccess, OpenApiDocument, OpenApiSchema,
    ParameterLocation,
};

fn parse_document(text: &str) -> OpenApiDocument {
    OpenApiDocument::parse(text).expect("a document")
}

/// A document with one operation, whose response has this schema, and these named schemas.
fn document_with_schema(schema: &str, schemas: &str) -> OpenApiDocument {
    parse_document(&format!(
        "openapi: 3.1.0\npaths:\n  /x:\n    get:\n      responses:\n        '200': {{ content: {{ application/json: {{ schema: {schema} }} }} }}\ncomponents: {{ schemas: {{ {schemas} }} }}\n"
    ))
}

fn response_schema(document: &OpenApiDocument) -> &OpenApiSchema {
    match document.operations[0].answers.as_slice() {
        [BodyContent::Json(schema)] => schema,
        other => panic!("{other:?}"),
    }
}

fn warning_messages(document: &OpenApiDocument) -> Vec<String> {
    document
        .warnings
        .iter()
        .map(|finding| format!("{}: {}", finding.location.pointer(), finding.message))
        .collect()
}

#[test]
fn json_and_yaml_are_the_same_document() {
    let yaml = "openapi: 3.1.0\ninfo: { title: Shop }\npaths:\n  /a/{id}:\n    delete: { responses: { 204: { description: gone } } }\n";
    let json = r#"{"openapi":"3.1.0","info":{"title":"Shop"},"paths":{"/a/{id}":{"delete":{"responses":{"204":{"description":"gone"}}}}}}"#;
    assert_eq!(parse_document(yaml), parse_document(json));
    assert_eq!(parse_document(yaml).operations[0].answers, [BodyContent::Empty]);
}

#[test]
fn rejects_other_texts_with_the_position() {
    let refused = |text: &str| OpenApiDocument::parse(text).expect_err(text);
    assert!(matches!(refused("a: b"), DocumentError::NotOpenApi));
    assert!(matches!(refused(""), DocumentError::NotOpenApi));
    assert!(matches!(refused("[1]"), DocumentError::NotOpenApi));
    assert!(matches!(refused("openapi: 4.0.0"), DocumentError::Version(version) if version == "4.0.0"));
    assert!(matches!(refused("swagger: 1.2"), DocumentError::Version(_)));
    assert!(matches!(refused("openapi: 3.1.0\npaths: [\n"), DocumentError::Syntax { line: 3, .. }));
    assert!(matches!(
        refused("{\"openapi\": \"3.1.0\",\n \"paths\": ]"),
        DocumentError::Syntax { line: 2, .. }
    ));
}

#[test]
fn a_swagger_document_is_the_same_as_its_successor() {
    let old = "
swagger: '2.0'
basePath: /api
consumes: [application/json]
parameters:
  limit: { name: limit, in: query, type: integer }
  pet: { name: pet, in: body, required: true, schema: { $ref: '#/definitions/Pet' } }
responses:
  Pet: { description: one, schema: { $ref: '#/definitions/Pet' } }
paths:
  /pets:
    get:
      parameters: [{ $ref: '#/parameters/limit' }, { name: tags, in: query, type: array, items: { type: string }, collectionFormat: multi }]
      responses: { 200: { description: all, schema: { type: array, items: { $ref: '#/definitions/Pet' } } } }
    post:
      parameters: [{ $ref: '#/parameters/pet' }]
      responses: { 201: { $ref: '#/responses/Pet' } }
definitions:
  Pet: { type: object, required: [name], properties: { name: { type: string }, mother: { $ref: '#/definitions/Pet', x-nullable: true } } }
";
    let new = "
openapi: 3.0.3
servers: [{ url: 'https://{host}/api/', variables: { host: { default: example.org } } }]
paths:
  /pets:
    get:
      parameters:
        - { name: limit, in: query, explode: false, schema: { type: integer } }
        - { name: tags, in: query, schema: { type: array, items: { type: string } } }
      responses: { '200': { description: all, content: { application/json: { schema: { type: array, items: { $ref: '#/components/schemas/Pet' } } } } } }
    post:
      requestBody: { required: true, content: { application/json: { schema: { $ref: '#/components/schemas/Pet' } } } }
      responses: { '201': { description: one, content: { application/json: { schema: { $ref: '#/components/schemas/Pet' } } } } }
components:
  schemas:
    Pet: { type: object, required: [name], properties: { name: { type: string }, mother: { nullable: true, allOf: [{ $ref: '#/components/schemas/Pet' }] } } }
";
    assert_eq!(parse_document(old), parse_document(new));
    assert_eq!(parse_document(old).warnings, []);
}

#[test]
fn reads_a_swagger_form_as_a_body() {
    let document = parse_document(
        "
swagger: '2.0'
paths:
  /a: { post: { parameters: [{ name: x, in: formData, type: string }], responses: { 200: { description: ok } } } }
  /b: { post: { parameters: [{ name: x, in: formData, type: file }], responses: { 200: { description: ok } } } }
",
    );
    let bodies: Vec<_> = document.operations.iter().map(|operation| operation.body.clone()).collect();
    let other = BodyContent::Other("multipart/form-data".to_owned());
    assert_eq!(bodies, [Some((BodyContent::Form, false)), Some((other, false))]);
    assert!(
        warning_messages(&document)[0].contains("can't be passed to a method"),
        "{:?}",
        document.warnings
    );
}

#[test]
fn adds_the_base_path_only_once() {
    let text = "swagger: '2.0'\nbasePath: /api/v1\npaths: { /a: { get: { responses: { 200: {} } } } }\n";
    let path = |served: &str| parse_document(text).relative_to(served).operations[0].path.clone();
    assert_eq!(path(""), "/api/v1/a");
    assert_eq!(path("/"), "/api/v1/a");
    assert_eq!(path("/api/v1"), "/a");
    assert_eq!(path("/tenant/api/v1/"), "/a");
    assert_eq!(path("/tenant"), "/api/v1/a");
}

#[test]
fn breaks_only_cycles_of_bare_references() {
    let schemas = "Tree: { type: object, properties: { children: { type: array, items: { $ref: '#/components/schemas/Tree' } } } },
                   A: { $ref: '#/components/schemas/B' }, B: { anyOf: [{ $ref: '#/components/schemas/A' }, { type: string }] },
                   List: { type: array, items: { $ref: '#/components/schemas/List' } }";
    let document = document_with_schema("{ $ref: '#/components/schemas/Tree' }", schemas);
    assert_eq!(document.schema("B"), Some(&OpenApiSchema::Unknown));
    assert_eq!(document.schema("A"), Some(&OpenApiSchema::Named("B".into())));
    assert_eq!(
        document.schema("List"),
        Some(&OpenApiSchema::List(Box::new(OpenApiSchema::Named("List".into()))))
    );
    assert_eq!(document.warnings.len(), 1);
}

#[test]
fn follows_references_to_any_part_of_the_document() {
    let schemas = "Pet: { properties: { owner: { properties: { name: { type: string } } } } }";
    let document = document_with_schema("{ $ref: '#/components/schemas/Pet/properties/owner' }", schemas);
    assert_eq!(response_schema(&document), &OpenApiSchema::Named("Pet_owner".into()));
    assert!(document.schema("Pet_owner").is_some());
    let escaped = "{ $ref: '#/paths/~1x/get/responses/200/content/application~1json/schema' }";
    assert!(matches!(response_schema(&document_with_schema(escaped, "")), OpenApiSchema::Named(_)));
    let escaped = document_with_schema("{ $ref: '#/components/schemas/A%20B' }", "'A B': { type: string }");
    assert_eq!(response_schema(&escaped), &OpenApiSchema::Named("A_B".into()));
}

#[test]
fn reads_malformed_schemas_as_unknown_with_a_finding() {
    for (schema, told) in [
        ("{ $ref: 'other.yaml#/A' }", "leads out of the document"),
        ("{ $ref: 'https://example.org/a.json' }", "nothing is fetched"),
        ("{ $ref: '#/components/schemas/Gone' }", "there is nothing at"),
        ("{ type: strnig }", "there is no type `strnig`"),
        ("{ type: 7 }", "this is not a type"),
        ("{ enum: [] }", "the list of values is empty"),
        ("{ enum: 7 }", "`enum` is not a list"),
        ("7", "this is not a schema"),
    ] {
        let document = document_with_schema(schema, "");
        assert_eq!(response_schema(&document), &OpenApiSchema::Unknown, "{schema}");
        let messages = warning_messages(&document);
        assert!(messages.len() == 1 && messages[0].contains(told), "{schema}: {messages:?}");
    }
}

#[test]
fn leaves_out_malformed_operations_only() {
    let document = parse_document(
        "
openapi: 3.0.0
paths:
  nowhere: { get: {} }
  /list: [1]
  /one: { get: 1, put: { responses: { 200: { description: ok } } } }
  /a/{id}:
    parameters: [{ name: other, in: path, schema: { type: string } }, { in: query }, { $ref: '#/nothing' }]
    get: { responses: { 404: { description: gone } } }
    delete: { requestBody: { content: {} }, responses: { default: { description: ok } } }
",
    );
    let told: Vec<_> = document.operations.iter().map(|it| (it.method, &*it.path)).collect();
    assert_eq!(told, [("PUT", "/one"), ("GET", "/a/{id}"), ("DELETE", "/a/{id}")]);
    let get = &document.operations[1];
    assert_eq!(get.parameters.len(), 1);
    assert_eq!((&*get.parameters[0].name, get.parameters[0].place), ("id", ParameterLocation::Path));
    let messages = warning_messages(&document).join("\n");
    for told in [
        "begin with `/`",
        "an object is expected here",
        "this is not an operation",
        "no `{other}`",
        "needs a `name`",
        "leads nowhere",
        "the path parameter `{id}` is not described",
        "no successful response",
        "passed to DELETE",
    ] {
        assert!(messages.contains(told), "{told}:\n{messages}");
    }
}

#[test]
fn expands_aliases_up_to_a_limit() {
    let document = parse_document(
        "
openapi: 3.1.0
paths: { /a: { get: &get { summary: one, responses: { 200: { description: ok } } } }, /b: { get: { <<: *get, summary: two } } }
",
    );
    let told: Vec<_> = document.operations.iter().map(|it| &*it.summary).collect();
    assert_eq!(told, ["one", "two"]);
    let mut bomb = "openapi: 3.1.0\na0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n".to_owned();
    for level in 1..12 {
        let before = format!("*a{}, ", level - 1).repeat(10);
        bomb.push_str(&format!("a{level}: &a{level} [{before}]\n"));
    }
    assert!(matches!(OpenApiDocument::parse(&bomb), Err(DocumentError::Syntax { .. })));
    let deep = format!("openapi: 3.1.0\nx: {}", "[".repeat(100_000));
    assert!(matches!(OpenApiDocument::parse(&deep), Err(DocumentError::Syntax { .. })));
    let deep = format!("{{\"openapi\":\"3.1.0\",\"x\":{}", "[".repeat(100_000));
    assert!(matches!(OpenApiDocument::parse(&deep), Err(DocumentError::Syntax { .. })));
}

#[test]
fn reads_chains_of_references_of_any_length() {
    let link = |at: usize| format!("\"A{at}\":{{\"$ref\":\"#/components/schemas/A{}\"}}", at + 1);
    let links = (0..50_000).map(link).collect::<Vec<_>>().join(",");
    let text =
        format!("{{\"openapi\":\"3.1.0\",\"components\":{{\"schemas\":{{{links},\"A50000\":{{}}}}}}}}");
    assert_eq!(parse_document(&text).schemas.len(), 50_001);
}

#[test]
fn names_are_valid_identifiers_and_unique() {
    let schemas = "'a.b': { type: string }, 'a-b': { type: string }, class: { type: string }, '7up': { type: string }, 'ä': { type: string }";
    let document = document_with_schema("true", schemas);
    let names: Vec<_> = document.schemas.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["a_b", "a_b_2", "class_", "_7up", "_"]);
}

#[test]
fn reads_the_targets_and_parameters_of_links() {
    let document = parse_document(
        "
openapi: 3.0.0
paths:
  /a:
    get:
      responses:
        200:
          description: ok
          links:
            one: { operationId: b, parameters: { path.id: $response.body#/id }, description: The one. }
            other: { operationRef: '#/paths/~1b~1{id}/get', parameters: { id: 7 }, requestBody: x }
            shared: { $ref: '#/components/links/Shared' }
            odd: { operationRef: 'https://example.org/b' }
        404: { description: gone, links: { never: { operationId: b } } }
components: { links: { Shared: { operationId: c } } }
",
    );
    let links = &document.operations[0].links;
    let told: Vec<_> = links.iter().map(|it| (&*it.name, it.target.clone(), it.has_body)).collect();
    let id = |id: &str| LinkTarget::Id(id.to_owned());
    let path = LinkTarget::Path("GET".to_owned(), "/b/{id}".to_owned());
    assert_eq!(told, [("one", id("b"), false), ("other", path, true), ("shared", id("c"), false)]);
    assert_eq!(links[0].parameters, [("path.id".to_owned(), json!("$response.body#/id"))]);
    assert!(warning_messages(&document)[0].contains("leads to no operation"), "{:?}", document.warnings);
}

#[test]
fn maps_discriminator_values_to_schemas() {
    let schemas = "Cat: { type: object, properties: { is: { type: string } } }, Dog: { type: object, properties: { is: { type: string } } }";
    let branches =
        "[{ $ref: '#/components/schemas/Cat' }, { $ref: '#/components/schemas/Dog' }, { type: 'null' }]";
    let schema = format!(
        "{{ oneOf: {branches}, discriminator: {{ propertyName: is, mapping: {{ miau: Cat, wuff: '#/components/schemas/Dog' }} }} }}"
    );
    let document = document_with_schema(&schema, schemas);
    let OpenApiSchema::Discriminated(DiscriminatedUnion { discriminator: by, branches, values }) =
        response_schema(&document)
    else {
        panic!("{document:?}")
    };
    assert_eq!((&**by, branches.len()), ("is", 3));
    let pair = |text: &str, name: &str| (text.to_owned(), name.to_owned());
    assert_eq!(*values, [pair("miau", "Cat"), pair("wuff", "Dog")]);
}

#[test]
fn reads_access_of_members_and_widths_of_integers() {
    let schema = "{ type: object, properties: { a: { type: string, readOnly: true }, b: { type: string, writeOnly: true, deprecated: true }, \
                  c: { type: integer, maximum: 4294967295 }, d: { type: integer, format: int64, minimum: 0, maximum: 9 }, e: { type: integer } } }";
    let document = document_with_schema(schema, "Named: { type: string, description: Some text. }");
    let OpenApiSchema::Object(object) = response_schema(&document) else { panic!("{document:?}") };
    let told: Vec<_> = object.members.iter().map(|it| (it.access, it.is_deprecated)).collect();
    assert_eq!(told[..2], [(MemberAccess::ReadOnly, false), (MemberAccess::WriteOnly, true)]);
    let formats: Vec<_> = object.members[2..].iter().map(|it| it.schema.clone()).collect();
    let integer = |format: &str| OpenApiSchema::Integer(Some(format.to_owned()));
    assert_eq!(formats, [integer("int64"), integer("int32"), OpenApiSchema::Integer(None)]);
    assert_eq!(document.descriptions["Named"], "Some text.");
}
