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
  res '/go' on GET { respond { 302: { Location: query.to } } }
}
