// pages.sjs: an infinite binary tree of pages; page n links to 2n and 2n + 1
//   GET /pages/tree?n=1
service pages {
  res '/tree' on GET {
    var n = Number(query.n), tree = 'http://' + query.$headers.host + '/pages/tree?n='
    response.headers['content-type'] = 'text/html'
    respond `<a href="${tree}${2 * n}">left</a> <a href="${tree}${2 * n + 1}">right</a>\n`
  }
}
