service s {
  state list = []
  res g = 'http://x/@'
  res '/a' on HEAD {
    state mine = 1
    list[0].seen = true
    delete list[0];
    ({ a: list.first } = query)
    list?.pop()
    Object.assign(list, query)
    const change = () => list.pop()
    change()
    g.patch(1)
    res '/x/' + mine on PUT { list.push(1) }
  }
}
