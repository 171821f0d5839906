service shop {
  res '/words' {
    state words = {}
    on GET { respond words }
    on PUT { words[query.key] = query.value; respond true }
    on DELETE { delete words[query.key]; respond true }
  }
  res '/tree' {
    state tree = {}
    on PUT { ((tree[query.a] ??= {})[query.b] ??= {})[query.c] = query.value; respond true }
  }
  res '/echo' on POST { respond query }
  res '/lists/total' {
    state total = 0
    on PUT { total++; respond total }
  }
  res '/lists' on POST {
    var name = query.name
    res '/lists/' + name on GET { respond name }
    respond { 201: { Location: '/lists/' + name } }
  }
  res '/go' on GET { respond { 302: { Location: query.to } } }
}
