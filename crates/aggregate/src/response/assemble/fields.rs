//! Selection of fields: returns a text of each object of a part with the selected fields only.

use bytes::Bytes;
use json::{JsonNode, JsonPath, JsonPathStep, ValueKind};

use crate::memory::{MemoryBudget, MemoryExhausted};

/// The objects of a part after selection, concatenated in one text.
pub(super) struct SelectedObjects {
    text: Bytes,
    ends: std::vec::IntoIter<Option<usize>>,
    start: usize,
}

impl SelectedObjects {
    /// Selects the fields of an array's items, or of a single value. Values other than objects are not
    /// changed.
    pub(super) fn from_root(
        root: JsonNode<'_>,
        fields: &[(Bytes, JsonPath)],
        memory: &MemoryBudget,
    ) -> Result<Self, MemoryExhausted> {
        memory.charge(root.text().len())?;
        memory.charge_for::<Option<usize>>(root.count().max(1))?;
        let mut text = Vec::with_capacity(root.text().len() / 2);
        let mut ends = Vec::new();
        let mut add = |node: JsonNode<'_>| {
            let is_object = node.kind() == ValueKind::Object;
            if is_object {
                write_selected(node, fields, &mut text);
            }
            ends.push(is_object.then_some(text.len()));
        };
        match root.kind() {
            ValueKind::Array => root.items().for_each(add),
            _ => add(root),
        }
        Ok(Self { text: text.into(), ends: ends.into_iter(), start: 0 })
    }

    /// Returns the text of the next object.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        let end = self.ends.next()??;
        let text = self.text.slice(self.start..end);
        self.start = end;
        Some(text)
    }
}

/// Writes the selected fields of an object, in the order of the declaration.
fn write_selected(node: JsonNode<'_>, fields: &[(Bytes, JsonPath)], out: &mut Vec<u8>) {
    let mut nodes: [Option<JsonNode<'_>>; 16] = [None; 16];
    let is_plain = fields.len() <= nodes.len()
        && fields.iter().all(|(_, path)| matches!(path.steps(), [JsonPathStep::Name(_)]));
    if is_plain {
        for (key, value) in node.members() {
            let named = fields.iter().position(
                |(_, path)| matches!(path.steps(), [JsonPathStep::Name(name)] if key.equals(name.as_bytes())),
            );
            if let Some(json_node) = named.and_then(|place| nodes.get_mut(place)) {
                json_node.get_or_insert(value);
            }
        }
    }
    out.push(b'{');
    let mut first = true;
    for (place, (name, path)) in fields.iter().enumerate() {
        let value = if is_plain { nodes.get(place).copied().flatten() } else { path.find(node) };
        let Some(value) = value else { continue };
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        out.extend_from_slice(name);
        out.push(b':');
        out.extend_from_slice(value.text());
    }
    out.push(b'}');
}
