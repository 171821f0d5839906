service composition {
  res '/search' on POST {
    function combine(a,b) { return a + b }
    state id = 0; id++
    res g = 'http://google.ch/search?q=@'
    res b = 'http://bing.com/search?q=@'
    var total =
      combine(g.get(query.q), b.get(query.q))
    res '/total/'+id {
      on GET { respond total }
    }
    respond { 302 : { Location : '/total/'+id } }
  }
}
