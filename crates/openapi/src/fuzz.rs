//! Whatever a service's operator hands in as a document: see `fuzz/src/lib.rs`. That the types made of it are TypeScript is
//! shown in `query`, which has a parser.

use crate::{Document, Open, types};

#[test]
fn no_text_stops_a_document_from_being_read_or_refused() {
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
            if let Ok(document) = Document::read(&text) {
                let operations = document.operations.iter().collect();
                let _ = types(&[Open { name: "a", document: Some(&document), operations }]);
            }
        }
    });
}
