//! Field sets, as in `@key`, `@requires` and `@provides`.

use graphql_tools::parser::query::{
    Definition, OperationDefinition, Selection as AstSelection, SelectionSet,
};

use super::sdl_text;

/// A set of fields, each with a selection of subfields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSetSelection(pub(super) Vec<SelectedElement>);

/// An element of a selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SelectedElement {
    Field { name: Box<str>, has_arguments: bool, has_directives: bool, subselection: FieldSetSelection },
    InlineFragment { type_condition: Option<Box<str>>, below: FieldSetSelection },
}

impl FieldSetSelection {
    /// Parses a text such as `id organization { id }`.
    pub(super) fn parse(fields: &str) -> Result<Self, String> {
        if sdl_text::is_too_deep(fields) {
            return Err("is nested too deeply".to_owned());
        }
        let text = format!("{{{fields}}}");
        let document = graphql_tools::parser::parse_query::<&str>(&text)
            .map_err(|_| "is not a selection of fields".to_owned())?;
        match document.definitions.as_slice() {
            [Definition::Operation(OperationDefinition::SelectionSet(set))] => parse_selection_set(set),
            _ => Err("is not a selection of fields".to_owned()),
        }
    }

    /// Whether both select the same fields, in any order.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let holds = |all: &Self, element: &SelectedElement| {
            all.0.iter().any(|picked| match (picked, element) {
                (
                    SelectedElement::Field { name, subselection: below, .. },
                    SelectedElement::Field { name: other, subselection: others, .. },
                ) => name == other && below.is_same(others),
                (
                    SelectedElement::InlineFragment { type_condition: of, below },
                    SelectedElement::InlineFragment { type_condition: other, below: others },
                ) => of == other && below.is_same(others),
                _ => false,
            })
        };
        self.0.len() == other.0.len() && self.0.iter().all(|picked| holds(other, picked))
    }
}

fn parse_selection_set<'q>(set: &SelectionSet<'q, &'q str>) -> Result<FieldSetSelection, String> {
    let one = |asked: &AstSelection<'q, &'q str>| match asked {
        AstSelection::Field(field) if field.alias.is_some() => {
            Err(format!("renames the field \"{}\"", field.name))
        }
        AstSelection::Field(field) => Ok(SelectedElement::Field {
            name: field.name.into(),
            has_arguments: !field.arguments.is_empty(),
            has_directives: !field.directives.is_empty(),
            subselection: parse_selection_set(&field.selection_set)?,
        }),
        AstSelection::InlineFragment(fragment) => {
            let of = fragment.type_condition.as_ref().map(|on| {
                let graphql_tools::parser::query::TypeCondition::On(name) = on;
                Box::from(*name)
            });
            Ok(SelectedElement::InlineFragment {
                type_condition: of,
                below: parse_selection_set(&fragment.selection_set)?,
            })
        }
        AstSelection::FragmentSpread(_) => Err("refers to a fragment that does not exist".to_owned()),
    };
    set.items.iter().map(one).collect::<Result<_, _>>().map(FieldSetSelection)
}
