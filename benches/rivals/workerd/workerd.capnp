# workerd with its worker loader, as open source has it. @LISTEN@ and @UPSTREAM@ are filled in.
using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [ (name = "host", worker = .host), (name = "service", external = (address = "@UPSTREAM@", http = ())) ],
  sockets = [ (name = "http", address = "@LISTEN@", http = (), service = "host") ],
);

const host :Workerd.Worker = (
  compatibilityDate = "2026-01-01",
  modules = [ (name = "host.js", esModule = embed "host.js"), (name = "prelude", text = embed "prelude.js") ],
  bindings = [ (name = "loader", workerLoader = ()), (name = "service", service = "service") ],
);
