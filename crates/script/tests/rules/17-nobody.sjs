service s {
  state n = 1
  const api = { look() { return n } }
  class Thing { set x(v) { n } }
  function* all() { yield n }
  res '/a' on POST { respond [api.look(), new Thing(), ...all()] }
}
