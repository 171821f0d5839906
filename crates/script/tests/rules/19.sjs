service s {
  state st = []
  res g = 'http://x/@'
  res '/a' on POST {
    var sum = 0, out = [], l = query.l
    function add(x) { sum += x }
    pfor(var i in l) { sum += g.get(l[i]); out[i] = 1; var tmp = g.get(i); add(1) }
    pfor(var i in l) { out[i] = out[i-1] + g.get(i); if (i) break; for (;;) { break } }
    pfor(var i in l) { st[i] = g.get(i); i++; respond 1; return }
    /* S: sequential */
    pfor(var i in l) { sum += g.get(i); if (sum) break }
    respond tmp
  }
}
