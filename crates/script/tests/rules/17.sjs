service s {
  res g = 'http://x/@'
  const t = g.get(1)
  function load(id) { return g.get(id) }
  class A { constructor() { g.get(1) } get x() { return load(1) } m() { return load(2) } }
  const api = { go() { return g.get(2) } }
  res '/a' on POST {
    state z = g.get(1)
    var list = [1].map(x => g.get(x))
    var other = [1].map(load)
    function* gen() { yield g.get(1) }
    function d(a = g.get(1)) { return a }
    var r = g, s2 = g.get, u = g.url
    const asy = async (x) => g.get(x)
    await Promise.all([1].map(asy))
    respond list
  }
}
