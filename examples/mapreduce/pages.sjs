// pages.sjs: page n has n words; every third word is "three"
//   GET /pages/words?n=9
service pages {
  res '/words' on GET {
    var words = ['one', 'two', 'three'], text = []
    for (var i = 0; i < query.n; i++) text.push(words[i % words.length])
    respond text.join(' ') + '\n'
  }
}
