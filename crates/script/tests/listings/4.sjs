service helloPar {
  res '/search' on GET {
    function combine(a,b) { return a + b }
    par {
      res g = 'http://google.ch/search?q=@'
      res b = 'http://bing.com/search?q=@'
      respond combine(g.get(query.q),
                      b.get(query.q))
    }
  }
}
