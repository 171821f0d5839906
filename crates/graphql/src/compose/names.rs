//! Which directive of a schema means what: a schema of Federation v2 says by `@link` what it imports and how it calls that.

use std::collections::HashMap;

use graphql_tools::parser::schema::{Directive, Value};

use super::error::{Code, Errors};
use super::model::Name;

/// What a directive means.
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
    /// Something that changes nothing about how the schemas are composed.
    Idle,
    /// Something that asks the gateway for what it doesn't do.
    Unknown,
}

/// The directives of Federation, and whether its first version has them too.
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
/// Where Apollo's specifications are.
const SPECIFICATIONS: &str = "https://specs.apollo.dev/";

/// The directives of one schema.
#[derive(Debug)]
pub(super) struct Names {
    /// Whether it is of Federation v1, or of none.
    pub(super) is_first: bool,
    marks: HashMap<String, Mark>,
}

impl Names {
    /// Reads what the schema links to.
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

    /// What the directive of this name means here.
    pub(super) fn mark(&self, name: &str) -> Option<Mark> {
        self.marks.get(name).copied()
    }

    /// Whether it is called like a directive of Federation, but the schema doesn't import it.
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
                    "take it out of the import, or write it as the specification does",
                ),
            }
        }
    }
}

fn known(name: &str) -> Option<Mark> {
    MARKS.iter().find(|&&(known, _, _)| known == name).map(|&(_, mark, _)| mark)
}

/// A `@link`.
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

/// A value that is a text.
pub(super) fn text<'d, 'a>(value: Option<&'d Value<'a, &'a str>>) -> Option<&'d str> {
    match value? {
        Value::String(text) => Some(text),
        _ => None,
    }
}
