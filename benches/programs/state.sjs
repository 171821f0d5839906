// What a commit costs: a counter, and appends to a list of any length.
service kept {
  res '/count' {
    state count = 0
    on GET { respond count }
    on POST { count++; respond count }
  }
  res '/list' {
    state list = []
    on GET { respond list.length }
    on PUT { list = new Array(Number(query.length)).fill('an entry of some length') }
    on POST { list.push('an entry of some length') }
  }
}
