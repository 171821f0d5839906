//! The shape of a program: its nodes in order with their depths, without types. Two programs of the same
//! shape agree on where expressions and statements end.

use oxc_ast::{AstKind, AstType, ast::Program};
use oxc_ast_visit::Visit;
use oxc_span::GetSpan;

#[derive(Default)]
pub(super) struct TreeShape {
    nodes: Vec<TreeShapeNode>,
    depth: u32,
}

struct TreeShapeNode {
    kind: AstType,
    depth: u32,
    start: u32,
}

impl TreeShape {
    pub(super) fn from_program(program: &Program<'_>) -> Self {
        let mut shape = Self::default();
        shape.visit_program(program);
        shape
    }

    pub(super) fn push_node(&mut self, kind: AstKind<'_>) {
        if is_counted(kind) {
            let (depth, start) = (self.depth, kind.span().start);
            self.nodes.push(TreeShapeNode { kind: kind_of(kind), depth, start });
            self.depth += 1;
        }
    }

    pub(super) fn pop_node(&mut self, kind: AstKind<'_>) {
        if is_counted(kind) {
            self.depth -= 1;
        }
    }

    /// Returns the position in this program's source where the two shapes first differ.
    pub(super) fn first_difference(&self, other: &Self) -> Option<u32> {
        let mut others = other.nodes.iter();
        for node in &self.nodes {
            if others.next().is_none_or(|o| (o.kind, o.depth) != (node.kind, node.depth)) {
                return Some(node.start);
            }
        }
        others.next().and(self.nodes.last()).map(|node| node.start)
    }
}

impl<'a> Visit<'a> for TreeShape {
    fn enter_node(&mut self, kind: AstKind<'a>) {
        self.push_node(kind);
    }

    fn leave_node(&mut self, kind: AstKind<'a>) {
        self.pop_node(kind);
    }
}

/// A string alone is a directive at the top of a file, but a statement after an erased type. Both behave the
/// same, since modules are strict.
fn kind_of(kind: AstKind<'_>) -> AstType {
    match kind {
        AstKind::Directive(_) => AstType::ExpressionStatement,
        other => other.ty(),
    }
}

/// Empty statements are ignored: they may be semicolons that were inserted to separate statements.
fn is_counted(kind: AstKind<'_>) -> bool {
    !matches!(kind, AstKind::EmptyStatement(_))
}
