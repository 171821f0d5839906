service s {
  res '/a' on POST {
    var x = query.x
    function help() { return 1 }
    res '/b/' + x {
      state n = f()
      function f() { return x }
      function id() { return query.id }
      const y = x + 1
      const z = f() + help()
      const api = { look() { return x } }
      res far = 'http://far/' + x
      function bump() { n++ }
      on GET { bump(); respond [y, z, id(), api.look(), far.get()] }
    }
  }
}
