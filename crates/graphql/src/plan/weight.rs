//! The estimated memory of a plan. Each plan is limited, and so is the plan cache. A document of a kilobyte
//! may have a plan of megabytes, so the estimate does not depend on the length of the text.
//!
//! The estimate is the sum of the plan's parts, with the overhead of each allocation and the unused capacity
//! of each map. Data shared by plans (the types and the services' bindings) is excluded.

use std::collections::HashMap;
use std::mem::size_of;

use bytes::Bytes;
use graphql_tools::static_graphql::query::{Field as AstField, Selection, SelectionSet, Value as AstValue};

use super::data::{
    EntityRepresentation, FieldLookup, GroupPathLevel, ObjectGroup, ObjectSlot, PlanCall, PlanStep,
    RepresentationField, RepresentationValue, ResponsePosition, SlotField, StepInput, SubgraphDocument,
    TypeFilter, TypeResolver,
};
use super::shape::{FieldSource, MemberScan, ResponseShape, ShapeField, ShapeRead, ShapeVariant};
use super::types::ClientTypeRef;
use super::values::{CallArgumentTexts, ValueTemplate};
use super::{OperationVariable, QueryPlan};

/// The overhead of an allocation: rounding, and reference counts.
const ALLOCATION: usize = 24;

/// The memory of a plan in bytes.
pub(super) fn of(plan: &QueryPlan) -> usize {
    size_of::<QueryPlan>()
        + list(&plan.variables, variable)
        + list(&plan.steps, step)
        + list(&plan.positions, position)
        + list(&plan.shapes, shape)
}

/// The memory of a list and of the data that its items refer to.
fn list<T>(items: &[T], below: impl Fn(&T) -> usize) -> usize {
    // A list that has grown may have twice the capacity.
    size_of_val(items) + slice(items, below)
}

/// Like [`list`], for a list without unused capacity.
fn slice<T>(items: &[T], below: impl Fn(&T) -> usize) -> usize {
    ALLOCATION + size_of_val(items) + items.iter().map(below).sum::<usize>()
}

fn map<K, V>(map: &HashMap<K, V>, below: impl Fn(&K, &V) -> usize) -> usize {
    let entries = map.capacity() * (size_of::<(K, V)>() + 1) * 8 / 7;
    ALLOCATION + entries + map.iter().map(|(key, value)| below(key, value)).sum::<usize>()
}

fn text(text: &str) -> usize {
    ALLOCATION + text.len()
}

fn bytes(bytes: &Bytes) -> usize {
    2 * ALLOCATION + bytes.len()
}

fn only(only: &TypeFilter) -> usize {
    only.as_ref().map_or(0, |types| ALLOCATION + size_of_val(&**types))
}

fn ty(ty: &ClientTypeRef) -> usize {
    match ty {
        ClientTypeRef::Named(_) => 0,
        ClientTypeRef::List(inner) | ClientTypeRef::NonNull(inner) => {
            ALLOCATION + size_of::<ClientTypeRef>() + self::ty(inner)
        }
    }
}

fn conditions<N: AsRef<str>>(conditions: &[(N, bool)]) -> usize {
    list(conditions, |(name, _)| text(name.as_ref()))
}

fn variable(variable: &OperationVariable) -> usize {
    text(&variable.name) + variable.default.as_ref().map_or(0, bytes) + ty(&variable.ty)
}

fn arguments(arguments: &CallArgumentTexts) -> usize {
    list(&arguments.0, |(name, value)| bytes(name) + template(value))
}

fn template(value: &ValueTemplate) -> usize {
    match value {
        ValueTemplate::Text(text) => bytes(text),
        ValueTemplate::Variable { name, ty, otherwise } => {
            text(name) + self::ty(ty) + otherwise.as_ref().map_or(0, bytes)
        }
        ValueTemplate::List(items) => list(items, template),
        ValueTemplate::Object(members) => list(members, |(name, value)| bytes(name) + template(value)),
    }
}

fn step(step: &PlanStep) -> usize {
    let call = match &step.call {
        PlanCall::Operation(_, given) | PlanCall::Keys(_, given) => arguments(given),
        PlanCall::Document(document) => self::document(document),
        PlanCall::Entities(document, aliases) => {
            self::document(document) + list(aliases, |(alias, variable)| text(alias) + text(variable))
        }
        PlanCall::Linked { arguments: given, selection, declares, variables, .. } => {
            arguments(given) + text(selection) + text(declares) + list(variables, |name| text(name))
        }
    };
    call + list(&step.groups, group) + conditions(&step.conditions) + list(&step.after, |_| 0)
}

fn document(document: &SubgraphDocument) -> usize {
    // The text is stored twice: as it is, and encoded for requests.
    text(&document.text) * 3 + list(&document.variables, |name| text(name))
}

fn group(group: &ObjectGroup) -> usize {
    let input = match &group.input {
        StepInput::Nothing => 0,
        StepInput::Fields(names, keys) => list(names, |name| text(name)) + list(keys, |key| text(key)),
        StepInput::Representation(known) => representation(known),
    };
    let levels = |level: &GroupPathLevel| list(&level.slots, |_| 0) + only(&level.only);
    let walk = group.walk.as_ref().map_or(0, |walk| list(&walk.levels, levels));
    input + walk + only(&group.only) + list(&group.key, |_| 0)
}

fn representation(known: &EntityRepresentation) -> usize {
    let said = |said: &RepresentationField| {
        let value = match &said.value {
            RepresentationValue::Typename | RepresentationValue::Leaf => 0,
            RepresentationValue::Constant(text) => bytes(text),
            RepresentationValue::Object(inner) => representation(inner),
        };
        only(&said.only) + text(&said.name) + text(&said.key) + value
    };
    list(&known.0, said)
}

fn position(position: &ResponsePosition) -> usize {
    position.parent.as_ref().map_or(0, |(_, key)| text(key))
        + list(&position.slots, slot)
        + map(&position.children, |key, _| text(key))
}

fn slot(slot: &ObjectSlot) -> usize {
    let entry = |entry: &SlotField| {
        let lookup = match &entry.lookup {
            FieldLookup::Member(name) => text(name),
            _ => 0,
        };
        only(&entry.only) + lookup + text(&entry.field)
    };
    let teller = match &slot.teller {
        None | Some(TypeResolver::Always(_)) => 0,
        Some(TypeResolver::Typename(name)) => text(name),
        Some(TypeResolver::Member(name, types)) => text(name) + map(types, |name, _| text(name)),
        Some(TypeResolver::Shape(types)) => list(types, |(_, members)| list(members, |name| text(name))),
    };
    map(&slot.fields, |key, entries| text(key) + list(entries, entry)) + teller
}

fn shape(shape: &ResponseShape) -> usize {
    list(&shape.variants, variant)
}

/// The memory of the data that a variant refers to.
pub(super) fn variant(variant: &ShapeVariant) -> usize {
    only(&variant.only) + slice(&variant.fields, field) + slice(&variant.scans, scan)
}

fn scan(scan: &MemberScan) -> usize {
    // The entries contain a hash each, and the table of their indexes is as large as that of a map.
    let entry = size_of::<(usize, Box<[u8]>, Vec<usize>)>() + 2 * size_of::<usize>();
    let names = scan.names.iter().map(|(name, numbers)| ALLOCATION + name.len() + list(numbers, |_| 0));
    2 * ALLOCATION + scan.names.capacity() * entry + names.sum::<usize>()
}

fn field(field: &ShapeField) -> usize {
    let read = |read: &ShapeRead| {
        let lookup = match &read.lookup {
            FieldLookup::Member(name) => text(name),
            _ => 0,
        };
        only(&read.only) + lookup
    };
    let source = match &field.source {
        FieldSource::Typename => 0,
        FieldSource::Introspection(selected) => self::selected(selected),
        FieldSource::Slots(reads) => list(reads, read),
    };
    // A copied field stores its name twice more.
    let names = text(&field.key)
        + text(&field.planned)
        + bytes(&field.quoted)
        + text(&field.name)
        + 2 * text(&field.name);
    names + ty(&field.ty) + source + list(&field.when, |(_, when)| conditions(when))
}

fn selected(field: &AstField) -> usize {
    let argument = |(name, value): &(String, AstValue)| text(name) + literal(value);
    let names = text(&field.name) + field.alias.as_deref().map_or(0, text);
    let directives =
        list(&field.directives, |directive| text(&directive.name) + list(&directive.arguments, argument));
    names + list(&field.arguments, argument) + directives + selections(&field.selection_set)
}

fn selections(set: &SelectionSet) -> usize {
    list(&set.items, |item| match item {
        Selection::Field(field) => selected(field),
        Selection::InlineFragment(fragment) => ALLOCATION + selections(&fragment.selection_set),
        Selection::FragmentSpread(spread) => text(&spread.fragment_name),
    })
}

fn literal(value: &AstValue) -> usize {
    match value {
        AstValue::Variable(name) | AstValue::String(name) | AstValue::Enum(name) => text(name),
        AstValue::List(items) => list(items, literal),
        AstValue::Object(members) => list(members, |(name, value)| text(name) + literal(value)),
        _ => 0,
    }
}
