service s {
  res own = 'http://x/@'
  state hits = 0
  res '/a' {
    state n = 1
    function even(k) { return k === 0 || odd(k - 1) }
    const odd = (k) => k === 0 ? own.get(k) : even(k - 1)
    const down = function self(k) { return k ? self(k - 1) + n : 0 }
    function look() { return n }
    async function all(list) { pfor(var i in list) { await list[i] } }
    on GET {
      function inner(k) { function deeper() { return later(k) } return deeper() }
      { function even() { return 'another' } even() }
      await all([])
      respond [even(2), inner(1), down(2), [1].map(look), (function it(k) { return k ? it(k - 1) : own.get(k) })(2)]
      function later(k) { return own.get(k) + odd(k) }
    }
  }
  res '/b' on POST {
    var x = query.x
    function help() { return x + 1 }
    function same() { return 'outer' }
    function outer() { return same() }
    res '/b/' + x {
      state n = first()
      function first() { return help() * 2 }
      function same() { return 'inner' + x }
      const load = (k) => own.get(k) + plain()
      function plain() { return 7 }
      function bump() { n++; hits++ }
      class Item { value() { return x } }
      on PUT { bump(); respond n }
      on GET { respond [same(), outer(), load(1), plain(), new Item().value()] }
    }
  }
}
