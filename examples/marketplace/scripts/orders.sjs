// orders.sjs: orders, each with its posting and its freelancer; three calls for any number of orders
//   GET /shop/orders?limit=50
service shop {
  function byId(rows) { return new Map(rows.map(row => [row.id, row])) }
  function ids(rows, field) { return [...new Set(rows.map(row => row[field]))].join() }

  res '/orders' on GET {
    res orders = 'http://order/orders?limit=@'
    res catalogs = 'http://catalog/catalogs?ids=@'
    res freelancers = 'http://profile/freelancers?ids=@'

    var rows = orders.get(query.limit || 50)
    par {
      var postings = byId(catalogs.get(ids(rows, 'catalog_id')))
      var people = byId(freelancers.get(ids(rows, 'freelancer_id')))
    }
    respond rows.map(o => {
      const c = postings.get(o.catalog_id), f = people.get(o.freelancer_id)
      return {
        ...o,
        catalog: c ? { id: c.id, title: c.title, price: c.price } : null,
        freelancer: f ? { id: f.id, name: f.name } : null,
      }
    })
  }
}
