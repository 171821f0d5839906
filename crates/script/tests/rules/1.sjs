service s {
  state n = 0
  res '/a' on GET { respond n }
  res '/b' on PUT { n++ }
}
