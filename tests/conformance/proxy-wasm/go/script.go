package main

import (
	"fmt"
	"strings"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
)

// A script: the texts of the steps of each section.
type script map[string][]string

// Parses lines of `section: step; step`.
func parse(text []byte) script {
	script := script{}
	for _, line := range strings.Split(string(text), "\n") {
		name, steps, found := strings.Cut(line, ":")
		if !found {
			continue
		}
		for _, step := range strings.Split(steps, ";") {
			script[strings.TrimSpace(name)] = append(script[strings.TrimSpace(name)], strings.TrimSpace(step))
		}
	}
	return script
}

// The state of a context while it runs its script.
type run struct {
	script  script
	entered map[string]int
	action  types.Action
	refused bool
	// Results of earlier steps.
	cas     uint32
	queue   uint32
	metrics map[string]metric
}

func newRun(script script) *run {
	return &run{script: script, entered: map[string]int{}, metrics: map[string]metric{}}
}

// Runs a callback that may pause the stream, and its section `section/end` or `section/more`.
func (r *run) pass(section string, end bool, format string, values ...any) types.Action {
	r.action = types.ActionContinue
	r.enter(section, format, values...)
	if end {
		r.steps(section + "/end")
	} else {
		r.steps(section + "/more")
	}
	return r.action
}

// Logs a callback and runs its section.
func (r *run) enter(section, format string, values ...any) {
	proxywasm.LogInfo("on " + fmt.Sprintf(format, values...))
	r.steps(section)
}

func (r *run) steps(section string) {
	r.entered[section]++
	for _, step := range r.script[section] {
		words := strings.SplitN(step, " ", 2)
		if words[0] == "at" && fmt.Sprint(r.entered[section]) != words[1] {
			return
		}
		if words[0] == "when" && !r.holds(words[1]) {
			return
		}
		if result := r.step(step); result != "" {
			proxywasm.LogInfo(step + " = " + result)
		}
	}
}

// Whether a header of the request satisfies `when NAME VALUE`.
func (r *run) holds(condition string) bool {
	name, wanted, _ := strings.Cut(condition, " ")
	value, err := proxywasm.GetHttpRequestHeader(name)
	return err == nil && value == wanted
}
