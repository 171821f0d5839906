// Statements of plain JavaScript, one case after each `//:`. Each sets `result`; before it, `a`, `b` and `c`
// are 1, [1, 2] and { x: 1, y: [3] }. Line feeds replace semicolons where possible.
//: operators
result = [a + 1, a++, ++a, -a, a ** 2, a ?? 3, a && 2, a || 3, !a, typeof a, void a, (a, 4), a > 1 ? 'yes' : 'no']
//: assignments
a += 2; a *= 3; a ||= 9; a &&= a + 1; c.z ??= 5; c.y[0] -= 1
result = [a, c]
//: destructuring
var [p, ...q] = b, { x, y: [r = 2, s = 7], ...rest } = c
;[a, b[0]] = [b[0], a];
({ x: a, y: b } = { x: 8, y: [9] })
result = [p, q, x, r, s, rest, a, b]
//: shorthand
const o = { a, b, c, [a + 'k']: a, get g() { return a }, set g(v) { a = v }, m() { return this.a } }
o.g = 5
result = [o.a, o.g, o.m(), a, Object.keys(o)];
({ a } = { a: 6 });
({ a = 7 } = {});
result.push(a)
//: closures
const counters = []
for (let i = 0; i < 3; i++) counters.push(() => (a += i))
result = counters.map((f) => f())
//: loops and labels
result = []
outer: for (var i = 0; i < 5; i++) {
  for (const k of b) {
    if (i === 1) continue outer
    if (i === 3) break outer
    result.push(i * k)
  }
}
do { result.push(i) } while (i-- > 2)
while (i < 3) i++
for (var key in c) result.push(key)
for (a of [4, 5]) result.push(a)
for (a in { k: 1 }) result.push(a)
//: switch
switch (a) { case 0: result = 'zero'; case 1: result = 'one'; case 2: result += 'two'; break; default: result = 'none' }
//: exceptions
try { try { null.x } finally { result = ['finally'] } } catch ({ name }) { result.push(name) }
try { throw { a } } catch { result.push('caught') }
//: functions
function f(x, y = x + a, ...z) { return [x, y, z, arguments.length, new.target === undefined] }
result = [f(1), f(1, 2, 3, 4), (function g(n) { return n ? n * g(n - 1) : 1 })(4), hoisted()]
function hoisted() { return 'hoisted' }
//: classes
class A { #p = a; static s = 2; static { A.t = 3 } constructor(x) { this.x = x } get p() { return this.#p } toString() { return `A${this.x}` } }
class B extends A { constructor() { super(4) } toString() { return super.toString() + 'B' } }
result = [`${new B()}`, new B().p, A.s, A.t, new B() instanceof A]
//: generators
function* g(n) { while (n) yield n--; return 'end' }
result = [...g(3), ...[...g(2)].map((n) => n * a)]
//: templates
const tag = (texts, ...values) => texts.raw.join('|') + values
result = [`a${a}b${`c${b[0]}`}`, tag`x${a}\n${b}`]
//: regular expressions
result = ['a/b'.split(/\//), /[/}]{1}/.test('}'), 4 / a / 2, 'x'.replace(/(?<n>x)/u, '$<n>$1')]
//: optional chaining
result = [c?.x, c.nothing?.x.y, c.nothing?.[a++], c.m?.(), a, delete c?.x, 'x' in c]
//: line feeds
a = 2
++a
var text = 'one'
  + 'two'
result = [a, text]
result.push(a)
b
result.push(b.length)
//: words of S as names
var service = 1, res = [2], on = (x) => x, state = { respond: 3 }, par = 4, pfor = 5
respond = state.respond
result = [service, res[0], on(par), respond, pfor]
var respond
//: asynchronous code
const wait = async (x) => { await null; return x + a }
const all = await Promise.all([wait(1), wait(2)])
for await (const x of [wait(3)]) all.push(x)
result = all
//: numbers and texts
result = [0x1f, 1_000, 1e3, .5, 'a\u{1F600}b'.length, "it's", '\x41', Number.MAX_SAFE_INTEGER + 1, [1n + 2n].map(String)]
//: spread and holes
result = [[...b, ...'xy'], { ...c, a }, Math.max(...b), [, 1].length]
//: nested blocks
{ let a = 5; { let a = 6; result = [a] } result.push(a) }
result.push(a)
//: comma, in and instanceof
for (var n = 0, m = 3; n < m; n++, m--);
result = [n, m, 'length' in b, b instanceof Array]
//: this and bind
const bound = function () { return this.v + a }.bind({ v: 1 })
result = [bound(), [1].map(function (x) { return this.k + x }, { k: 2 })]
//: symbols and iterators
const it = { *[Symbol.iterator]() { yield a; yield* b } }
result = [...it]
//: early return
result = 'before'
if (a) { result = 'inside' }
//: json and dates
result = [JSON.parse(JSON.stringify(c)), new Date(0).toISOString(), Object.entries(c)]
