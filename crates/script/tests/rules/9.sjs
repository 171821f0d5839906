service s {
  res '/a' on POST {
    state id = 0; id++
    var total = [1]
    function f() { return id }
    function h() { return query.x }
    res '/x/' + id {
      on GET { respond f() + h() + response.status }
      on PUT { total.push(1); total = 2; id = 3 }
    }
    respond 1
  }
}
