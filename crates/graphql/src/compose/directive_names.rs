//! The meaning of the directives in a schema. A Federation v2 schema declares by `@link` which directives it
//! imports, and under which names.

use std::collections::HashMap;

use diagnostics::Diagnostics;
use graphql_tools::parser::schema::{Directive, Value};

use super::error::{CompositionErrorKind, ReportError};
use super::model::SubgraphName;

/// The meaning of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum DirectiveMeaning {
    Key,
    Requires,
    Provides,
    External,
    Shareable,
    Override,
    Inaccessible,
    InterfaceObject,
    Tag,
    Extends,
    /// A directive that does not affect composition.
    Ignored,
    /// A directive that requests a feature the gateway does not have.
    Unknown,
}

/// The directives of Federation, and whether Federation v1 has them too.
const FEDERATION_DIRECTIVES: &[(&str, DirectiveMeaning, bool)] = &[
    ("key", DirectiveMeaning::Key, true),
    ("requires", DirectiveMeaning::Requires, true),
    ("provides", DirectiveMeaning::Provides, true),
    ("external", DirectiveMeaning::External, true),
    ("extends", DirectiveMeaning::Extends, true),
    ("tag", DirectiveMeaning::Tag, true),
    ("inaccessible", DirectiveMeaning::Inaccessible, true),
    ("shareable", DirectiveMeaning::Shareable, false),
    ("override", DirectiveMeaning::Override, false),
    ("interfaceObject", DirectiveMeaning::InterfaceObject, false),
    ("composeDirective", DirectiveMeaning::Ignored, false),
    ("cost", DirectiveMeaning::Ignored, false),
    ("listSize", DirectiveMeaning::Ignored, false),
    ("cacheTag", DirectiveMeaning::Ignored, false),
    ("authenticated", DirectiveMeaning::Unknown, false),
    ("requiresScopes", DirectiveMeaning::Unknown, false),
    ("policy", DirectiveMeaning::Unknown, false),
    ("context", DirectiveMeaning::Unknown, false),
    ("fromContext", DirectiveMeaning::Unknown, false),
];
/// Types that may be imported.
const IMPORTABLE_TYPES: &[&str] = &["FieldSet", "Scope", "Policy", "ContextFieldValue"];
/// The base URL of Apollo's specifications.
const SPECIFICATION_BASE_URL: &str = "https://specs.apollo.dev/";

/// The directives of one schema.
#[derive(Debug)]
pub(super) struct SchemaDirectives {
    /// Whether it is a Federation v1 schema, or does not use Federation.
    pub(super) is_federation_v1: bool,
    meanings: HashMap<String, DirectiveMeaning>,
}

impl SchemaDirectives {
    /// Reads the `@link` directives of a schema.
    pub(super) fn from_directives<'a>(
        schema: &[Directive<'a, &'a str>],
        service: &SubgraphName,
        errors: &mut Diagnostics,
    ) -> Self {
        let links: Vec<SchemaLink<'_>> = schema
            .iter()
            .filter(|directive| directive.name == "link")
            .map(SchemaLink::from_directive)
            .collect();
        let mut names = Self { is_federation_v1: true, meanings: HashMap::new() };
        for link in &links {
            names.add_link(link, service, errors);
        }
        if names.is_federation_v1 {
            let first = FEDERATION_DIRECTIVES.iter().filter(|(_, _, is_first)| *is_first);
            names.meanings.extend(first.map(|&(name, mark, _)| (name.to_owned(), mark)));
        }
        names
    }

    /// The meaning of the directive with this name.
    pub(super) fn meaning(&self, name: &str) -> Option<DirectiveMeaning> {
        self.meanings.get(name).copied()
    }

    /// Whether the name is that of a Federation directive that the schema does not import.
    pub(super) fn is_missing_import(&self, name: &str) -> bool {
        !self.is_federation_v1
            && !self.meanings.contains_key(name)
            && FEDERATION_DIRECTIVES.iter().any(|&(known, _, _)| known == name)
    }

    fn add_link(&mut self, link: &SchemaLink<'_>, service: &SubgraphName, errors: &mut Diagnostics) {
        let Some(specification) = link.url.strip_prefix(SPECIFICATION_BASE_URL) else { return };
        let name = specification.split('/').next().unwrap_or("");
        if name != "federation" {
            if let Some(mark) = directive_meaning(name) {
                self.meanings.insert(link.alias.unwrap_or(name).to_owned(), mark);
            }
            return;
        }
        self.is_federation_v1 = false;
        let space = link.alias.unwrap_or("federation");
        self.meanings
            .extend(FEDERATION_DIRECTIVES.iter().map(|&(name, mark, _)| (format!("{space}__{name}"), mark)));
        for &(import, alias) in &link.imports {
            let name = import.trim_start_matches('@');
            match directive_meaning(name) {
                Some(mark) if import.starts_with('@') => {
                    self.meanings.insert(alias.trim_start_matches('@').to_owned(), mark);
                }
                None if IMPORTABLE_TYPES.contains(&name) => {}
                _ => errors.report(
                    CompositionErrorKind::InvalidLinkDirectiveUsage,
                    &[service],
                    "",
                    format!("The schema of \"{service}\" imports \"{import}\" from Federation, which has no such element."),
                    "remove it from the import, or spell it as in the specification",
                ),
            }
        }
    }
}

fn directive_meaning(name: &str) -> Option<DirectiveMeaning> {
    FEDERATION_DIRECTIVES.iter().find(|&&(known, _, _)| known == name).map(|&(_, mark, _)| mark)
}

/// A `@link` directive.
struct SchemaLink<'d> {
    url: &'d str,
    alias: Option<&'d str>,
    imports: Vec<(&'d str, &'d str)>,
}

impl<'d> SchemaLink<'d> {
    fn from_directive<'a>(directive: &'d Directive<'a, &'a str>) -> Self {
        let imports = match directive_argument(directive, "import") {
            Some(Value::List(imports)) => imports.iter().filter_map(parse_import).collect(),
            _ => Vec::new(),
        };
        Self {
            url: string_value(directive_argument(directive, "url")).unwrap_or(""),
            alias: string_value(directive_argument(directive, "as")),
            imports,
        }
    }
}

fn parse_import<'d, 'a>(value: &'d Value<'a, &'a str>) -> Option<(&'d str, &'d str)> {
    match value {
        Value::String(name) => Some((name, name)),
        Value::Object(members) => {
            let member = |name| {
                members.iter().find(|(key, _)| *key == name).and_then(|(_, value)| string_value(Some(value)))
            };
            let name = member("name")?;
            Some((name, member("as").unwrap_or(name)))
        }
        _ => None,
    }
}

/// The value of a directive's argument.
pub(super) fn directive_argument<'d, 'a>(
    directive: &'d Directive<'a, &'a str>,
    name: &str,
) -> Option<&'d Value<'a, &'a str>> {
    directive.arguments.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// The content of a string value.
pub(super) fn string_value<'d, 'a>(value: Option<&'d Value<'a, &'a str>>) -> Option<&'d str> {
    match value? {
        Value::String(text) => Some(text),
        _ => None,
    }
}
