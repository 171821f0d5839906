// A filter: adds a header to each response. Its configuration is the header's value.
package main

import (
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
)

func main() {}

func init() {
	proxywasm.SetPluginContext(func(uint32) types.PluginContext { return &plugin{} })
}

// One for each place where the filter stands in the config.
type plugin struct {
	types.DefaultPluginContext
	value string
}

// To return OnPluginStartStatusFailed refuses the configuration, and with it the route.
func (p *plugin) OnPluginStart(size int) types.OnPluginStartStatus {
	p.value = "my-filter"
	if size > 0 {
		text, err := proxywasm.GetPluginConfiguration()
		if err != nil {
			proxywasm.LogErrorf("no configuration: %v", err)
			return types.OnPluginStartStatusFailed
		}
		p.value = string(text)
	}
	return types.OnPluginStartStatusOK
}

func (p *plugin) NewHttpContext(uint32) types.HttpContext { return &stream{plugin: p} }

// One for each request.
type stream struct {
	types.DefaultHttpContext
	plugin *plugin
}

func (s *stream) OnHttpResponseHeaders(int, bool) types.Action {
	if err := proxywasm.AddHttpResponseHeader("x-filter", s.plugin.value); err != nil {
		proxywasm.LogErrorf("no header: %v", err)
	}
	return types.ActionContinue
}
