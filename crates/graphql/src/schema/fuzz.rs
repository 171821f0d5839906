//! Whatever a service's operator hands in as a document: see `fuzz/src/lib.rs`.

use std::sync::Arc;

use graphql_tools::parser::schema::parse_schema;
use openapi::Document;

use super::{Links, Says, Source, subgraphs};

#[test]
fn any_document_becomes_a_schema_that_can_be_read_or_nothing() {
    let words = &[
        "    get:\n",
        "    post:\n",
        "      operationId: ",
        "      parameters: [",
        "{ in: query, name: ",
        "      responses: { 200: { content: { application/json: { schema: ",
        "      requestBody: { content: { application/json: { schema: ",
        "{ $ref: '#/components/schemas/A' }",
        "{ $ref: '#/components/schemas/B' }",
        " } } } }\n",
        "  /a/{b}:\n",
        "{ allOf: [",
        "{ oneOf: [",
        "{ enum: [",
        "{ type: ",
        "object, properties: { ",
        "array, items: ",
        "integer",
        "string",
        "null",
        "a: ",
        "required: [a]",
        "]",
        "}",
        ", ",
        "components:\n  schemas:\n",
        "    A: ",
        "    B: ",
        "description: '\"\"\"' ",
        "\n",
    ];
    ::fuzz::check(words, |bytes: &[u8]| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        for text in [
            format!("openapi: 3.1.0\n{text}"),
            format!("openapi: 3.1.0\npaths:\n{text}"),
            format!("swagger: '2.0'\n{text}"),
        ] {
            if let Ok(document) = Document::read(&text) {
                let says = Says::OpenApi(&document);
                let source = Source { name: Arc::from("a"), says };
                let made = subgraphs(&[source], &Links::default()).expect("a schema");
                made.0.iter().for_each(|it| drop(parse_schema::<String>(&it.sdl).expect(&it.sdl)));
            }
        }
    });
}
