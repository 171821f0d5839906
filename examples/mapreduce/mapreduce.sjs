// mapreduce.sjs: counts a word in some pages, Listing 7 of the paper with its missing brace
//   POST /mapreduce/start with { "urls": [...], "key": "..." }
//   GET /mapreduce/red/1
service mapred {
  res '/start' on POST {
    state id = 0; id++
    res '/red/'+id {
      state s = 0
      on GET { respond s }
      on PUT { s += Number(query.count) }
    }
    respond { 302 :
      { Location : '/red/'+id } }
    pfor(var i in query.urls) {
      res scan = '/map?url=@&key=@&id=@'
      scan.put(query.urls[i], query.key, id)
    }
  }
  res '/map' on PUT {
    function scan(page,key) { return page.split(key).length - 1 }
    res url = query.url
    var page = url.get()
    res reduce = '/red/'+query.id+'?count=@'
    reduce.put(scan(page, query.key))
  }
}
