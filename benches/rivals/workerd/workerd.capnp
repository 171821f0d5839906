# workerd with its worker loader, as open source has it. @LISTEN@, @SERVICES@ and @BINDINGS@ are filled in.
using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [ (name = "host", worker = .host)@SERVICES@ ],
  sockets = [ (name = "http", address = "@LISTEN@", http = (), service = "host") ],
);

const host :Workerd.Worker = (
  compatibilityDate = "2026-01-01",
  modules = [ (name = "host.js", esModule = embed "host.js"), (name = "prelude", text = embed "prelude.js") ],
  bindings = [ (name = "loader", workerLoader = ())@BINDINGS@ ],
);
