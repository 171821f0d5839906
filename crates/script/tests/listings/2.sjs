service proxy {
  res '/search' on GET {
    res g = 'http://google.ch/search?q=@'
    if(query.q)
      respond g.get(query.q)
    else
      respond 'Invalid query'
  }
}
