service s {
  res g = 'http://x/@'
  res '/a' on POST {
    state id = 0
    var v = g.get(1)
    id++
    res '/x/' + id on GET { respond v }
    respond 1
  }
}
