//! Measures the compile time of a file of 1,000 lines: `cargo run --release -p script --example thousand`.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use script::{CompileOptions, compile};

/// A resource with each kind of construct: state, a reader, a writer, calls, `par`, `pfor`, a nested
/// resource. 25 lines.
fn resource_source(number: usize) -> String {
    format!(
        "  res '/list{number}' {{
    state items = [], count = 0
    on GET {{ respond {{ count, found: items.filter((item) => item.name == query.name) }} }}
    on PUT {{
      items.push({{ name: query.name, at: Date.now() }})
      count++
    }}
  }}
  res '/page{number}' on POST {{
    state id = 0; id++
    res users = 'http://users/@', orders = 'http://orders/@?from=@', log = '/list{number}?name=@'
    function total(orders) {{ return orders.reduce((sum, order) => sum + order.price, 0) }}
    var names = [], who = query.who
    par {{
      const user = users.get(who)
      const old = orders.get(who, 0), sum = total(orders.get(who, 10))
      if (user.vip) log.put(user.name)
      names.push(user.name, sum, old.length)
    }}
    pfor (var i in query.friends) {{
      const friend = users.get(query.friends[i])
      log.put(friend.name)
    }}
    res '/page{number}/' + id on GET {{ respond {{ names }} }}
    respond {{ 302: {{ Location: '/page{number}/' + id }} }}
  }}\n"
    )
}

fn main() {
    let resources: String = (0..40).map(resource_source).collect();
    let source = format!("service long {{\n{resources}}}\n");
    let mut times: Vec<_> = (0..20)
        .map(|_| {
            let begun = Instant::now();
            let program = compile(&source, "long.sjs", &CompileOptions::default());
            assert!(program.is_ok(), "{program:?}");
            begun.elapsed()
        })
        .collect();
    times.sort();
    println!("{} lines: {:?} (median of {})", source.lines().count(), times[times.len() / 2], times.len());
}
