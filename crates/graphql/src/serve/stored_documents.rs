//! The operator's documents, by hash and by the names of their files.

use std::collections::HashMap;
use std::sync::Arc;

use graphql_tools::parser::parse_query;
use graphql_tools::parser::query::{Definition, OperationDefinition};
use sha2::{Digest, Sha256};

use super::graphql_request::DocumentHash;

/// A file that contains a document.
#[derive(Clone, Debug)]
pub struct DocumentFile {
    /// The path of the file, for messages.
    pub file: Box<str>,
    /// The name that clients refer to it by: the file name without its extension.
    pub name: Box<str>,
    /// The document.
    pub text: Arc<str>,
}

/// The operator's documents of a route.
#[derive(Debug, Default)]
pub(crate) struct StoredDocuments {
    by_hash: HashMap<DocumentHash, Arc<str>>,
    by_name: HashMap<Box<str>, Arc<str>>,
}

impl DocumentFile {
    /// Returns the names of the operations; an anonymous operation is the only one. A text that does not
    /// parse is treated as an anonymous operation.
    pub(crate) fn operations(&self) -> Vec<Option<String>> {
        let document = parse_query::<String>(&self.text).ok();
        let definitions = document.into_iter().flat_map(|document| document.definitions);
        let operations = definitions.filter_map(|definition| match definition {
            Definition::Operation(OperationDefinition::Query(query)) => Some(query.name),
            Definition::Operation(OperationDefinition::Mutation(mutation)) => Some(mutation.name),
            Definition::Operation(_) => Some(None),
            Definition::Fragment(_) => None,
        });
        let operations: Vec<_> = operations.collect();
        if operations.is_empty() { vec![None] } else { operations }
    }
}

impl StoredDocuments {
    pub(crate) fn new(files: &[DocumentFile]) -> Self {
        let mut documents = Self::default();
        for DocumentFile { name, text, .. } in files {
            // Editors end a file with a line break, which clients may or may not hash.
            for spelt in [&**text, text.trim_end()] {
                documents.by_hash.entry(hash_document(spelt)).or_insert_with(|| Arc::clone(text));
            }
            documents.by_name.insert(name.clone(), Arc::clone(text));
        }
        documents
    }

    pub(crate) fn by_hash(&self, hash: &DocumentHash) -> Option<&Arc<str>> {
        self.by_hash.get(hash)
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&Arc<str>> {
        self.by_name.get(name)
    }
}

/// Returns the hash that identifies a document.
pub(crate) fn hash_document(text: &str) -> DocumentHash {
    Sha256::digest(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_documents_by_name_and_by_hash_with_or_without_the_final_line_break() {
        let (file, name, text) = ("documents/buyers.graphql".into(), "buyers".into(), "{ buyers }\n".into());
        let documents = StoredDocuments::new(&[DocumentFile { file, name, text }]);
        for known in [
            documents.by_name("buyers"),
            documents.by_hash(&hash_document("{ buyers }\n")),
            documents.by_hash(&hash_document("{ buyers }")),
        ] {
            assert_eq!(known.map(|text| &**text), Some("{ buyers }\n"));
        }
        assert!(
            documents.by_hash(&hash_document("{buyers}")).is_none() && documents.by_name("orders").is_none()
        );
    }
}
