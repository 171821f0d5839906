// The conformance module in Go: it runs the script in its configuration, and logs the results.
//
// The script has a line for each callback, with the host functions to call (README.md in the parent folder describes
// the language). Every callback and every result is logged, so that a row of the table consists of a script and the
// expected lines. script.go parses and runs scripts; steps.go has the steps. The modules in AssemblyScript (another
// SDK) and in C (no SDK) support the same language.
package main

import (
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
)

func main() {}

func init() { proxywasm.SetVMContext(&vm{}) }

type vm struct{ types.DefaultVMContext }

// The VM's script is the VM's configuration, with only the section `vm_start`.
func (*vm) OnVMStart(size int) types.OnVMStartStatus {
	text, _ := proxywasm.GetVMConfiguration()
	run := newRun(parse(text))
	run.enter("vm_start", "vm_start size=%d", size)
	return types.OnVMStartStatus(!run.refused)
}

func (*vm) NewPluginContext(id uint32) types.PluginContext { return &plugin{id: id} }

type plugin struct {
	types.DefaultPluginContext
	id  uint32
	run *run
}

func (p *plugin) OnPluginStart(size int) types.OnPluginStartStatus {
	text, _ := proxywasm.GetPluginConfiguration()
	p.run = newRun(parse(text))
	p.run.enter("configure", "configure size=%d", size)
	return types.OnPluginStartStatus(!p.run.refused)
}

func (p *plugin) OnPluginDone() bool {
	p.run.enter("plugin_done", "plugin_done")
	return !p.run.refused
}

func (p *plugin) OnTick() { p.run.enter("tick", "tick") }

func (p *plugin) OnQueueReady(queue uint32) {
	p.run.queue = queue
	p.run.enter("queue_ready", "queue_ready")
}

func (p *plugin) NewHttpContext(id uint32) types.HttpContext {
	stream := &stream{run: newRun(p.run.script)}
	stream.run.enter("context_create", "context_create")
	return stream
}

type stream struct {
	types.DefaultHttpContext
	run *run
}

func (s *stream) OnHttpRequestHeaders(count int, end bool) types.Action {
	return s.run.pass("request_headers", end, "request_headers end=%t n=%d", end, count)
}

func (s *stream) OnHttpRequestBody(size int, end bool) types.Action {
	return s.run.pass("request_body", end, "request_body size=%d end=%t", size, end)
}

func (s *stream) OnHttpRequestTrailers(count int) types.Action {
	return s.run.pass("request_trailers", true, "request_trailers n=%d", count)
}

func (s *stream) OnHttpResponseHeaders(count int, end bool) types.Action {
	return s.run.pass("response_headers", end, "response_headers end=%t n=%d", end, count)
}

func (s *stream) OnHttpResponseBody(size int, end bool) types.Action {
	return s.run.pass("response_body", end, "response_body size=%d end=%t", size, end)
}

func (s *stream) OnHttpResponseTrailers(count int) types.Action {
	return s.run.pass("response_trailers", true, "response_trailers n=%d", count)
}

// The SDK calls it from proxy_on_log; it does not expose proxy_on_done and proxy_on_delete of streams.
func (s *stream) OnHttpStreamDone() { s.run.enter("log", "log") }
