//! The aggregates of a config. Their declarations are read when the config is activated, like the config
//! itself.
//!
//! A mistake in a declaration is a mistake of the config, reported at its position in the declaration's own
//! file: a reload then leaves the active config in place.

use std::path::PathBuf;

use aggregate::{Aggregate, AggregateConfig, AggregateContext, AggregateDeclaration};
use diagnostics::{Diagnostic, Diagnostics};
use services::ServiceSet;

use super::{openapi_documents, start_offload_pool};
use crate::config::{FieldPositions, GatewayConfig, RouteConfig, companion_files, read_file, renamed_keys};

/// A declaration that has been parsed.
pub(crate) struct ParsedDeclaration {
    /// The index of its route.
    pub(crate) route: usize,
    declaration: AggregateDeclaration,
    source: FieldPositions,
}

/// An aggregate of a config, built for inspection without a gateway.
pub struct InspectableAggregate {
    /// The path of its route.
    pub path: String,
    /// The file of its declaration, relative to the working directory.
    pub file: PathBuf,
    /// The aggregate itself.
    pub aggregate: Aggregate,
}

/// Reads the declarations that a config names.
///
/// # Errors
/// A mistake for each file that can't be read, and all mistakes within the others.
pub(crate) fn read_declarations(config: &GatewayConfig) -> Result<Vec<ParsedDeclaration>, Vec<Diagnostic>> {
    let (mut declarations, mut mistakes) = (Vec::new(), Diagnostics::default());
    for (route, aggregate) in configured_aggregates(config) {
        match read_declaration(config, route, aggregate) {
            Ok(read) => declarations.push(read),
            Err(diagnostics) => mistakes.extend_unique(diagnostics),
        }
    }
    mistakes.into_result(declarations)
}

/// Builds the aggregates of a config without a gateway around them.
///
/// # Errors
/// All mistakes in the aggregates, the services and their documents.
pub fn build_inspectable(config: &GatewayConfig) -> Result<Vec<InspectableAggregate>, Vec<Diagnostic>> {
    let source = &config.source;
    let services = ServiceSet::load(&config.services, source.folder());
    let services = services.map_err(|problems| source.resolve("/services", problems))?;
    let (documents, offload) = (openapi_documents::read_documents(config)?, start_offload_pool(config)?);
    let (mut all, mut diagnostics) = (Vec::new(), Diagnostics::default());
    for declaration in read_declarations(config)? {
        let Some(RouteConfig { path, aggregate: Some(aggregate), .. }) = config.routes.get(declaration.route)
        else {
            continue;
        };
        let context =
            AggregateContext { path, services: &services, documents: &documents, offload: &offload };
        match declaration.build_aggregate(aggregate, &context) {
            Ok(made) => {
                let file = source.folder().join(aggregate.file());
                all.push(InspectableAggregate { path: path.clone(), file, aggregate: made });
            }
            Err(mistakes) => diagnostics.extend_unique(mistakes),
        }
    }
    diagnostics.into_result(all)
}

impl ParsedDeclaration {
    /// Builds the declared aggregate.
    ///
    /// # Errors
    /// All mistakes that the schema of declarations can't express.
    pub(crate) fn build_aggregate(
        &self,
        config: &AggregateConfig,
        context: &AggregateContext<'_>,
    ) -> Result<Aggregate, Vec<Diagnostic>> {
        let aggregate = Aggregate::new(&self.declaration, &config.limits(), context);
        aggregate.map_err(|mistakes| {
            let mut diagnostics = self.source.resolve("", mistakes);
            diagnostics.sort_by_key(|mistake| mistake.location.line_and_column());
            diagnostics
        })
    }
}

fn configured_aggregates(config: &GatewayConfig) -> impl Iterator<Item = (usize, &AggregateConfig)> {
    let routes = config.routes.iter().enumerate();
    routes.filter_map(|(index, route)| Some((index, route.aggregate.as_ref()?)))
}

fn read_declaration(
    config: &GatewayConfig,
    route: usize,
    aggregate: &AggregateConfig,
) -> Result<ParsedDeclaration, Vec<Diagnostic>> {
    let file = config.source.folder().join(aggregate.file());
    let text = read_file(&file).map_err(|error| {
        let message = format!("the declaration {} can't be read: {error}", aggregate.file().display());
        let hint = "name a file in YAML, relative to the config".to_owned();
        vec![config.source.mistake(&format!("/routes/{route}/aggregate"), message, Some(hint))]
    })?;
    let (declaration, source) = companion_files::read_companion(&text, &file, renamed_keys::DECLARATION)?;
    Ok(ParsedDeclaration { route, declaration, source })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const OLD: &str = "\
input: { ids: { type: list, of: integer, values: [1, 2], longest: 2 }, more: { type: list, of: list } }
parts: { items: { get: 'up/json?n={ids}' } }
answer: items
";
    const NEW: &str = "\
input:
  ids: { type: array, items: integer, enum: [1, 2], max_length: 2 }
  more: { type: array, items: array }
parts: { items: { get: 'up/json?n={ids}' } }
response: items
";

    fn parse_declaration(text: &str) -> Result<(String, Vec<String>), Vec<String>> {
        let lines = |all: &[Diagnostic]| -> Vec<String> { all.iter().map(Diagnostic::to_string).collect() };
        let read = companion_files::read_companion::<AggregateDeclaration>(
            text,
            Path::new("a.yaml"),
            renamed_keys::DECLARATION,
        );
        let (declaration, source) = read.map_err(|mistakes| lines(&mistakes))?;
        Ok((format!("{declaration:?}"), lines(source.warnings())))
    }

    #[test]
    fn old_keys_and_values_equal_new_ones_and_warn() {
        let (old, warnings) = parse_declaration(OLD).unwrap();
        assert_eq!((old, Vec::new()), parse_declaration(NEW).unwrap());
        assert_eq!(
            warnings,
            [
                "a.yaml:1:23: input.ids.type: the value `list` is deprecated (hint: write `array`)",
                "a.yaml:1:29: input.ids.of: the key `of` is deprecated (hint: write `items`)",
                "a.yaml:1:42: input.ids.values: the key `values` is deprecated (hint: write `enum`)",
                "a.yaml:1:58: input.ids.longest: the key `longest` is deprecated (hint: write `max_length`)",
                "a.yaml:1:86: input.more.type: the value `list` is deprecated (hint: write `array`)",
                "a.yaml:1:92: input.more.of: the key `of` is deprecated (hint: write `items`)",
                "a.yaml:1:96: input.more.items: the value `list` is deprecated (hint: write `array`)",
                "a.yaml:3:1: answer: the key `answer` is deprecated (hint: write `response`)",
            ]
        );
    }

    #[test]
    fn an_old_and_a_new_key_for_one_setting_are_an_error() {
        for (old, new, text) in [
            ("answer", "response", "parts: { a: { get: up/a } }\nanswer: a\nresponse: a\n"),
            (
                "of",
                "items",
                "input: { a: { type: array, of: number, items: number } }\nparts: { a: { get: up/a } }\n",
            ),
        ] {
            let mistakes = parse_declaration(text).unwrap_err();
            let message = format!("`{old}` is the old name of `{new}`, which is set too");
            assert!(mistakes.len() == 1 && mistakes[0].contains(&message), "{mistakes:?}");
        }
    }

    #[test]
    fn inputs_and_parts_may_have_the_old_names() {
        let text = "\
input: { answer: { type: string }, of: { type: integer } }
parts: { answer: { get: 'up/{answer}', default: { of: list } }, values: { get: 'up/{of}' } }
";
        assert_eq!(parse_declaration(text).unwrap().1, Vec::<String>::new());
    }
}
