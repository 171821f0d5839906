//! The response writer: one walk over the client's selection copies text out of the documents. Objects that
//! occur in several places are written once.
//!
//! An object that a document already contains in the requested form is copied in one piece (`copy.rs`). For
//! other objects the values are searched (`scan.rs`) and written field by field. A missing value at a
//! non-null position is an error (`told.rs`), and null propagates to the closest nullable ancestor (6.4.4).

mod again;
mod copy;
mod long;
mod scan;
mod told;

use std::sync::Arc;

use bytes::Bytes;
use graphql_tools::static_graphql::query::Field as AstField;
use graphql_tools::static_graphql::schema::Document as SchemaDocument;
use json::ValueKind;
use offload::SHORT_TEXT;

use super::introspect::{self, IntrospectionLimits};
use super::leaf::{self, LeafOutcome};
use super::run::ExecutionRun;
use super::val::{SlotLists, SlotValue};
use super::{AnswerRules, ExecutionResponse};
use crate::error::{GraphqlError, GraphqlErrorKind};
use crate::plan::data::{FieldLookup, PositionId, has};
use crate::plan::shape::{FieldSource, ShapeField, ShapeId, ShapeRead, ShapeVariant};
use crate::plan::types::{ClientTypeRef, TypeId};
use again::{WrittenObjectKey, WrittenObjects};
use copy::PATIENCE;
use scan::ReadResult;

/// The reads that yield a value.
type ValueReads<'r> = &'r [ShapeRead];

pub(super) struct DataWriter<'r> {
    run: &'r ExecutionRun<'r>,
    schema: &'r SchemaDocument,
    introspected: &'r [(Arc<str>, Bytes)],
    out: Vec<u8>,
    errors: Vec<GraphqlError>,
    /// The approximate size of the errors in bytes.
    error_bytes: usize,
    left_out: usize,
    /// The maximum size of the response in bytes, and whether it has been exceeded; then nothing more is
    /// written.
    most: usize,
    is_over: bool,
    /// Whether a single value may exceed the maximum size.
    is_large: bool,
    /// The number of fields written so far. Other work counts as fields that take as long.
    steps: usize,
    most_steps: usize,
    path: Vec<WriteStep<'r>>,
    /// The values that were found among the members of all objects in progress.
    hits: Vec<ReadResult<'r>>,
    /// By scan: the names of members in the order in which they last occurred, each with its index among the
    /// names searched for.
    orders: Vec<Vec<(&'r [u8], Option<usize>)>>,
    /// By shape: the number of further attempts to copy an object in one piece.
    patience: Vec<u8>,
    known: WrittenObjects,
    /// Value buffers for reuse.
    spare: Vec<Vec<SlotValue<'r>>>,
}

/// A response is written without yielding if its sources have at most `SHORT_TEXT` bytes, and as long as it
/// has at most `SHORT_TEXT` bytes and `SHORT_STEPS` fields. This takes about half a millisecond.
const SHORT_STEPS: usize = 8_000;
/// The maximum capacity that is reserved before the size of the response is known.
const MOST_ROOM: usize = 1 << 20;

#[derive(Clone, Copy)]
enum WriteStep<'r> {
    Key(&'r Arc<str>),
    Index(usize),
}

/// The origin of those values of an object that are not read from its scanned members.
#[derive(Clone, Copy)]
struct ObjectOrigin<'v, 'r> {
    ty: TypeId,
    values: &'v [SlotValue<'r>],
    /// The start of this object's entries in `hits`.
    base: usize,
}

impl<'r> DataWriter<'r> {
    fn new(
        run: &'r ExecutionRun<'r>,
        schema: &'r SchemaDocument,
        rules: &'r AnswerRules,
        most: usize,
    ) -> Self {
        let size = run.bytes();
        Self {
            run,
            schema,
            introspected: &rules.introspected,
            out: Vec::with_capacity(64 + size.min(MOST_ROOM)),
            errors: Vec::new(),
            error_bytes: 0,
            left_out: 0,
            most,
            is_over: false,
            is_large: size > most,
            steps: 0,
            most_steps: usize::MAX,
            path: Vec::new(),
            hits: Vec::new(),
            orders: vec![Vec::new(); run.plan.scans],
            patience: vec![PATIENCE; run.plan.shapes.len()],
            known: WrittenObjects::default(),
            spare: Vec::new(),
        }
    }

    /// Writes the complete response; `None` if it would be too large. A short response is written at once; a
    /// long one off the serving thread, where it yields to other requests in between.
    pub(super) async fn write(
        run: &'r ExecutionRun<'r>,
        schema: &'r SchemaDocument,
        rules: &'r AnswerRules,
    ) -> Option<ExecutionResponse> {
        // Copying takes less time per byte than parsing.
        offload::move_if_long(run.bytes() / 2).await;
        if run.bytes() <= SHORT_TEXT {
            let mut writer = Self::new(run, schema, rules, rules.most.min(SHORT_TEXT));
            writer.most_steps = SHORT_STEPS;
            let values = writer.begin();
            let is_written = writer.root(&values);
            if let Some(answer) = writer.end(is_written, rules).await {
                #[cfg(test)]
                Self::check_long(run, schema, rules, &answer.tree).await;
                return Some(answer);
            }
        }
        offload::move_to_pool().await;
        let mut writer = Self::new(run, schema, rules, rules.most);
        let values = writer.begin();
        let is_written = writer.long_root(&values).await;
        writer.end(is_written, rules).await
    }

    /// Checks that the yielding writer produces the same response.
    #[cfg(test)]
    async fn check_long(
        run: &'r ExecutionRun<'r>,
        schema: &'r SchemaDocument,
        rules: &'r AnswerRules,
        short: &json::JsonTree,
    ) {
        let text = |tree: &json::JsonTree| {
            let mut text = Vec::new();
            tree.write(&mut text);
            String::from_utf8(text).expect("UTF-8")
        };
        let mut writer = Self::new(run, schema, rules, rules.most);
        let values = writer.begin();
        let is_written = writer.long_root(&values).await;
        let long = writer.end(is_written, rules).await.expect("an answer");
        assert_eq!(text(&long.tree), text(short));
    }

    /// Begins the response, and returns the values of the root object.
    fn begin(&mut self) -> Vec<SlotValue<'r>> {
        self.out.extend_from_slice(b"{\"data\":");
        let position = &self.run.plan.positions[0];
        let mut values = vec![SlotValue::Absent; position.slots.len()];
        self.run.fill(position, None, &mut values);
        values
    }

    /// Writes the root object, and returns whether it is not null.
    fn root(&mut self, values: &[SlotValue<'r>]) -> bool {
        let id = self.run.plan.root;
        let shape = &self.run.plan.shapes[id];
        let Some(variant) = shape.variants.first() else { return false };
        self.told(id, values);
        self.scan(variant, values);
        self.members(variant, ObjectOrigin { ty: shape.parent, values, base: 0 })
    }

    /// Writes everything after the root object. Errors are stripped of schema names for callers without
    /// access to the schema. Yields after some errors.
    async fn end(mut self, is_written: bool, rules: &AnswerRules) -> Option<ExecutionResponse> {
        const ERRORS: usize = 100;
        if !is_written {
            self.cut(b"{\"data\":".len());
            self.out.extend_from_slice(b"null");
        }
        self.aside();
        if self.left_out > 0 && !self.errors.is_empty() {
            let message = format!("{} further errors are left out", self.left_out);
            self.errors.push(GraphqlError::new(GraphqlErrorKind::Value, message));
        }
        let (last, has_errors) = (self.errors.len().saturating_sub(1), !self.errors.is_empty());
        for (number, error) in std::mem::take(&mut self.errors).into_iter().enumerate() {
            self.out.extend_from_slice(if number == 0 { b",\"errors\":[" } else { b"," });
            let error = if rules.tells_schema { error } else { error.without_schema() };
            self.out.extend_from_slice(error.json().to_string().as_bytes());
            if self.is_full() {
                break;
            }
            if number == last {
                self.out.push(b']');
            } else if number % ERRORS == ERRORS - 1 {
                offload::move_to_pool().await;
            }
        }
        self.out.push(b'}');
        (!self.is_full()).then(|| ExecutionResponse { tree: self.known.tree(self.out), has_errors })
    }

    /// Whether the response exceeds a limit.
    #[inline]
    fn is_full(&mut self) -> bool {
        self.is_over |= self.out.len() > self.most || self.steps > self.most_steps;
        self.is_over
    }

    /// Discards everything that was written after this length.
    fn cut(&mut self, length: usize) {
        self.out.truncate(length);
        self.known.cut(length);
    }

    /// Writes an object, and returns whether it is not null.
    fn object(&mut self, id: ShapeId, values: &[SlotValue<'r>]) -> bool {
        let Some((variant, ty)) = self.variant(id, values) else { return false };
        if self.copies(id, variant, ty, values) {
            return true;
        }
        let (start, base) = (self.out.len(), self.hits.len());
        self.scan(variant, values);
        let is_written = self.members(variant, ObjectOrigin { ty, values, base });
        self.hits.truncate(base);
        if !is_written {
            self.cut(start);
        }
        is_written
    }

    /// Returns the variant of the shape for an object, and its type; `None` if the type does not fit.
    fn variant(&mut self, id: ShapeId, values: &[SlotValue<'r>]) -> Option<(&'r ShapeVariant, TypeId)> {
        let plan = self.run.plan;
        let shape = &plan.shapes[id];
        let ty = match plan.types.is_object(shape.parent) {
            true => Some(shape.parent),
            false => shape.position.and_then(|position| self.run.type_of(position, values)),
        };
        // The type is not requested if nothing depends on it. It matters if the object may be of a hidden
        // type.
        let hides = !plan.types.hidden_objects(shape.parent).is_empty();
        let is_untold =
            |variant: &ShapeVariant| variant.only.is_none() && !hides && !self.run.tells(shape.position);
        let ty = ty.or_else(|| shape.variants.iter().any(is_untold).then_some(shape.parent));
        self.told(id, values);
        let Some(ty) = ty.filter(|ty| plan.types.holds(shape.parent, *ty)) else {
            self.untyped(shape.parent, ty);
            return None;
        };
        let variant = shape.variants.iter().find(|variant| has(&variant.only, Some(ty)))?;
        Some((variant, ty))
    }

    fn members(&mut self, variant: &'r ShapeVariant, place: ObjectOrigin<'_, 'r>) -> bool {
        self.out.push(b'{');
        self.steps += variant.steps;
        let start = self.out.len();
        let member = |writer: &mut Self, field: &'r ShapeField| {
            if writer.is_full() {
                return false;
            }
            if writer.out.len() > start {
                writer.out.push(b',');
            }
            writer.out.extend_from_slice(&field.quoted);
            writer.field(field, place)
        };
        let is_whole = if variant.is_loose {
            self.ordered(variant).into_iter().all(|field| member(self, field))
        } else {
            variant.fields.iter().all(|field| self.occurrence(field).is_none() || member(self, field))
        };
        self.out.push(b'}');
        is_whole
    }

    /// Returns the first occurrence of a field in the document whose conditions hold.
    #[inline]
    fn occurrence(&self, field: &ShapeField) -> Option<usize> {
        let holds = |when: &[(Arc<str>, bool)]| {
            when.iter().all(|(name, value)| self.run.variables.is_true(name) == *value)
        };
        field.when.iter().find(|(_, when)| holds(when)).map(|(place, _)| *place)
    }

    /// Returns the included fields of an object in the order of their occurrences.
    fn ordered(&self, variant: &'r ShapeVariant) -> Vec<&'r ShapeField> {
        let there = variant.fields.iter().filter_map(|field| Some((self.occurrence(field)?, field)));
        let mut there: Vec<(usize, &ShapeField)> = there.collect();
        there.sort_by_key(|(place, _)| *place);
        there.into_iter().map(|(_, field)| field).collect()
    }

    /// Writes a field's value. Returns false if its null propagates to the object.
    fn field(&mut self, field: &'r ShapeField, place: ObjectOrigin<'_, 'r>) -> bool {
        let plan = self.run.plan;
        let reads = match &field.source {
            FieldSource::Typename => {
                self.out.push(b'"');
                self.out.extend_from_slice(plan.types.name(place.ty).as_bytes());
                self.out.push(b'"');
                return true;
            }
            FieldSource::Introspection(asked) => {
                return self.introspect(field, asked);
            }
            FieldSource::Slots(reads) => reads,
        };
        let mut below = self.spare.pop().unwrap_or_default();
        let (reads, child) = self.sources(field, reads, place, &mut below);
        self.path.push(WriteStep::Key(&field.key));
        let is_written = self.value(&field.ty, field, reads, &mut below, child);
        self.path.pop();
        below.clear();
        self.spare.push(below);
        is_written
    }

    /// Writes the value of an introspection field, which was computed before if it is long.
    fn introspect(&mut self, field: &ShapeField, asked: &AstField) -> bool {
        if let Some((_, text)) = self.introspected.iter().find(|(key, _)| *key == field.key) {
            self.out.extend_from_slice(text);
            return !self.is_full();
        }
        let limits = IntrospectionLimits::of(self.most.saturating_sub(self.out.len()));
        let (plan, variables) = (self.run.plan, &self.run.variables);
        let left = introspect::write(self.schema, plan, variables, asked, &mut self.out, limits);
        self.is_over |= left.is_none();
        !self.is_over
    }

    /// Collects the values that a field is written from: for a composite type one per slot of its position,
    /// otherwise the first that is present. Returns the reads that yielded them, and the position.
    fn sources(
        &self,
        field: &'r ShapeField,
        reads: &'r [ShapeRead],
        place: ObjectOrigin<'_, 'r>,
        below: &mut Vec<SlotValue<'r>>,
    ) -> (&'r [ShapeRead], PositionId) {
        let value = |read: &ShapeRead| match read.lookup {
            FieldLookup::Itself => place.values[read.slot].alone(),
            FieldLookup::Member(_) => self.hits[place.base + read.number].value,
        };
        let mut fitting = reads.iter().filter(|read| has(&read.only, Some(place.ty)));
        if let (Some(_), Some(child)) = (field.shape, field.child) {
            below.resize(self.run.plan.positions[child].slots.len(), SlotValue::Absent);
            for read in fitting {
                if let Some(slot) = read.below.filter(|slot| matches!(below[*slot], SlotValue::Absent)) {
                    below[slot] = value(read);
                }
            }
            return (reads, child);
        }
        let is_there = |read: &&ShapeRead| !matches!(value(read), SlotValue::Absent | SlotValue::Failed(_));
        let best = fitting
            .clone()
            .find(is_there)
            .or_else(|| fitting.rfind(|read| matches!(value(read), SlotValue::Failed(_))));
        below.push(best.map_or(SlotValue::Absent, value));
        (best.map(std::slice::from_ref).unwrap_or_default(), 0)
    }

    /// Writes a value, or `null` if the type is nullable. Returns whether something was written.
    fn value(
        &mut self,
        ty: &'r ClientTypeRef,
        field: &'r ShapeField,
        reads: &'r [ShapeRead],
        values: &mut [SlotValue<'r>],
        child: PositionId,
    ) -> bool {
        let before = self.errors.len();
        let is_written = self.inner(ty.nullable(), field, reads, values, child);
        self.or_null(ty, field, is_written, before)
    }

    /// Writes `null` for a value that could not be written, if the type is nullable. `before` is the number
    /// of errors before it.
    fn or_null(&mut self, ty: &ClientTypeRef, field: &ShapeField, is_written: bool, before: usize) -> bool {
        match ty {
            _ if is_written => true,
            ClientTypeRef::NonNull(_) => {
                self.missing(field, before);
                false
            }
            _ => {
                self.out.extend_from_slice(b"null");
                true
            }
        }
    }

    /// Writes a non-null value. Returns whether there is one.
    fn inner(
        &mut self,
        ty: &'r ClientTypeRef,
        field: &'r ShapeField,
        reads: &'r [ShapeRead],
        values: &mut [SlotValue<'r>],
        child: PositionId,
    ) -> bool {
        if values.iter().all(|value| matches!(value, SlotValue::Absent | SlotValue::Failed(_))) {
            if let Some(SlotValue::Failed(error)) =
                values.iter().find(|value| matches!(value, SlotValue::Failed(_)))
            {
                self.failed(*error, field);
            }
            return false;
        }
        if let ClientTypeRef::List(item) = ty {
            return self.list(item, field, reads, values, child);
        }
        match field.shape {
            Some(shape) => self.composite(shape, field, values, child),
            None => self.leaf(ty.named(), field, reads, values),
        }
    }

    fn list(
        &mut self,
        item: &'r ClientTypeRef,
        field: &'r ShapeField,
        reads: &'r [ShapeRead],
        values: &mut [SlotValue<'r>],
        child: PositionId,
    ) -> bool {
        let Some(mut split) = SlotLists::of(self.run, values) else {
            self.wrong(field, "a list", values);
            return false;
        };
        let (start, mut number) = (self.out.len(), 0);
        while let Some(is_there) = self.next_item(&mut split, number, values) {
            if !is_there {
                return true;
            }
            self.path.push(WriteStep::Index(number));
            let is_written = self.value(item, field, reads, values, child);
            self.path.pop();
            if !is_written {
                break;
            }
            number += 1;
        }
        self.cut(start);
        false
    }

    /// Advances to the next item of a list, and writes the delimiter before it. Returns whether there is an
    /// item, or `None` if the response exceeds a limit.
    #[inline]
    fn next_item(
        &mut self,
        split: &mut SlotLists<'r>,
        number: usize,
        values: &mut [SlotValue<'r>],
    ) -> Option<bool> {
        if self.is_full() {
            return None;
        }
        self.steps += 1;
        let is_there = split.next(values);
        match (number, is_there) {
            (0, true) => self.out.push(b'['),
            (0, false) => self.out.extend_from_slice(b"[]"),
            (_, true) => self.out.push(b','),
            (_, false) => self.out.push(b']'),
        }
        Some(is_there)
    }

    fn leaf(
        &mut self,
        ty: TypeId,
        field: &'r ShapeField,
        reads: &[ShapeRead],
        values: &[SlotValue<'r>],
    ) -> bool {
        let Some(node) = values.first().and_then(|value| value.node()) else { return false };
        if self.is_large && self.out.len() + node.text().len() > self.most {
            self.is_over = true;
            return false;
        }
        let spelling = reads.first().and_then(|read| read.spelling.as_deref());
        match leaf::write(&self.run.plan.types, ty, node, spelling, &mut self.out) {
            LeafOutcome::Written => true,
            LeafOutcome::Null => false,
            LeafOutcome::Wrong => {
                let name = Arc::clone(self.run.plan.types.name(ty));
                self.wrong(field, &format!("a value of `{name}`"), values);
                false
            }
        }
    }

    /// Writes an object of the position `child`.
    fn composite(
        &mut self,
        shape: ShapeId,
        field: &'r ShapeField,
        values: &mut [SlotValue<'r>],
        child: PositionId,
    ) -> bool {
        let key = match self.composite_key(shape, field, values, child) {
            Ok(key) => key,
            Err(is_written) => return is_written,
        };
        let (start, errors) = (self.out.len(), self.errors.len());
        let is_written = self.object(shape, values);
        if let Some(key) = key.filter(|_| is_written && self.errors.len() == errors) {
            self.known.add(key, start..self.out.len());
        }
        is_written
    }

    /// Returns the key by which an object can be reused if it may occur in several places. An object that has
    /// been written before is copied from there, and a value that is not an object is reported as an error;
    /// `Err` then contains whether the value was written, and nothing is left to do.
    fn composite_key(
        &mut self,
        shape: ShapeId,
        field: &'r ShapeField,
        values: &mut [SlotValue<'r>],
        child: PositionId,
    ) -> Result<Option<WrittenObjectKey>, bool> {
        let position = &self.run.plan.positions[child];
        if !values.iter().any(|value| value.node().is_some_and(|node| node.kind() == ValueKind::Object)) {
            self.wrong(field, "an object", values);
            return Err(false);
        }
        self.run.fill(position, None, values);
        let (true, [SlotValue::At(document, node, None)]) = (position.is_shared, &*values) else {
            return Ok(None);
        };
        let key = (shape, u64::from(*document) << 32 | node.start() as u64);
        let Some(length) = self.known.length(&key) else { return Ok(Some(key)) };
        self.is_over |= self.out.len() + length > self.most;
        Err(!self.is_over && self.known.copy(&key, &mut self.out))
    }
}
