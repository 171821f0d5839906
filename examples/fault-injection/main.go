// Fault injection as a filter: answers some or all requests with a configured status and body.
//
// It accepts the configuration of APISIX's plugin in t/wasm/fault-injection:
//
//	{"http_status": 503, "body": "try later\n", "percentage": 10}
//
// An invalid configuration is rejected when the route is loaded, rather than at the first request.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
)

func main() {}

func init() {
	proxywasm.SetPluginContext(func(uint32) types.PluginContext { return &plugin{} })
}

// The configuration.
type fault struct {
	Status     uint32 `json:"http_status"`
	Body       string `json:"body"`
	Percentage *int   `json:"percentage"`
}

type plugin struct {
	types.DefaultPluginContext
	fault fault
	body  []byte
}

func (p *plugin) OnPluginStart(int) types.OnPluginStartStatus {
	text, err := proxywasm.GetPluginConfiguration()
	if err == nil {
		p.fault, err = parse(text)
	}
	if err != nil {
		proxywasm.LogErrorf("fault-injection: %v", err)
		return types.OnPluginStartStatusFailed
	}
	p.body = []byte(p.fault.Body)
	return types.OnPluginStartStatusOK
}

func parse(text []byte) (fault, error) {
	var fault fault
	if err := json.Unmarshal(text, &fault); err != nil {
		return fault, fmt.Errorf("the configuration is not valid: %w", err)
	}
	if fault.Status < 200 || fault.Status > 999 {
		return fault, errors.New("http_status has to be from 200 to 999")
	}
	if fault.Percentage != nil && (*fault.Percentage < 0 || *fault.Percentage > 100) {
		return fault, errors.New("percentage has to be from 0 to 100")
	}
	return fault, nil
}

// hits reports whether a request gets the fault, given a random number from 0 to 99.
func (f *fault) hits(dice int) bool { return f.Percentage == nil || dice < *f.Percentage }

func (p *plugin) NewHttpContext(uint32) types.HttpContext { return &stream{plugin: p} }

type stream struct {
	types.DefaultHttpContext
	plugin *plugin
}

func (s *stream) OnHttpRequestHeaders(int, bool) types.Action {
	if !s.plugin.fault.hits(rand.IntN(100)) {
		return types.ActionContinue
	}
	if err := proxywasm.SendHttpResponse(s.plugin.fault.Status, nil, s.plugin.body, -1); err != nil {
		proxywasm.LogErrorf("fault-injection: no answer: %v", err)
		return types.ActionContinue
	}
	return types.ActionPause
}
