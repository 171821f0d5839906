service shop {
  res '/words' {
    state words = {}
    on GET { respond words }
    on PUT { words[query.key] = query.value; respond true }
    on DELETE { delete words[query.key]; respond true }
  }
  res '/echo' on POST { respond query }
}
