//! Relations between parts: dependencies, and parts whose values are put into others.

use diagnostics::Diagnostics;
use http::Method;
use json::pointer::append_step;
use json::{JsonPath, JsonPathStep};

use super::{PartPlan, parts};
use crate::declaration::AggregateDeclaration;
use crate::declaration::error_kind::DeclarationErrorKind;

/// Links the parts, and reports invalid relations.
pub(super) fn link_parts(
    list: &mut [PartPlan],
    declaration: &AggregateDeclaration,
    mistakes: &mut Diagnostics,
) {
    for part in 0..list.len() {
        if let Some(into) = list[part].put_target().map(|into| into.part).filter(|into| *into != part) {
            list[into].children.push(part);
            // An existing member is replaced by a value that is put in under its name.
            let quoted = list[part].put_target().map(|target| target.json_name.clone());
            if let Some(fields) = &mut list[into].fields {
                fields.retain(|(name, _)| Some(name) != quoted.as_ref());
            }
        }
    }
    let count = check_relations(list, declaration, mistakes);
    if count > 0 {
        return;
    }
    if declaration.sequential {
        for (before, part) in list.iter_mut().skip(1).enumerate() {
            add_dependency(&mut part.dependencies, before);
        }
        report_cycle(
            list,
            mistakes,
            |part| &part.dependencies,
            "needs",
            "parts are called in the order of the file: move it further down",
        );
        return;
    }
    // An unsafe call runs only after every call that does not depend on it has succeeded.
    let is_unsafe = |part: &PartPlan| !parts::is_safe(&part.method);
    if let Some(last) = list.iter().position(is_unsafe) {
        let before: Vec<usize> =
            (0..list.len()).filter(|part| *part != last && !depends_on(list, *part, last)).collect();
        before.into_iter().for_each(|part| add_dependency(&mut list[last].dependencies, part));
    }
}

/// Reports invalid relations, and returns their number.
fn check_relations(
    list: &[PartPlan],
    declaration: &AggregateDeclaration,
    mistakes: &mut Diagnostics,
) -> usize {
    let mut diagnostics = Diagnostics::default();
    report_cycle(
        list,
        &mut diagnostics,
        |part| &part.dependencies,
        "needs",
        "each waits for the other: remove one of the placeholders",
    );
    report_cycle(
        list,
        &mut diagnostics,
        |part| &part.children,
        "gets",
        "each is put into the other: leave one of them out",
    );
    let mut unsafe_ones = list.iter().filter(|part| !parts::is_safe(&part.method));
    if let (Some(first), Some(second), false) =
        (unsafe_ones.next(), unsafe_ones.next(), declaration.sequential)
    {
        let word = |method: &Method| method.as_str().to_ascii_lowercase();
        let message = format!("`{}` and `{}` both change something", first.name, second.name);
        let hint = "write `sequential: true` at the top: then the calls are made one after the other";
        let place = append_step(&append_step("/parts", &second.name), &word(&second.method));
        diagnostics.add(DeclarationErrorKind::Unsafe, place, message, hint);
    }
    for part in list {
        let place = append_step("/parts", &part.name);
        let children: Vec<_> = part.children.iter().filter_map(|child| list[*child].put_target()).collect();
        for (number, into) in children.iter().enumerate() {
            let same = |other: &&&super::PartPath| other.name == into.name && other.path == into.path;
            if children[..number].iter().any(|other| same(&other)) {
                let message = format!("two parts are put into `{}` as `{}`", part.name, into.name);
                diagnostics.add(DeclarationErrorKind::Join, &place, message, "give each a name with `as`");
            }
            if part.fields.is_some() && !is_item(&into.path) {
                let message = "`fields` can't be combined with values that are put deep into the part";
                diagnostics.add(
                    DeclarationErrorKind::Fields,
                    append_step(&place, "fields"),
                    message,
                    "leave `fields` out",
                );
            }
        }
        if let (Some(each), false) = (&part.each, children.is_empty())
            && each.target.is_some()
        {
            let message =
                format!("something is put into `{}`, whose own values are put into items", part.name);
            diagnostics.add(
                DeclarationErrorKind::Each,
                append_step(&place, "each"),
                message,
                "write `apart: true`, or put it elsewhere",
            );
        }
    }
    let found = diagnostics.into_vec();
    let count = found.len();
    mistakes.extend(found);
    count
}

/// Whether a path leads to the value itself or to its items.
fn is_item(path: &JsonPath) -> bool {
    matches!(path.steps(), [] | [JsonPathStep::Wildcard])
}

/// Reports a cycle, if there is one.
fn report_cycle(
    list: &[PartPlan],
    mistakes: &mut Diagnostics,
    next: impl Fn(&PartPlan) -> &Vec<usize>,
    word: &str,
    hint: &str,
) {
    // The states are 0 (new), 1 (on the path) and 2 (done).
    fn find_cycle(
        list: &[PartPlan],
        part: usize,
        states: &mut [u8],
        way: &mut Vec<usize>,
        next: &dyn Fn(&PartPlan) -> &Vec<usize>,
    ) -> bool {
        states[part] = 1;
        way.push(part);
        for other in next(&list[part]) {
            if states[*other] == 1 {
                let begin = way.iter().position(|known| known == other).unwrap_or(0);
                way.drain(..begin);
                way.push(*other);
                return true;
            }
            if states[*other] == 0 && find_cycle(list, *other, states, way, next) {
                return true;
            }
        }
        states[part] = 2;
        way.pop();
        false
    }
    let mut states = vec![0; list.len()];
    for part in 0..list.len() {
        let mut way = Vec::new();
        if states[part] == 0 && find_cycle(list, part, &mut states, &mut way, &next) {
            let names: Vec<String> = way.iter().map(|part| format!("`{}`", list[*part].name)).collect();
            let place = append_step("/parts", &list[way[0]].name);
            let message = format!("this is a cycle: {}", names.join(&format!(" {word} ")));
            mistakes.add(DeclarationErrorKind::Cycle, place, message, hint);
            return;
        }
    }
}

/// Whether a part depends on another, directly or indirectly.
fn depends_on(list: &[PartPlan], part: usize, other: usize) -> bool {
    let mut seen = vec![false; list.len()];
    let mut next = vec![part];
    while let Some(part) = next.pop() {
        for need in &list[part].dependencies {
            if !std::mem::replace(&mut seen[*need], true) {
                next.push(*need);
            }
        }
    }
    seen[other]
}

fn add_dependency(needs: &mut Vec<usize>, need: usize) {
    if !needs.contains(&need) {
        needs.push(need);
    }
}
