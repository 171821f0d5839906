service helloWorld {
  state shared = 'World'
  res '/data' on GET { respond 'Hello ' + shared }
  res '/data' on PUT { shared = query.value }
}
