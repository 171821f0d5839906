service s {
  res g = 'http://x/@?q=@', h = 'mailto:a@@b', k = '/x'
  res '/a' on POST { g.get(1); g.put(1,2,3); g.put(1,2,3,4); k.get(1); g.get(...query.l); respond 1 }
}
