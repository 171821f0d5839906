// The conformance module in Go: it does what its configuration says, and logs what came of it.
//
// The configuration is a script (README.md beside the table of rows has its language): a line for each callback with
// the host functions that it calls. Every callback that comes and every result is logged, so that a row of the table
// is a script and the lines that must come. script.go reads scripts and runs them; steps.go has the steps. The same
// language is spoken by the modules in AssemblyScript and in C, by other SDKs and none.
package main

import (
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
)

func main() {}

func init() { proxywasm.SetVMContext(&vm{}) }

type vm struct{ types.DefaultVMContext }

// The script of the VM is its own configuration; it has one section, `vm_start`.
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

// The SDK calls it from proxy_on_log; it keeps proxy_on_done and proxy_on_delete of streams to itself.
func (s *stream) OnHttpStreamDone() { s.run.enter("log", "log") }
