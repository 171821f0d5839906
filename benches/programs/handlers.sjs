// What Fastify, Bun and S are compared by: a constant, two answers as one, and what stands in a long page. The guard's is a
// constant that needs a worker.
service handlers {
  res '/hello' on GET { respond 'hello world' }
  res '/worker' on GET { respond ['hello', 'world'].join(' ') }
  res '/composite' on GET {
    res user = 'http://service/user?id=@'
    res items = 'http://service/items?user=@'
    par {
      respond { ...user.get(query.id), items: items.get(query.id) }
    }
  }
  res '/page' on GET {
    res page = 'http://service/page'
    var text = page.get()
    respond { words: text.match(/\bitem\b/g).length, links: text.match(/href="[^"]*"/g).length }
  }
}
