service s {
  res '/a' on GET { if (query.a) respond 1 }
  res '/b' on GET { var x = 1 }
  res '/c' on GET { respond 1; respond 2 }
  res '/d' on GET { if (query.a) { respond 1 } else { throw new Error('x') } }
  res '/e' on GET { if (query.a) { respond 1; return } respond 2 }
  res '/f' on GET { switch (query.a) { case 1: respond 1; break; default: respond 2 } }
  res '/g' on GET { try { respond 1 } catch (e) { respond 2 } }
}
