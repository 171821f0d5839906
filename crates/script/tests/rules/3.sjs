service s {
  state urls = [], n = 0
  res g = 'http://x/'
  function put(l) { l.push(1) }
  function bump() { n++ }
  function send() { g.post(1) }
  res '/a' on GET {
    state mine = 1
    urls.push(1)
    n++
    var a = urls; a.sort()
    urls.forEach(u => u.x = 1)
    for (const u of urls) delete u.x
    put(urls)
    bump()
    send()
    g.delete()
    res '/x/' + n on GET { respond 1 }
    var own = []; own.push(1); put(own)
    respond urls.slice().sort()
  }
}
