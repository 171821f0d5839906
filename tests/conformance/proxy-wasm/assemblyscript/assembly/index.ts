// The conformance module in AssemblyScript: it runs the script in its configuration, and logs the results.
//
// Scripts have the same language as for the module in Go, within the limits of this SDK: it can't change bodies or set
// all headers (`set_headers` doesn't compile), can't read shared data, queues and metrics, and has neither gRPC nor
// foreign functions. It returns an empty buffer for a missing value, so NOT_FOUND means missing or empty here.
// README.md in the parent folder describes the language.
export * from "@solo-io/proxy-runtime/proxy";
import {
  BaseContext,
  BufferTypeValues,
  Context,
  FilterDataStatusValues,
  FilterHeadersStatusValues,
  FilterTrailersStatusValues,
  GrpcStatusValues,
  HeaderPair,
  Headers,
  LogLevelValues,
  MetricTypeValues,
  RootContext,
  WasmResultValues,
  continue_request,
  continue_response,
  define_metric,
  done,
  get_buffer_bytes,
  get_current_time_nanoseconds,
  get_property,
  increment_metric,
  log,
  record_metric,
  registerRootContext,
  send_local_response,
  set_property,
  set_tick_period_milliseconds,
  stream_context,
} from "@solo-io/proxy-runtime/runtime";

// A line of a script: a section and its steps.
class Section {
  constructor(public name: string, public steps: string[]) {}
}

function parse(text: string): Section[] {
  const sections: Section[] = [];
  const lines = text.split("\n");
  for (let i = 0; i < lines.length; i++) {
    const colon = lines[i].indexOf(":");
    if (colon < 0) continue;
    const steps = lines[i].substring(colon + 1).split(";");
    for (let j = 0; j < steps.length; j++) steps[j] = steps[j].trim();
    sections.push(new Section(lines[i].substring(0, colon).trim(), steps));
  }
  return sections;
}

// The state of a context while it runs its script.
class Run {
  script: Section[] = [];
  entered: Map<string, i32> = new Map();
  pausing: bool = false;
  refused: bool = false;
  root: RootContext | null = null;
  context: BaseContext | null = null;

  // Runs a callback that may pause the stream. Returns true to pause it.
  pass(section: string, end: bool, text: string): bool {
    this.pausing = false;
    this.enter(section, text);
    this.steps(section + (end ? "/end" : "/more"));
    return this.pausing;
  }

  enter(section: string, text: string): void {
    log(LogLevelValues.info, "on " + text);
    this.steps(section);
  }

  steps(section: string): void {
    const times = (this.entered.has(section) ? this.entered.get(section) : 0) + 1;
    this.entered.set(section, times);
    for (let i = 0; i < this.script.length; i++) {
      if (this.script[i].name != section) continue;
      const steps = this.script[i].steps;
      for (let j = 0; j < steps.length; j++) {
        if (steps[j].startsWith("at ") && steps[j] != "at " + times.toString()) return;
        if (steps[j].startsWith("when ") && !holds(steps[j].split(" "))) return;
        const result = step(this, steps[j]);
        if (result != "") log(LogLevelValues.info, steps[j] + " = " + result);
      }
    }
  }
}

class Plugin extends RootContext {
  run: Run = new Run();

  onStart(size: usize): bool {
    const run = new Run();
    run.script = parse(String.UTF8.decode(get_buffer_bytes(BufferTypeValues.VmConfiguration, 0, 1 << 20)));
    run.enter("vm_start", "vm_start size=" + size.toString());
    return !run.refused;
  }

  onConfigure(size: u32): bool {
    // The SDK's own function works only with a non-empty root id: it writes the configuration's length to the wrong
    // place and uses the length of the previous property.
    this.run.root = this;
    this.run.context = this;
    this.run.script = parse(String.UTF8.decode(get_buffer_bytes(BufferTypeValues.PluginConfiguration, 0, size)));
    this.run.enter("configure", "configure size=" + size.toString());
    return !this.run.refused;
  }

  createContext(id: u32): Context {
    const stream = new Stream(id, this);
    stream.run.script = this.run.script;
    stream.run.root = this;
    stream.run.context = stream;
    stream.run.enter("context_create", "context_create");
    return stream;
  }

  onTick(): void {
    this.run.enter("tick", "tick");
  }

  onDone(): bool {
    this.run.enter("plugin_done", "plugin_done");
    return !this.run.refused;
  }
}

class Stream extends Context {
  run: Run = new Run();

  onRequestHeaders(count: u32, end: bool): FilterHeadersStatusValues {
    const text = "request_headers end=" + yes(end) + " n=" + count.toString();
    return this.run.pass("request_headers", end, text) ? FilterHeadersStatusValues.StopIteration : FilterHeadersStatusValues.Continue;
  }
  onRequestBody(size: usize, end: bool): FilterDataStatusValues {
    const text = "request_body size=" + size.toString() + " end=" + yes(end);
    return this.run.pass("request_body", end, text) ? FilterDataStatusValues.StopIterationAndBuffer : FilterDataStatusValues.Continue;
  }
  onRequestTrailers(count: u32): FilterTrailersStatusValues {
    const text = "request_trailers n=" + count.toString();
    return this.run.pass("request_trailers", true, text) ? FilterTrailersStatusValues.StopIteration : FilterTrailersStatusValues.Continue;
  }
  onResponseHeaders(count: u32, end: bool): FilterHeadersStatusValues {
    const text = "response_headers end=" + yes(end) + " n=" + count.toString();
    return this.run.pass("response_headers", end, text) ? FilterHeadersStatusValues.StopIteration : FilterHeadersStatusValues.Continue;
  }
  onResponseBody(size: usize, end: bool): FilterDataStatusValues {
    const text = "response_body size=" + size.toString() + " end=" + yes(end);
    return this.run.pass("response_body", end, text) ? FilterDataStatusValues.StopIterationAndBuffer : FilterDataStatusValues.Continue;
  }
  onResponseTrailers(count: u32): FilterTrailersStatusValues {
    const text = "response_trailers n=" + count.toString();
    return this.run.pass("response_trailers", true, text) ? FilterTrailersStatusValues.StopIteration : FilterTrailersStatusValues.Continue;
  }
  onDone(): bool {
    this.run.enter("done", "done");
    return true;
  }
  onLog(): void {
    this.run.enter("log", "log");
  }
  onDelete(): void {
    this.run.enter("delete", "delete");
  }
}

// A context for the SDK's callback of a call; it has the call's name.
class Call extends Context {
  constructor(public name: string, public run: Run, id: u32, root: RootContext) {
    super(id, root);
  }
}

function answered(context: Context, headers: u32, size: usize, trailers: u32): void {
  const call = changetype<Call>(context);
  const counts = " size=" + size.toString() + " trailers=" + trailers.toString();
  call.run.enter("call", "call " + call.name + " answered=" + yes(headers > 0) + counts);
  call.run.steps("call/" + call.name);
}

function holds(words: string[]): bool {
  return stream_context.headers.request.get(words[1]) == words[2];
}

function step(run: Run, text: string): string {
  const words = text.split(" ");
  const verb = words[0];
  if (verb == "" || verb == "at" || verb == "when") return "";
  if (verb == "pause") run.pausing = true;
  else if (verb == "refuse") run.refused = true;
  else if (verb == "trap") assert(false, "as the script says");
  else if (verb == "log") log(level(words[1]), rest(words, 2));
  else return result(run, verb, words);
  return "";
}

function result(run: Run, verb: string, words: string[]): string {
  if (verb == "body") return found(get_buffer_bytes(buffer(words[1]), number(words[2]), number(words[3])));
  if (verb == "property") return found(get_property(path(words[1])));
  if (verb == "property_number") return load<i64>(changetype<usize>(get_property(path(words[1])))).toString();
  if (verb == "set_property") return status(set_property(path(words[1]), String.UTF8.encode(rest(words, 2))));
  if (verb == "local") return local(words[1], pairs(words[2]), rest(words, 3), GrpcStatusValues.InvalidCode);
  if (verb == "local_grpc") return local(words[1], [], rest(words, 3), number(words[2]) as GrpcStatusValues);
  if (verb == "resume") return status(words[1] == "request" ? continue_request() : continue_response());
  if (verb == "call") return call(run, words);
  if (verb == "tick") {
    set_tick_period_milliseconds(number(words[1]));
    return "OK";
  }
  if (verb == "done") return status(done());
  if (verb == "time") return get_current_time_nanoseconds() > 1600000000000000000 ? "OK" : "before 2020";
  if (verb == "metric") {
    const metric = define_metric(kind(words[1]), words[2]);
    metrics.set(words[2], metric.metric_id);
    return status(metric.result);
  }
  if (verb == "increment") return status(increment_metric(metrics.get(words[1]), I64.parseInt(words[2])));
  if (verb == "record") return status(record_metric(metrics.get(words[1]), U64.parseInt(words[2])));
  return headers(verb, words);
}

function headers(verb: string, words: string[]): string {
  const from = words[1] == "request" ? stream_context.headers.request
    : words[1] == "request_trailers" ? stream_context.trailers.request
    : words[1] == "response" ? stream_context.headers.response
    : words[1] == "response_trailers" ? stream_context.trailers.response
    : words[1] == "call" ? stream_context.headers.http_callback
    : stream_context.trailers.http_callback;
  if (verb == "get") return found(String.UTF8.encode(from.get(words[2])));
  if (verb == "pairs") return listed(from.get_headers());
  // The SDK does not return the status of these.
  if (verb == "add") from.add(words[2], rest(words, 3));
  else if (verb == "set") from.replace(words[2], rest(words, 3));
  else if (verb == "remove") from.remove(words[2]);
  else return "no such step";
  return "OK";
}

const metrics: Map<string, u32> = new Map();

function call(run: Run, words: string[]): string {
  const text = ":method=" + words[3] + ",:path=" + words[4] + ",:authority=called,x-call=" + words[1];
  const root = run.root!;
  const from = new Call(words[1], run, run.context!.context_id, root);
  const body = String.UTF8.encode(rest(words, 6));
  return status(root.httpCall(words[2], pairs(text), body, [], number(words[5]), from, answered));
}

function local(code: string, headers: Headers, body: string, grpc: GrpcStatusValues): string {
  return status(send_local_response(number(code), "script", String.UTF8.encode(body), headers, grpc));
}

// Parses `a=1,b=2`, or `-` for an empty list.
function pairs(text: string): Headers {
  const headers: Headers = [];
  const all = text.split(",");
  for (let i = 0; i < all.length; i++) {
    const equals = all[i].indexOf("=");
    if (equals < 0) continue;
    const value = String.UTF8.encode(all[i].substring(equals + 1));
    headers.push(new HeaderPair(String.UTF8.encode(all[i].substring(0, equals)), value));
  }
  return headers;
}

function listed(headers: Headers): string {
  const all: string[] = [];
  for (let i = 0; i < headers.length; i++) {
    all.push(String.UTF8.decode(headers[i].key) + "=" + String.UTF8.decode(headers[i].value));
  }
  all.sort();
  return all.join(",");
}

function found(bytes: ArrayBuffer): string {
  if (bytes.byteLength == 0) return "NOT_FOUND";
  const values = Uint8Array.wrap(bytes);
  let text = "";
  for (let i = 0; i < values.length; i++) {
    const byte = values[i];
    if (byte >= 32 && byte <= 126) text += String.fromCharCode(byte);
    else text += "\\x" + "0123456789abcdef".charAt(byte >> 4) + "0123456789abcdef".charAt(byte & 15);
  }
  return text;
}

function status(result: WasmResultValues): string {
  if (result == WasmResultValues.Ok) return "OK";
  if (result == WasmResultValues.NotFound) return "NOT_FOUND";
  if (result == WasmResultValues.BadArgument) return "BAD_ARGUMENT";
  if (result == WasmResultValues.InternalFailure) return "INTERNAL_FAILURE";
  if (result == WasmResultValues.Unimplemented) return "UNIMPLEMENTED";
  return result.toString();
}

function buffer(name: string): BufferTypeValues {
  if (name == "request") return BufferTypeValues.HttpRequestBody;
  if (name == "response") return BufferTypeValues.HttpResponseBody;
  if (name == "call") return BufferTypeValues.HttpCallResponseBody;
  return name == "vm" ? BufferTypeValues.VmConfiguration : BufferTypeValues.PluginConfiguration;
}

function level(name: string): LogLevelValues {
  if (name == "trace") return LogLevelValues.trace;
  if (name == "debug") return LogLevelValues.debug;
  if (name == "info") return LogLevelValues.info;
  if (name == "warn") return LogLevelValues.warn;
  return name == "error" ? LogLevelValues.error : LogLevelValues.critical;
}

function kind(name: string): MetricTypeValues {
  if (name == "counter") return MetricTypeValues.Counter;
  return name == "gauge" ? MetricTypeValues.Gauge : MetricTypeValues.Histogram;
}

function path(dotted: string): string {
  return dotted.split(".").join("\0");
}

function number(text: string): u32 {
  return U32.parseInt(text);
}

function yes(is: bool): string {
  return is ? "true" : "false";
}

function rest(words: string[], from: i32): string {
  return words.slice(from).join(" ");
}

registerRootContext((id: u32) => new Plugin(id), "");
