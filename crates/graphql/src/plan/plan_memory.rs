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
const ALLOCATION_OVERHEAD: usize = 24;

/// The memory of a plan in bytes.
pub(super) fn plan_bytes(plan: &QueryPlan) -> usize {
    size_of::<QueryPlan>()
        + list_bytes(&plan.variables, variable_bytes)
        + list_bytes(&plan.steps, step_bytes)
        + list_bytes(&plan.positions, position_bytes)
        + list_bytes(&plan.shapes, shape_bytes)
}

/// The memory of a list and of the data that its items refer to.
fn list_bytes<T>(items: &[T], below: impl Fn(&T) -> usize) -> usize {
    // A list that has grown may have twice the capacity.
    size_of_val(items) + slice_bytes(items, below)
}

/// Like [`list_bytes`], for a list without unused capacity.
fn slice_bytes<T>(items: &[T], below: impl Fn(&T) -> usize) -> usize {
    ALLOCATION_OVERHEAD + size_of_val(items) + items.iter().map(below).sum::<usize>()
}

fn map_bytes<K, V>(map: &HashMap<K, V>, below: impl Fn(&K, &V) -> usize) -> usize {
    let entries = map.capacity() * (size_of::<(K, V)>() + 1) * 8 / 7;
    ALLOCATION_OVERHEAD + entries + map.iter().map(|(key, value)| below(key, value)).sum::<usize>()
}

fn text_bytes(text: &str) -> usize {
    ALLOCATION_OVERHEAD + text.len()
}

fn buffer_bytes(bytes: &Bytes) -> usize {
    2 * ALLOCATION_OVERHEAD + bytes.len()
}

fn filter_bytes(only: &TypeFilter) -> usize {
    only.as_ref().map_or(0, |types| ALLOCATION_OVERHEAD + size_of_val(&**types))
}

fn type_bytes(ty: &ClientTypeRef) -> usize {
    match ty {
        ClientTypeRef::Named(_) => 0,
        ClientTypeRef::List(inner) | ClientTypeRef::NonNull(inner) => {
            ALLOCATION_OVERHEAD + size_of::<ClientTypeRef>() + self::type_bytes(inner)
        }
    }
}

fn conditions_bytes<N: AsRef<str>>(conditions: &[(N, bool)]) -> usize {
    list_bytes(conditions, |(name, _)| text_bytes(name.as_ref()))
}

fn variable_bytes(variable: &OperationVariable) -> usize {
    text_bytes(&variable.name) + variable.default.as_ref().map_or(0, buffer_bytes) + type_bytes(&variable.ty)
}

fn arguments_bytes(arguments: &CallArgumentTexts) -> usize {
    list_bytes(&arguments.0, |(name, value)| buffer_bytes(name) + template_bytes(value))
}

fn template_bytes(value: &ValueTemplate) -> usize {
    match value {
        ValueTemplate::Text(text) => buffer_bytes(text),
        ValueTemplate::Variable { name, ty, fallback: otherwise } => {
            text_bytes(name) + self::type_bytes(ty) + otherwise.as_ref().map_or(0, buffer_bytes)
        }
        ValueTemplate::List(items) => list_bytes(items, template_bytes),
        ValueTemplate::Object(members) => {
            list_bytes(members, |(name, value)| buffer_bytes(name) + template_bytes(value))
        }
    }
}

fn step_bytes(step: &PlanStep) -> usize {
    let call = match &step.call {
        PlanCall::Operation(_, given) | PlanCall::Keys(_, given) => arguments_bytes(given),
        PlanCall::Document(document) => self::document_bytes(document),
        PlanCall::Entities(document, aliases) => {
            self::document_bytes(document)
                + list_bytes(aliases, |(alias, variable)| text_bytes(alias) + text_bytes(variable))
        }
        PlanCall::Linked { arguments: given, selection, declarations: declares, variables, .. } => {
            arguments_bytes(given)
                + text_bytes(selection)
                + text_bytes(declares)
                + list_bytes(variables, |name| text_bytes(name))
        }
    };
    call + list_bytes(&step.groups, group_bytes)
        + conditions_bytes(&step.conditions)
        + list_bytes(&step.dependencies, |_| 0)
}

fn document_bytes(document: &SubgraphDocument) -> usize {
    // The text is stored twice: as it is, and encoded for requests.
    text_bytes(&document.text) * 3 + list_bytes(&document.variables, |name| text_bytes(name))
}

fn group_bytes(group: &ObjectGroup) -> usize {
    let input = match &group.input {
        StepInput::Empty => 0,
        StepInput::Fields(names, keys) => {
            list_bytes(names, |name| text_bytes(name)) + list_bytes(keys, |key| text_bytes(key))
        }
        StepInput::Representation(known) => representation_bytes(known),
    };
    let levels = |level: &GroupPathLevel| list_bytes(&level.slots, |_| 0) + filter_bytes(&level.type_filter);
    let walk = group.path.as_ref().map_or(0, |walk| list_bytes(&walk.levels, levels));
    input + walk + filter_bytes(&group.type_filter) + list_bytes(&group.key_slots, |_| 0)
}

fn representation_bytes(representation: &EntityRepresentation) -> usize {
    let said = |field: &RepresentationField| {
        let value = match &field.value {
            RepresentationValue::Typename | RepresentationValue::Leaf => 0,
            RepresentationValue::Constant(text) => buffer_bytes(text),
            RepresentationValue::Object(inner) => representation_bytes(inner),
        };
        filter_bytes(&field.type_filter) + text_bytes(&field.name) + text_bytes(&field.key) + value
    };
    list_bytes(&representation.0, said)
}

fn position_bytes(position: &ResponsePosition) -> usize {
    position.parent.as_ref().map_or(0, |(_, key)| text_bytes(key))
        + list_bytes(&position.slots, slot_bytes)
        + map_bytes(&position.children, |key, _| text_bytes(key))
}

fn slot_bytes(slot: &ObjectSlot) -> usize {
    let entry = |field: &SlotField| {
        let lookup = match &field.lookup {
            FieldLookup::Member(name) => text_bytes(name),
            _ => 0,
        };
        filter_bytes(&field.type_filter) + lookup + text_bytes(&field.field)
    };
    let teller = match &slot.type_resolver {
        None | Some(TypeResolver::Constant(_)) => 0,
        Some(TypeResolver::Typename(name)) => text_bytes(name),
        Some(TypeResolver::Member(name, types)) => {
            text_bytes(name) + map_bytes(types, |name, _| text_bytes(name))
        }
        Some(TypeResolver::Shape(types)) => {
            list_bytes(types, |(_, members)| list_bytes(members, |name| text_bytes(name)))
        }
    };
    map_bytes(&slot.fields, |key, entries| text_bytes(key) + list_bytes(entries, entry)) + teller
}

fn shape_bytes(shape: &ResponseShape) -> usize {
    list_bytes(&shape.variants, variant_bytes)
}

/// The memory of the data that a variant refers to.
pub(super) fn variant_bytes(variant: &ShapeVariant) -> usize {
    filter_bytes(&variant.type_filter)
        + slice_bytes(&variant.fields, field_bytes)
        + slice_bytes(&variant.scans, scan_bytes)
}

fn scan_bytes(scan: &MemberScan) -> usize {
    // The entries contain a hash each, and the table of their indexes is as large as that of a map.
    let entry = size_of::<(usize, Box<[u8]>, Vec<usize>)>() + 2 * size_of::<usize>();
    let names = scan
        .names
        .iter()
        .map(|(name, numbers)| ALLOCATION_OVERHEAD + name.len() + list_bytes(numbers, |_| 0));
    2 * ALLOCATION_OVERHEAD + scan.names.capacity() * entry + names.sum::<usize>()
}

fn field_bytes(field: &ShapeField) -> usize {
    let read = |read: &ShapeRead| {
        let lookup = match &read.lookup {
            FieldLookup::Member(name) => text_bytes(name),
            _ => 0,
        };
        filter_bytes(&read.type_filter) + lookup
    };
    let source = match &field.source {
        FieldSource::Typename => 0,
        FieldSource::Introspection(selected) => self::selected_bytes(selected),
        FieldSource::Slots(reads) => list_bytes(reads, read),
    };
    // A copied field stores its name twice more.
    let names = text_bytes(&field.key)
        + text_bytes(&field.planned_key)
        + buffer_bytes(&field.member_name)
        + text_bytes(&field.name)
        + 2 * text_bytes(&field.name);
    names
        + type_bytes(&field.ty)
        + source
        + list_bytes(&field.occurrences, |(_, when)| conditions_bytes(when))
}

fn selected_bytes(field: &AstField) -> usize {
    let argument = |(name, value): &(String, AstValue)| text_bytes(name) + literal_bytes(value);
    let names = text_bytes(&field.name) + field.alias.as_deref().map_or(0, text_bytes);
    let directives = list_bytes(&field.directives, |directive| {
        text_bytes(&directive.name) + list_bytes(&directive.arguments, argument)
    });
    names + list_bytes(&field.arguments, argument) + directives + selections_bytes(&field.selection_set)
}

fn selections_bytes(set: &SelectionSet) -> usize {
    list_bytes(&set.items, |item| match item {
        Selection::Field(field) => selected_bytes(field),
        Selection::InlineFragment(fragment) => {
            ALLOCATION_OVERHEAD + selections_bytes(&fragment.selection_set)
        }
        Selection::FragmentSpread(spread) => text_bytes(&spread.fragment_name),
    })
}

fn literal_bytes(value: &AstValue) -> usize {
    match value {
        AstValue::Variable(name) | AstValue::String(name) | AstValue::Enum(name) => text_bytes(name),
        AstValue::List(items) => list_bytes(items, literal_bytes),
        AstValue::Object(members) => {
            list_bytes(members, |(name, value)| text_bytes(name) + literal_bytes(value))
        }
        _ => 0,
    }
}
