//! The root object: as any other, but for its lists, which may be long. While they are written others have their turn.

use super::{Place, Step, Writer};
use crate::execute::val::{Split, Val};
use crate::plan::shape::{Field, ShapeId, Source};
use crate::plan::types::Ty;

/// After so many bytes others have their turn: about 2 ms. In shorter turns answers drive each other out of the caches.
const TURN: usize = 1 << 20;

impl<'r> Writer<'r> {
    /// Writes the root object; says whether there is one.
    pub(super) async fn root(&mut self, id: ShapeId, values: &[Val<'r>]) -> bool {
        let shape = &self.run.plan.shapes[id];
        let Some(variant) = shape.variants.first() else { return false };
        self.told(id, values);
        self.scan(variant, values);
        let place = Place { ty: shape.parent, values, base: 0 };
        self.out.push(b'{');
        for (number, field) in self.ordered(variant).into_iter().enumerate() {
            if number > 0 {
                self.out.push(b',');
            }
            self.out.extend_from_slice(&field.quoted);
            if self.is_full() || !self.long(field, place).await {
                return false;
            }
        }
        self.out.push(b'}');
        true
    }

    /// Writes a field of the root object, as [`Writer::field`] does.
    async fn long(&mut self, field: &'r Field, place: Place<'_, 'r>) -> bool {
        let Source::Slots(reads) = &field.source else { return self.field(field, place) };
        let mut below = Vec::new();
        let (reads, child) = self.sources(field, reads, place, &mut below);
        self.path.push(Step::Key(&field.key));
        let is_written = match (field.ty.nullable(), Split::of(self.run, &below)) {
            (Ty::List(item), Some(mut split)) => {
                let (start, errors) = (self.out.len(), self.errors.len());
                let (mut number, mut next) = (0, start + TURN);
                let is_whole = loop {
                    match self.item(&mut split, number, (item, field, reads), &mut below, child) {
                        Some(true) => number += 1,
                        Some(false) => break false,
                        None => break true,
                    }
                    if self.out.len() > next {
                        next = self.out.len() + TURN;
                        tokio::task::yield_now().await;
                    }
                };
                if !is_whole {
                    self.cut(start);
                }
                self.or_null(&field.ty, field, is_whole, errors)
            }
            _ => self.value(&field.ty, field, reads, &mut below, child),
        };
        self.path.pop();
        is_written
    }
}
