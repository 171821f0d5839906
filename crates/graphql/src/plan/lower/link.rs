//! Steps that use fields of objects as inputs: links, and objects fetched by their keys.

use std::sync::Arc;

use hive_router_query_planner::ast::selection_set::FieldSelection;

use super::select::{self, Spot, inlined};
use super::{Broken, Done, Fetch, Lowering, Target, conditions, names, way, words};
use crate::plan::data::{Call, From, Group, Input, Only, SlotId};
use crate::{Ask, How, Kind};

impl Lowering<'_> {
    /// Lowers a link to a step whose results are the field's values.
    #[expect(clippy::too_many_arguments, reason = "the link and its location")]
    pub(super) fn link(
        &mut self,
        fetch: Fetch<'_>,
        target: &Target,
        only: &Only,
        parent: &str,
        field: &FieldSelection,
        how: &How,
        reading: Reading<'_>,
    ) -> Done {
        let arguments = self.arguments(fetch, parent, field);
        let call = match (&fetch.subgraph.kind, asked(how)) {
            (Kind::Remote { path, .. }, Ask::Field { .. }) => {
                let selections = inlined(&field.selections, fetch.fragments);
                let used = selections.variable_usages();
                let bindings = fetch.bindings();
                let declared = fetch.variables.iter().filter(|variable| used.contains(&variable.name));
                let declared = declared.map(|variable| words::declared(bindings, variable).to_string());
                let declares = declared.collect::<Vec<_>>().join(", ");
                let below = self.type_of(parent, &field.name).unwrap_or_default();
                let selections = self.words(bindings, &selections, &below);
                Call::Linked {
                    path: Arc::clone(path),
                    how: how.clone(),
                    arguments,
                    selection: select::bare(&selections),
                    declares: declares.into(),
                    variables: names(used.iter()),
                }
            }
            _ => Call::Keys(how.clone(), arguments),
        };
        let slot =
            self.keyed(fetch, target, only, call, reading, &conditions(&field.skip_if, &field.include_if))?;
        let spot =
            Spot { position: target.position, slot, parent, only: only.clone(), is_conditional: false };
        self.value(fetch, &spot, field)
    }

    /// Adds a step that is made for each object, with some of its fields as inputs.
    pub(super) fn keyed(
        &mut self,
        fetch: Fetch<'_>,
        target: &Target,
        only: &Only,
        call: Call,
        mut reading: Reading<'_>,
        conditions: &[(Arc<str>, bool)],
    ) -> Result<SlotId, Broken> {
        let is_abstract = self.positions[target.position].is_abstract(self.types);
        let only = if is_abstract { only.clone() } else { None };
        let way = self.way(target, only.as_ref(), way::Needs::Keys(&mut reading.keys))?;
        let (step, position) = (self.steps.len(), target.position);
        let slot = self.positions[position].slot(From::Found(step, 0));
        let group = Group {
            position,
            slot,
            only,
            input: Input::Fields(reading.needs.into(), reading.keys.into()),
            key: way.key,
            walk: Some(way.walk),
            is_many: is_many(&call),
            batch: 0,
        };
        self.push(fetch.subgraph, call, vec![group], conditions, way.after.into_iter().collect());
        Ok(slot)
    }
}

/// The fields that a step reads from its objects.
pub(super) struct Reading<'r> {
    pub(super) needs: &'r [Box<str>],
    pub(super) keys: Vec<Arc<str>>,
}

pub(super) fn unreadable(parent: &str, field: &str) -> Broken {
    Broken(format!("the fields that `{parent}.{field}` needs are not fetched"))
}

fn asked(how: &How) -> &Ask {
    match how {
        How::Ids(ask, _) | How::List(ask, _) | How::Each(ask) => ask,
    }
}

fn is_many(call: &Call) -> bool {
    match call {
        Call::Keys(How::Ids(_, joined) | How::List(_, joined), _)
        | Call::Linked { how: How::Ids(_, joined) | How::List(_, joined), .. } => joined.is_many,
        _ => false,
    }
}
