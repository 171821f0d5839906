//! Tests of type stripping: tables of TypeScript with the expected JavaScript, and properties of all inputs.

use std::time::Duration;

use oxc_allocator::Allocator;
use oxc_parser::Parser;
use oxc_span::SourceType;

use super::{levels, line_and_column, strip, strip_timed};

/// Each entry consists of TypeScript and the resulting JavaScript.
const STRIPPED: &[(&str, &str)] = &[
    // annotations
    ("let x: number = 1, y!: T;", "let x         = 1, y    ;"),
    ("let {a, b: [c]}: {a: 1} = d", "let {a, b: [c]}         = d"),
    ("function f(a?: T, ...b: U[]): void {}", "function f(a    , ...b     )       {}"),
    ("function f(this: A, b: C) {}", "function f(         b   ) {}"),
    ("try {} catch (e: unknown) {}", "try {} catch (e         ) {}"),
    ("x = (v: any): v is T => true", "x = (v     )         => true"),
    ("function f(v: any): asserts v is T {}", "function f(v     )                 {}"),
    ("let s: unique symbol, n: `a${string}`", "let s               , n              "),
    // type parameters and arguments
    ("const f = <T,>(x: T) => x", "const f =     (x   ) => x"),
    ("f<Array<Array<T>>>(new Map<K, V>())", "f                 (new Map      ())"),
    ("a?.b<T>(c); d?.<T>(e)", "a?.b   (c); d?.   (e)"),
    ("if (a < b && c > d) {}", "if (a < b && c > d) {}"),
    // expressions
    ("x = y as unknown as T", "x = y                "),
    ("x = {a: 1} satisfies X;", "x = {a: 1}            ;"),
    ("x = a!.b![0]!;", "x = a .b [0] ;"),
    ("x = <T>y", "x =    y"),
    ("(a as any).b = c as const", "(a       ).b = c         "),
    ("[a!, b as T] = c; a! += 1", "[a , b     ] = c; a  += 1"),
    ("for (const a of b as T[]) {}", "for (const a of b       ) {}"),
    ("s = `${a as T}`", "s = `${a     }`"),
    // declarations
    ("interface A<T> extends B { c: T }", "                                 "),
    ("type A = 'é' | 1; a", "                  a"),
    ("declare const a: 1; a", "                    a"),
    ("namespace A { type B = 1 }", "                          "),
    ("declare global { var a: 1 }", "                           "),
    ("function f(a: 1): 1\nfunction f(a: any) {}", "                   \nfunction f(a     ) {}"),
    ("type = 1; declare\nfoo", "type = 1; declare\nfoo"),
    // modules
    ("import type { Services } from './orfa'", "                                      "),
    ("import { type A, type B } from 'c'", "                                  "),
    ("import { type A, b } from 'c'", "import {         b } from 'c'"),
    ("import 'c'; import {} from 'd'", "import 'c'; import {} from 'd'"),
    ("export type { A } from 'b'; c", "                            c"),
    ("export { a, type B }; export type C = 1", "export { a,        };                  "),
    ("export default interface A {}", "                             "),
    // classes
    (
        "abstract class A<T> extends B<T> implements C, D {}",
        "         class A    extends B                    {}",
    ),
    ("class A { private static readonly a?: T = 1 }", "class A {         static          a     = 1 }"),
    ("class A { declare a: T; [k: string]: T; b!: U }", "class A {                               b     }"),
    ("class A { f(): void; f(a?: 1) {} }", "class A {            f(a    ) {} }"),
    ("abstract class A { abstract f(): void; g?() {} }", "         class A {                     g () {} }"),
];

/// Types whose removal would join or split two lines.
const LINES: &[(&str, &str)] = &[
    ("a = b as T\n(c)", "a = b ;   \n(c)"),
    ("a = b as T as U\n[c] = d", "a = b      ;   \n[c] = d"),
    ("a = b as T\n+ c", "a = b     \n+ c"),
    ("a = b satisfies T\n`c`", "a = b ;          \n`c`"),
    ("if (a as T)\n(b)", "if (a     )\n(b)"),
    ("a\ntype T = 1\n(b)", "a\n;         \n(b)"),
    ("a\ntype T = 1\nb", "a\n          \nb"),
    ("a;\ninterface T {}\n[b] = c", "a;\n              \n[b] = c"),
    ("class A { a = 1\n private [b] = 2 }", "class A { a = 1\n ;       [b] = 2 }"),
    ("class A { a = 1\n declare b: T\n *c() {} }", "class A { a = 1\n ;           \n *c() {} }"),
    ("class A { get: T\n b() {} }", "class A { get;  \n b() {} }"),
    ("f = (a): {\n  b: c\n} => d", "f = (a    \n      \n) => d"),
    ("f = async <\nT>(a: T) => a", "f = async (\n   a   ) => a"),
    ("a\r\ntype T =\r\n 1\r\nb", "a\r\n        \r\n  \r\nb"),
];

/// Rejected programs: the start of the message, and its position.
const REFUSED: &[(&str, &str, (u32, u32))] = &[
    ("\n  enum A { B }", "An enum is not supported", (2, 3)),
    ("const enum A { B }", "An enum is not supported", (1, 1)),
    ("namespace A { export const b = 1 }", "A namespace with values", (1, 1)),
    ("class A { constructor(private a: T) {} }", "A parameter property", (1, 23)),
    ("import a = require('b')", "`import x = ...` is not supported", (1, 1)),
    ("export = a", "`export =` is not supported", (1, 1)),
    ("class A { @b c() {} }", "A decorator is not supported", (1, 11)),
    ("class A { accessor b = 1 }", "An `accessor` field is not supported", (1, 11)),
    ("a\nb = <div>c</div>", "JSX is not supported", (2, 5)),
    ("function f() { return <T>\n a }", "The type here can't be removed", (2, 2)),
    ("f = () => <T>{ a: 1 }", "The type here can't be removed", (1, 14)),
];

const JAVASCRIPT: &str = r#"#!/usr/bin/env node
import a, { b as c } from "d"; import * as e from 'f' with { type: "json" }
export default async function* (input, { g = 1, ...rest }, services) {
  const r = /[<>(]\/!/g, as = 1, type = 2, t = `x${a < c ? `${as}` : !type}y`
  label: for (const [k, v] of Object.entries(rest)) { if (k >> 1 > v) continue label }
  return await services.orders.get("/orders/{id}", { id: input.n ?? 0 })?.[0]
}
export class declare extends (e.f) { static #p = 1; static { this.#p++ } get get() { return 1 } static async *[a]() {} }
"#;

#[test]
fn replaces_types_by_spaces() {
    for (typescript, javascript) in STRIPPED.iter().chain(LINES) {
        assert_eq!(strip(typescript).as_deref(), Ok(*javascript), "{typescript}");
    }
}

#[test]
fn keeps_line_lengths_and_yields_javascript() {
    for (typescript, _) in STRIPPED.iter().chain(LINES) {
        let javascript = strip(typescript).expect(typescript);
        let lengths = |text: &str| text.lines().map(|l| l.chars().count()).collect::<Vec<_>>();
        assert_eq!(lengths(typescript), lengths(&javascript), "{typescript}");
        let allocator = Allocator::default();
        let parsed = Parser::new(&allocator, &javascript, SourceType::mjs()).parse();
        assert!(!parsed.diagnostics.has_errors(), "{javascript}");
    }
}

/// Read as TypeScript, the result would not be a comparison if a line ended after the `>`.
#[test]
fn keeps_a_comparison_with_an_asserted_value() {
    assert_eq!(strip("a <T><U>b").as_deref(), Ok("a <T>   b"));
}

#[test]
fn leaves_javascript_unchanged() {
    assert_eq!(strip(JAVASCRIPT).as_deref(), Ok(JAVASCRIPT));
    for (_, javascript) in STRIPPED.iter().chain(LINES) {
        assert_eq!(strip(javascript).as_deref(), Ok(*javascript));
    }
}

#[test]
fn rejects_constructs_beyond_types_with_a_hint() {
    for (typescript, message, place) in REFUSED {
        let error = strip(typescript).expect_err(typescript);
        assert!(error.message.starts_with(message), "{typescript}: {error}");
        assert_eq!((error.line, error.column), *place, "{typescript}");
        assert!(error.hint.is_some(), "{typescript}");
    }
}

#[test]
fn reports_line_and_column_of_a_syntax_error() {
    let error = strip("let a = 1\nlet é: string = (\n").expect_err("the parenthesis is open");
    assert_eq!((error.line, error.column), (3, 1), "{error}");
    let error = strip("let x: T = 'é' +;").expect_err("an operand is missing");
    assert_eq!((error.line, error.column), (1, 17), "{error}");
}

#[test]
fn counts_columns_in_characters_and_any_line_terminator() {
    let source = "é\r\nöü x\ry";
    let at = |c| line_and_column(source, source.find(c).map_or(0, |at| at as u32));
    assert_eq!((at('x'), at('y')), ((2, 4), (3, 1)));
}

/// Programs that consist only of levels, nested as deeply as allowed: the opening, innermost and closing
/// texts.
const NESTED: &[(&str, &str, &str)] = &[
    ("[", "1", "]"),
    ("(", "1", ")"),
    ("[", "", ""),
    ("({a", "1", ""),
    ("!", "1", ""),
    ("- ", "1", ""),
    ("a", "1", "!"),
    ("new ", "a", ""),
    ("typeof ", "a", ""),
    ("void ", "a", ""),
    ("a=>", "1", ""),
    ("a=", "1", ""),
    ("a?b:", "c", ""),
    ("a?", "b", ":c"),
    ("a+", "1", ""),
    ("a**", "1", ""),
    ("a.", "b", ""),
    ("a?.", "b", ""),
    ("a", "", "``"),
    ("a", "", "()"),
    ("a", "", "[0]"),
    ("`${", "1", "}`"),
    ("{", "", "}"),
    ("if(a)", ";", ""),
    ("if(a);else ", ";", ""),
    ("while(a)", ";", ""),
    ("for(;;)", ";", ""),
    ("with(a)", ";", ""),
    ("do ", ";", " while(1)"),
    ("a:", ";", ""),
    ("try{", "", "}finally{}"),
    ("switch(a){case ", "1", ":}"),
    ("function f(){", "", "}"),
    ("(function(){", "", "})"),
    ("()=>{", "", "}"),
    ("class A extends ", "B", "{}"),
    ("class A{a=", "1", "}"),
    ("async()=>await ", "1", ""),
    ("<T>", "a", ""),
    ("a as ", "b", ""),
    ("a satisfies ", "b", ""),
    ("let a: keyof ", "b", ""),
    ("namespace a.", "b", "{}"),
    ("namespace a{", "", "}"),
    ("a in ", "b", ""),
    ("a instanceof ", "b", ""),
    ("({a(){", "", "}})"),
    ("a&&", "b", ""),
    ("a??", "b", ""),
    ("import(", "a", ")"),
    ("@(", "a", ") class A{}"),
];
/// The same kinds of programs within a type.
const NESTED_TYPES: &[(&str, &str, &str)] = &[
    ("keyof ", "b", ""),
    ("readonly ", "b", "[]"),
    ("(", "b", ")"),
    ("[", "b", "]"),
    ("{a:", "b", "}"),
    ("a<", "b", ">"),
    ("()=>", "b", ""),
    ("new()=>", "b", ""),
    ("a extends b?c:", "d", ""),
    ("a extends ", "b", "?c:d"),
    ("`${", "b", "}`"),
    ("a|", "b", ""),
    ("", "b", "[]"),
    ("", "b", "[a]"),
    ("typeof a.", "b", ""),
    ("asserts a is ", "b", ""),
    ("import('a').", "b", ""),
    ("{[a in ", "b", "]:c}"),
    ("a extends infer ", "b", "?c:d"),
];

/// Returns a program with as many levels as the bound allows, limited to 64 KiB.
fn nested(before: &str, (open, middle, close): (&str, &str, &str), at_most: usize) -> String {
    let each = levels::max_levels(open) + levels::max_levels(close);
    let fits = (64 << 10) / (open.len() + close.len());
    let count = fits.min((at_most - levels::max_levels(before) - levels::max_levels(middle)) / each.max(1));
    format!("{before}{}{middle}{}", open.repeat(count), close.repeat(count))
}

/// Detects a stack that is too small after changes to the parser or to the count of levels: the test process
/// would abort.
#[test]
fn the_stack_suffices_for_the_maximum_nesting() {
    for (before, kinds) in [("", NESTED), ("let a: ", NESTED_TYPES)] {
        for kind in kinds {
            let source = nested(before, *kind, levels::MAX_LEVELS);
            assert!(levels::max_levels(&source) <= levels::MAX_LEVELS, "{kind:?}");
            let _ = strip(&source);
        }
    }
}

#[test]
fn rejects_deeper_nesting_before_parsing() {
    for (before, kinds) in [("", NESTED), ("let a: ", NESTED_TYPES)] {
        for kind in kinds {
            let source = nested(before, *kind, usize::MAX);
            if levels::max_levels(&source) > levels::MAX_LEVELS {
                let (error, took) = strip_timed(&source);
                assert!(error.unwrap_err().message.contains("too deeply nested"), "{kind:?}");
                assert_eq!(took, Duration::ZERO, "no thread was started for it");
            }
        }
    }
}

/// Would take unbounded time without the arena's size limit.
#[test]
fn handles_hostile_programs_in_bounded_time() {
    let levels = levels::MAX_LEVELS / 2;
    assert!(strip(&"[".repeat(levels)).is_err());
    assert!(strip(&format!("a{}", "!".repeat(levels))).is_ok());
    assert!(strip(&format!("let a: {}b", "keyof ".repeat(levels))).is_ok());
    let error = strip(&"a<".repeat(levels)).expect_err("quadratic to parse");
    assert!(error.message.contains("too deeply nested"), "{error}");
}

#[test]
fn reports_the_cpu_time_of_its_thread() {
    let (stripped, took) = strip_timed(&"let a: number = 1;".repeat(500));
    assert!(stripped.is_ok() && took > Duration::ZERO);
    let (refused, took) = strip_timed(&"a<".repeat(levels::MAX_LEVELS / 2));
    assert!(refused.is_err() && took > Duration::ZERO, "charged even though the thread panics");
}
