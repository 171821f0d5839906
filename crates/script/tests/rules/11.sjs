service s {
  res '/a' on POST {
    var x = 1
    res '/b' on GET { respond 1 }
    res '/c' on GET { respond x }
    res '/d/' + x on GET { respond 1 }
  }
}
