service s {
  state sum = 0, minus = -1, text = ''
  res '/a' on PUT {
    sum += query.count
    minus += query['count']
    sum += Number(query.count)
    text += query.count
    sum -= query.count
  }
}
