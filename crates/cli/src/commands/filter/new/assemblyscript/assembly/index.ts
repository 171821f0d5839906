// A filter: adds a header to each response. Its configuration is the header's value.
export * from "@solo-io/proxy-runtime/proxy"; // what the gateway calls
import {
  BufferTypeValues,
  Context,
  FilterHeadersStatusValues,
  RootContext,
  get_buffer_bytes,
  registerRootContext,
  stream_context,
} from "@solo-io/proxy-runtime/runtime";

// One for each place where the filter stands in the config.
class Plugin extends RootContext {
  value: string = "my-filter";

  // To return false refuses the configuration, and with it the route. The SDK's own `getConfiguration` is empty
  // wherever the root id is, so the configuration is read here.
  onConfigure(size: u32): bool {
    const text = get_buffer_bytes(BufferTypeValues.PluginConfiguration, 0, size);
    if (text.byteLength > 0) this.value = String.UTF8.decode(text);
    return true;
  }

  createContext(id: u32): Context {
    return new Stream(id, this, this.value);
  }
}

// One for each request.
class Stream extends Context {
  constructor(id: u32, root: RootContext, private value: string) {
    super(id, root);
  }

  onResponseHeaders(count: u32, end: bool): FilterHeadersStatusValues {
    stream_context.headers.response.add("x-filter", this.value);
    return FilterHeadersStatusValues.Continue;
  }
}

registerRootContext((id: u32) => new Plugin(id), "");
