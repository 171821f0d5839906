//! Tests of the mapping of OpenAPI documents.

use super::{build_test_subgraphs, concatenated_sdl, service_bindings, warning_texts};
use crate::subgraph::{OperationKind, ParameterSource};

/// A document in the style of Strapi: envelopes, brackets in parameter names, a filter that is an object,
/// uploads.
const STRAPI: &str = r##"
openapi: 3.0.0
servers: [{ url: "http://localhost:1337/api" }]
paths:
  /articles:
    get:
      operationId: get/articles
      parameters:
        - { name: sort, in: query, description: Sort by attributes, schema: { type: string } }
        - { name: "pagination[page]", in: query, schema: { type: integer } }
        - { name: filters, in: query, style: deepObject, schema: { type: object, properties: { title: { type: string } } } }
        - { name: session, in: cookie, schema: { type: string } }
        - { name: X-Trace, in: header, schema: { type: string } }
        - { name: Authorization, in: header, required: true, schema: { type: string } }
      responses: { 200: { description: OK, content: { application/json: { schema: { $ref: "#/components/schemas/ArticleListResponse" } } } } }
    post:
      operationId: post/articles
      requestBody: { required: true, content: { application/json: { schema: { $ref: "#/components/schemas/ArticleRequest" } } } }
      responses: { 200: { description: OK, content: { application/json: { schema: { $ref: "#/components/schemas/ArticleResponse" } } } } }
  "/articles/{id}":
    get:
      operationId: get/articles/{id}
      parameters: [{ name: id, in: path, required: true, schema: { type: number } }, { name: id, in: query, schema: { type: string } }]
      responses: { 200: { description: OK, content: { application/json: { schema: { $ref: "#/components/schemas/ArticleResponse" } } } } }
    delete:
      operationId: delete/articles/{id}
      parameters: [{ name: id, in: path, required: true, schema: { type: number } }]
      responses: { 200: { description: OK, content: { application/json: { schema: { type: integer, format: int64 } } } } }
  /upload:
    post:
      requestBody: { required: true, content: { multipart/form-data: { schema: { type: object, properties: { files: { type: string, format: binary } } } } } }
      responses: { 200: { description: OK, content: { application/json: { schema: { type: array, items: {} } } } } }
  "/upload/files/{id}/raw":
    get:
      responses: { 200: { description: OK, content: { image/png: {} } } }
  /ping: { get: { responses: { 200: { description: OK, content: { text/plain: {} } } } }, head: { responses: { 200: { description: OK } } } }
  /cache: { delete: { deprecated: true, responses: { 204: { description: Gone } } } }
components:
  schemas:
    Article:
      type: object
      description: What is read.
      required: [title, kind, "@type"]
      properties:
        title: { type: string }
        kind: { enum: [a-b, "true", other] }
        "@type": { type: string }
        locale: { type: string, nullable: true, deprecated: true }
        price: { type: integer, maximum: 9007199254740991 }
        day: { type: string, format: date }
        extra: { type: object, additionalProperties: { type: string } }
        either: { oneOf: [{ type: string }, { type: integer }] }
        password: { type: string, writeOnly: true }
        createdAt: { type: string, format: date-time, readOnly: true }
        parent: { $ref: "#/components/schemas/Article" }
        seo: { type: object, required: [words], properties: { words: { type: array, items: { type: string, nullable: true } } } }
    ArticleListResponseDataItem: { type: object, properties: { id: { type: number }, attributes: { $ref: "#/components/schemas/Article" } } }
    ArticleListResponse:
      type: object
      properties:
        data: { type: array, items: { $ref: "#/components/schemas/ArticleListResponseDataItem" } }
        meta: { type: object, properties: { pagination: { properties: { page: { type: integer }, pageCount: { type: integer, maximum: 1 } } } } }
    ArticleResponse: { type: object, properties: { data: { $ref: "#/components/schemas/ArticleListResponseDataItem" } } }
    ArticleRequest: { type: object, required: [data], properties: { data: { allOf: [{ $ref: "#/components/schemas/Article" }], anyOf: [{ required: [title] }, { required: [day] }] } } }
"##;

#[test]
fn maps_a_strapi_document_and_reports_unmapped_parts() {
    let (subgraphs, findings) = build_test_subgraphs(&[("blog", STRAPI)], "").expect("a schema");
    insta::assert_snapshot!(format!(
        "{}\n# found\n{}",
        concatenated_sdl(&subgraphs),
        warning_texts(&findings).join("\n")
    ));
}

#[test]
fn sends_and_reads_renamed_members_by_their_original_names() {
    let (subgraphs, _) = build_test_subgraphs(&[("blog", STRAPI)], "").expect("a schema");
    let blog = service_bindings(&subgraphs, "blog");
    assert_eq!(&*blog.types["Article"].fields["_type"], "@type");
    assert_eq!(&*blog.types["ArticleInput"].fields["_type"], "@type");
    assert_eq!(&*blog.types["ArticleKind"].values["a_b"], "a-b");
    let list = &blog.roots[&(OperationKind::Query, "getArticles".into())];
    assert_eq!(&*list.path, "/api/articles");
    let page = list.parameters.iter().find(|it| &*it.name == "pagination[page]").expect("the page");
    assert!(matches!(&page.source, ParameterSource::Argument(name) if &**name == "pagination_page"));
    let upload = blog.roots.keys().any(|(_, name)| name.contains("pload"));
    assert!(!upload, "{:?}", blog.roots.keys());
}

#[test]
fn names_do_not_depend_on_the_order_of_a_document() {
    let path = |name: &str| {
        format!(
            "  /{name}: {{ get: {{ operationId: list, responses: {{ 200: {{ description: OK, content: {{ application/json: {{ schema: {{ type: array, items: {{ $ref: '#/components/schemas/{name}' }} }} }} }} }} }} }} }}\n"
        )
    };
    let schema = |name: &str| format!("    {name}: {{ properties: {{ {name}: {{ type: string }} }} }}\n");
    let document = |names: [&str; 3]| {
        format!(
            "openapi: 3.1.0\npaths:\n{}components:\n  schemas:\n{}",
            names.map(path).concat(),
            names.map(schema).concat()
        )
    };
    let lines = |names| {
        let (subgraphs, findings) = build_test_subgraphs(&[("a", &document(names))], "").expect("a schema");
        let mut lines: Vec<String> =
            subgraphs[0].sdl.lines().map(str::to_owned).chain(warning_texts(&findings)).collect();
        lines.sort();
        lines
    };
    let one = lines(["ant", "bee", "cow"]);
    assert_eq!(one, lines(["cow", "ant", "bee"]));
    assert!(
        one.iter()
            .any(|line| line.contains("several operations would be called `list`: this one is `getBee`")),
        "{one:?}"
    );
}

#[test]
fn terminates_on_a_list_of_itself() {
    let document = r"
openapi: 3.1.0
paths: { /x: { get: { responses: { 200: { description: OK, content: { application/json: { schema: { $ref: '#/components/schemas/List' } } } } } } } }
components:
  schemas:
    List: { type: array, items: { $ref: '#/components/schemas/List' } }
";
    let (subgraphs, findings) = build_test_subgraphs(&[("a", document)], "").expect("a schema");
    assert!(subgraphs[0].sdl.contains("getX: [[[[[[[[JSON!]!]!]!]!]!]!]!]"), "{}", subgraphs[0].sdl);
    assert!(warning_texts(&findings)[0].contains("lists nested too deeply"));
}

#[test]
fn reports_a_service_without_operations() {
    let (subgraphs, findings) =
        build_test_subgraphs(&[("a", "openapi: 3.1.0\npaths: {}\n")], "").expect("no mistake");
    assert!(subgraphs.is_empty());
    assert!(warning_texts(&findings)[0].contains("it has no operations for the schema"));
}

#[test]
fn resolves_recursion_through_unnamed_schemas() {
    let document = r"
openapi: 3.1.0
paths: { /x: { get: { responses: { 200: { description: OK, content: { application/json: { schema: { $ref: '#/components/schemas/A' } } } } } } } }
components:
  schemas:
    A: { properties: { a: { allOf: [{ $ref: '#/components/schemas/A' }, { properties: { b: { type: string } } }] } } }
";
    let (subgraphs, _) = build_test_subgraphs(&[("a", document)], "").expect("a schema");
    let sdl = &subgraphs[0].sdl;
    assert!(sdl.contains("type A {\n  a: AA\n}\n\ntype AA {\n  a: AA\n  b: String\n}"), "{sdl}");
}

/// A document of the same size and style as Gitea's: Swagger 2, shared responses, files, forms, mutually
/// recursive schemas.
fn large_document() -> String {
    let mut text = "swagger: '2.0'\nbasePath: /api/v1\nconsumes: [application/json]\nproduces: [application/json]\npaths:\n".to_owned();
    let answer = |name: usize| {
        format!("{{ 200: {{ $ref: '#/responses/Thing{name}' }}, 404: {{ description: gone }} }}")
    };
    let path = "{ name: owner, in: path, type: string, required: true }";
    let page = "{ name: page, in: query, type: integer }, { name: limit, in: query, type: integer }, { name: state, in: query, type: string, enum: [open, closed, -all] }";
    for name in 0..94 {
        let body = format!("{{ name: body, in: body, schema: {{ $ref: '#/definitions/EditThing{name}' }} }}");
        text.push_str(&format!("  /repos/{{owner}}/things{name}:\n    get: {{ operationId: repoListThing{name}, parameters: [{path}, {page}], responses: {{ 200: {{ description: all, schema: {{ type: array, items: {{ $ref: '#/definitions/Thing{name}' }} }} }} }} }}\n"));
        text.push_str(&format!("    post: {{ operationId: repoCreateThing{name}, parameters: [{path}, {body}], responses: {} }}\n", answer(name)));
        text.push_str(&format!("  /repos/{{owner}}/things{name}/{{index}}:\n    get: {{ operationId: repoGetThing{name}, parameters: [{path}, {{ name: index, in: path, type: integer, format: int64, required: true }}], responses: {} }}\n", answer(name)));
        text.push_str(&format!("    delete: {{ operationId: repoDeleteThing{name}, parameters: [{path}, {{ name: index, in: path, type: integer, required: true }}], responses: {{ 204: {{ description: gone }} }} }}\n"));
        text.push_str(&format!("  /repos/{{owner}}/things{name}/raw:\n    get: {{ produces: [application/octet-stream], parameters: [{path}], responses: {{ 200: {{ description: file, schema: {{ type: file }} }} }} }}\n"));
    }
    text.push_str("  /upload: { post: { operationId: upload, consumes: [multipart/form-data], parameters: [{ name: file, in: formData, type: file, required: true }], responses: { 201: { description: ok } } } }\n");
    text.push_str("responses:\n");
    for name in 0..94 {
        text.push_str(&format!(
            "  Thing{name}: {{ description: one, schema: {{ $ref: '#/definitions/Thing{name}' }} }}\n"
        ));
    }
    text.push_str("definitions:\n");
    for name in 0..94 {
        let next = (name * 7 + 1) % 94;
        let members: String =
            (0..20).map(|member| format!(", m{member}: {{ type: string, x-go-name: M{member} }}")).collect();
        text.push_str(&format!("  Thing{name}: {{ type: object, properties: {{ id: {{ type: integer, format: int64 }}, next: {{ $ref: '#/definitions/Thing{next}' }}, created_at: {{ type: string, format: date-time }}{members} }} }}\n"));
        text.push_str(&format!("  EditThing{name}: {{ type: object, required: [title], properties: {{ title: {{ type: string }}, labels: {{ type: array, items: {{ type: integer, format: int64 }} }} }} }}\n"));
    }
    text
}

#[test]
fn maps_a_document_of_471_operations_without_files() {
    let document = large_document();
    assert_eq!(openapi::OpenApiDocument::parse(&document).expect("a document").operations.len(), 471);
    let (subgraphs, findings) = build_test_subgraphs(&[("gitea", &document)], "").expect("a schema");
    assert_eq!(service_bindings(&subgraphs, "gitea").roots.len(), 376);
    let left_out = warning_texts(&findings).iter().filter(|it| it.ends_with("left out")).count();
    assert_eq!(left_out, 95);
    let part = crate::compose::ServiceSchema { name: &subgraphs[0].name, sdl: &subgraphs[0].sdl };
    let composed = crate::compose::compose(&[part]).expect("a supergraph").sdl;
    assert!(composed.contains(
        "repoListThing7(owner: String!, page: Int, limit: Int, state: RepoListThing7State): [Thing7!]"
    ));
}
