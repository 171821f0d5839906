//! The meaning of the directives in a schema. A Federation v2 schema declares by `@link` which directives it
//! imports, and under which names.

use std::collections::HashMap;

use graphql_tools::parser::schema::{Directive, Value};

use super::error::{Code, Errors};
use super::model::Name;

/// The meaning of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mark {
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
    Idle,
    /// A directive that requests a feature the gateway does not have.
    Unknown,
}

/// The directives of Federation, and whether Federation v1 has them too.
const MARKS: &[(&str, Mark, bool)] = &[
    ("key", Mark::Key, true),
    ("requires", Mark::Requires, true),
    ("provides", Mark::Provides, true),
    ("external", Mark::External, true),
    ("extends", Mark::Extends, true),
    ("tag", Mark::Tag, true),
    ("inaccessible", Mark::Inaccessible, true),
    ("shareable", Mark::Shareable, false),
    ("override", Mark::Override, false),
    ("interfaceObject", Mark::InterfaceObject, false),
    ("composeDirective", Mark::Idle, false),
    ("cost", Mark::Idle, false),
    ("listSize", Mark::Idle, false),
    ("cacheTag", Mark::Idle, false),
    ("authenticated", Mark::Unknown, false),
    ("requiresScopes", Mark::Unknown, false),
    ("policy", Mark::Unknown, false),
    ("context", Mark::Unknown, false),
    ("fromContext", Mark::Unknown, false),
];
/// Types that may be imported.
const TYPES: &[&str] = &["FieldSet", "Scope", "Policy", "ContextFieldValue"];
/// The base URL of Apollo's specifications.
const SPECIFICATIONS: &str = "https://specs.apollo.dev/";

/// The directives of one schema.
#[derive(Debug)]
pub(super) struct Names {
    /// Whether it is a Federation v1 schema, or does not use Federation.
    pub(super) is_first: bool,
    marks: HashMap<String, Mark>,
}

impl Names {
    /// Reads the `@link` directives of a schema.
    pub(super) fn read<'a>(schema: &[Directive<'a, &'a str>], service: &Name, errors: &mut Errors) -> Self {
        let links: Vec<Link<'_>> =
            schema.iter().filter(|directive| directive.name == "link").map(Link::read).collect();
        let mut names = Self { is_first: true, marks: HashMap::new() };
        for link in &links {
            names.add(link, service, errors);
        }
        if names.is_first {
            let first = MARKS.iter().filter(|(_, _, is_first)| *is_first);
            names.marks.extend(first.map(|&(name, mark, _)| (name.to_owned(), mark)));
        }
        names
    }

    /// The meaning of the directive with this name.
    pub(super) fn mark(&self, name: &str) -> Option<Mark> {
        self.marks.get(name).copied()
    }

    /// Whether the name is that of a Federation directive that the schema does not import.
    pub(super) fn is_forgotten(&self, name: &str) -> bool {
        !self.is_first && !self.marks.contains_key(name) && MARKS.iter().any(|&(known, _, _)| known == name)
    }

    fn add(&mut self, link: &Link<'_>, service: &Name, errors: &mut Errors) {
        let Some(specification) = link.url.strip_prefix(SPECIFICATIONS) else { return };
        let name = specification.split('/').next().unwrap_or("");
        if name != "federation" {
            if let Some(mark) = known(name) {
                self.marks.insert(link.named.unwrap_or(name).to_owned(), mark);
            }
            return;
        }
        self.is_first = false;
        let space = link.named.unwrap_or("federation");
        self.marks.extend(MARKS.iter().map(|&(name, mark, _)| (format!("{space}__{name}"), mark)));
        for &(import, alias) in &link.imports {
            let name = import.trim_start_matches('@');
            match known(name) {
                Some(mark) if import.starts_with('@') => {
                    self.marks.insert(alias.trim_start_matches('@').to_owned(), mark);
                }
                None if TYPES.contains(&name) => {}
                _ => errors.add(
                    Code::InvalidLinkDirectiveUsage,
                    &[service],
                    "",
                    format!("The schema of \"{service}\" imports \"{import}\" from Federation, which has no such element."),
                    "remove it from the import, or spell it as in the specification",
                ),
            }
        }
    }
}

fn known(name: &str) -> Option<Mark> {
    MARKS.iter().find(|&&(known, _, _)| known == name).map(|&(_, mark, _)| mark)
}

/// A `@link` directive.
struct Link<'d> {
    url: &'d str,
    named: Option<&'d str>,
    imports: Vec<(&'d str, &'d str)>,
}

impl<'d> Link<'d> {
    fn read<'a>(directive: &'d Directive<'a, &'a str>) -> Self {
        let imports = match argument(directive, "import") {
            Some(Value::List(imports)) => imports.iter().filter_map(import).collect(),
            _ => Vec::new(),
        };
        Self {
            url: text(argument(directive, "url")).unwrap_or(""),
            named: text(argument(directive, "as")),
            imports,
        }
    }
}

fn import<'d, 'a>(value: &'d Value<'a, &'a str>) -> Option<(&'d str, &'d str)> {
    match value {
        Value::String(name) => Some((name, name)),
        Value::Object(members) => {
            let member =
                |name| members.iter().find(|(key, _)| *key == name).and_then(|(_, value)| text(Some(value)));
            let name = member("name")?;
            Some((name, member("as").unwrap_or(name)))
        }
        _ => None,
    }
}

/// The value of a directive's argument.
pub(super) fn argument<'d, 'a>(
    directive: &'d Directive<'a, &'a str>,
    name: &str,
) -> Option<&'d Value<'a, &'a str>> {
    directive.arguments.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// The content of a string value.
pub(super) fn text<'d, 'a>(value: Option<&'d Value<'a, &'a str>>) -> Option<&'d str> {
    match value? {
        Value::String(text) => Some(text),
        _ => None,
    }
}
