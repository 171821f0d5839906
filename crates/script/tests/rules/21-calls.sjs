service s {
  state n = 1
  function look() { return n }
  const first = look()
  const looks = [look]
  res '/a' {
    state m = look()
    res far = 'http://far/' + look()
    const api = { look() { return look() } }
    on GET { respond [first, looks, m, far.get(), api.look()] }
  }
  res '/b' on POST {
    function mine() { return n }
    res '/b/' + query.x {
      state m = mine()
      on GET { respond m }
    }
  }
}
