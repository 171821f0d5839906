// crawler.sjs: a crawler that calls itself, Listing 6 of the paper
//   PUT /crawler/crawl?startFrom=...&depth=...
//   GET /crawler/urlsDiscovered
service crawler {
  res '/crawl' on PUT {
    function scan(page) { return page.match(/(?<=href=")[^"]+/g) || [] }
    res url = query.startFrom
    var list = scan(url.get())
    if(query.depth>1)
      pfor(var i in list) {
        par {
          res crawl =
            '/crawl?startFrom=@&depth=@'
          res discovered =
            '/urlsDiscovered?val=@'
          crawl.put(list[i],query.depth-1)
          discovered.put(list[i])
        }
      }
    res '/urlsDiscovered' {
      state urls = new Array()
      on PUT {
        urls.push(query.val)
      }
      on GET {
        respond urls
      }
    }
  }
}
