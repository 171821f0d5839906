//! What documents say, and what becomes of it.

use super::{bindings, made, sdl, told};
use crate::subgraph::{From, OperationKind};

/// A document in the manner of Strapi: envelopes, brackets in names of parameters, a filter that is an object, uploads.
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
fn a_document_like_strapis_becomes_a_schema_and_what_can_not_be_mapped_is_told() {
    let (subgraphs, findings) = made(&[("blog", STRAPI)], "").expect("a schema");
    insta::assert_snapshot!(format!("{}\n# found\n{}", sdl(&subgraphs), told(&findings).join("\n")));
}

#[test]
fn what_graphql_calls_otherwise_is_sent_and_read_by_its_own_name() {
    let (subgraphs, _) = made(&[("blog", STRAPI)], "").expect("a schema");
    let blog = bindings(&subgraphs, "blog");
    assert_eq!(&*blog.types["Article"].fields["_type"], "@type");
    assert_eq!(&*blog.types["ArticleInput"].fields["_type"], "@type");
    assert_eq!(&*blog.types["ArticleKind"].values["a_b"], "a-b");
    let list = &blog.roots[&(OperationKind::Query, "getArticles".into())];
    assert_eq!(&*list.path, "/api/articles");
    let page = list.parameters.iter().find(|it| &*it.name == "pagination[page]").expect("the page");
    assert!(matches!(&page.from, From::Argument(name) if &**name == "pagination_page"));
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
        let (subgraphs, findings) = made(&[("a", &document(names))], "").expect("a schema");
        let mut lines: Vec<String> =
            subgraphs[0].sdl.lines().map(str::to_owned).chain(told(&findings)).collect();
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
fn a_schema_that_is_itself_ends_somewhere() {
    let document = r"
openapi: 3.1.0
paths: { /x: { get: { responses: { 200: { description: OK, content: { application/json: { schema: { $ref: '#/components/schemas/List' } } } } } } } }
components:
  schemas:
    List: { type: array, items: { $ref: '#/components/schemas/List' } }
";
    let (subgraphs, findings) = made(&[("a", document)], "").expect("a schema");
    assert!(subgraphs[0].sdl.contains("getX: [[[[[[[[JSON!]!]!]!]!]!]!]!]"), "{}", subgraphs[0].sdl);
    assert!(told(&findings)[0].contains("lists of lists of lists"));
}

#[test]
fn a_service_of_which_nothing_can_be_asked_is_told() {
    let (subgraphs, findings) = made(&[("a", "openapi: 3.1.0\npaths: {}\n")], "").expect("no mistake");
    assert!(subgraphs.is_empty());
    assert!(told(&findings)[0].contains("nothing of it can be asked"));
}

#[test]
fn a_schema_may_lead_to_itself_through_what_has_no_name() {
    let document = r"
openapi: 3.1.0
paths: { /x: { get: { responses: { 200: { description: OK, content: { application/json: { schema: { $ref: '#/components/schemas/A' } } } } } } } }
components:
  schemas:
    A: { properties: { a: { allOf: [{ $ref: '#/components/schemas/A' }, { properties: { b: { type: string } } }] } } }
";
    let (subgraphs, _) = made(&[("a", document)], "").expect("a schema");
    let sdl = &subgraphs[0].sdl;
    assert!(sdl.contains("type A {\n  a: AA\n}\n\ntype AA {\n  a: AA\n  b: String\n}"), "{sdl}");
}
