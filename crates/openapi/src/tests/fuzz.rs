//! Fuzzing of documents that a service's operator may supply: see `fuzz/src/lib.rs`. Tests in `query`, which
//! has a parser, check that the generated types are valid TypeScript.

use crate::{CallableService, OpenApiDocument, generate_types};

#[test]
fn reads_or_refuses_any_text() {
    let words = &[
        "openapi: 3.1.0\n",
        "swagger: '2.0'\n",
        "paths:\n",
        "  /a/{b}:\n",
        "    get:\n",
        "      responses:\n",
        "        '200': ",
        "{ $ref: '#/paths' }\n",
        "&a ",
        "*a ",
        "<<: ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        ": ",
        "\n",
        "  ",
        "schema",
        "content",
        "type",
        "null",
        "'#/components/schemas/A'",
        "components:\n",
        "  schemas:\n",
        "    A: ",
    ];
    ::fuzz::check(words, |bytes: &[u8]| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        for text in [text.to_owned(), format!("openapi: 3.1.0\n{text}"), format!("swagger: '2.0'\n{text}")] {
            if let Ok(document) = OpenApiDocument::parse(&text) {
                let operations = document.operations.iter().collect();
                let _ =
                    generate_types(&[CallableService { name: "a", document: Some(&document), operations }]);
            }
        }
    });
}
