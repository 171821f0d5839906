// The steps of a script: each calls a host function through the SDK and returns its result as text.
//
// Statuses have their names in the specification; unprintable bytes are written as \xNN.
package main

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm"
	"github.com/proxy-wasm/proxy-wasm-go-sdk/proxywasm/types"
)

// Runs a step. An empty result is not logged.
func (r *run) step(step string) string {
	words := strings.Split(step, " ")
	word := func(n int) string {
		if n < len(words) {
			return words[n]
		}
		return ""
	}
	rest := func(n int) string {
		if n < len(words) {
			return strings.Join(words[n:], " ")
		}
		return ""
	}
	switch words[0] {
	case "", "at", "when":
		return ""
	case "pause":
		r.action = types.ActionPause
		return ""
	case "refuse":
		r.refused = true
		return ""
	case "trap":
		panic("as the script says")
	case "log":
		logAt(word(1), rest(2))
		return ""
	case "print":
		fmt.Println(rest(1))
		return ""
	case "eprint":
		fmt.Fprintln(os.Stderr, rest(1))
		return ""
	case "get", "add", "set", "remove", "pairs", "set_pairs":
		return headers(words[0], word(1), word(2), rest(3), words)
	case "body", "append", "prepend", "replace":
		return body(words[0], word(1), word(2), word(3), rest(2))
	case "property":
		return value(proxywasm.GetProperty(strings.Split(word(1), ".")))
	case "property_number":
		bytes, err := proxywasm.GetProperty(strings.Split(word(1), "."))
		if err == nil && len(bytes) == 8 {
			return fmt.Sprint(int64(binary.LittleEndian.Uint64(bytes)))
		}
		return value(bytes, err)
	case "set_property":
		return status(proxywasm.SetProperty(strings.Split(word(1), "."), []byte(rest(2))))
	case "local":
		return status(proxywasm.SendHttpResponse(number(word(1)), pairs(word(2)), []byte(rest(3)), -1))
	case "local_grpc":
		return status(proxywasm.SendHttpResponse(number(word(1)), nil, []byte(rest(3)), int32(number(word(2)))))
	case "resume":
		if word(1) == "request" {
			return status(proxywasm.ResumeHttpRequest())
		}
		return status(proxywasm.ResumeHttpResponse())
	case "call":
		return r.call(word(1), word(2), word(3), word(4), number(word(5)), rest(6))
	case "bad_call":
		_, err := proxywasm.DispatchHttpCall(word(1), [][2]string{{":method", "GET"}}, nil, nil, 1000, func(int, int, int) {})
		return status(err)
	case "shared_get":
		bytes, cas, err := proxywasm.GetSharedData(word(1))
		r.cas = cas
		return value(bytes, err)
	case "shared_set":
		return status(proxywasm.SetSharedData(word(1), []byte(rest(3)), r.casOf(word(2))))
	case "queue_register":
		queue, err := proxywasm.RegisterSharedQueue(word(1))
		r.queue = queue
		return status(err)
	case "queue_resolve":
		queue, err := proxywasm.ResolveSharedQueue(strings.Trim(word(1), "-"), word(2))
		r.queue = queue
		return status(err)
	case "enqueue":
		return status(proxywasm.EnqueueSharedQueue(r.queue, []byte(rest(1))))
	case "dequeue":
		return value(proxywasm.DequeueSharedQueue(r.queue))
	case "enqueue_to":
		return status(proxywasm.EnqueueSharedQueue(number(word(1)), []byte(rest(2))))
	case "tick":
		return status(proxywasm.SetTickPeriodMilliSeconds(number(word(1))))
	case "effective":
		return status(proxywasm.SetEffectiveContext(number(word(1))))
	case "done":
		proxywasm.PluginDone()
		return "OK"
	case "metric", "increment", "record", "metric_get":
		return r.metric(words[0], word(1), word(2))
	case "foreign":
		return value(proxywasm.CallForeignFunction(word(1), []byte(rest(2))))
	case "foreign_hex":
		bytes, err := hex.DecodeString(word(2))
		if err != nil {
			return "no hexadecimal digits"
		}
		return value(proxywasm.CallForeignFunction(word(1), bytes))
	case "time":
		// A clock that does not advance or starts at 1970 is broken.
		if time.Now().Year() > 2020 {
			return "OK"
		}
		return fmt.Sprint(time.Now())
	case "environment":
		return quoted([]byte(os.Getenv(word(1))))
	}
	return "no such step"
}

func headers(verb, where, name, text string, words []string) string {
	type access struct {
		get        func(string) (string, error)
		add, set   func(string, string) error
		remove     func(string) error
		pairs      func() ([][2]string, error)
		replaceAll func([][2]string) error
	}
	readOnly := func(string, string) error { return errors.New("the SDK has no way") }
	from := func(pairs func() ([][2]string, error)) access {
		return access{pairs: pairs, add: readOnly, set: readOnly, get: func(name string) (string, error) {
			all, err := pairs()
			for _, pair := range all {
				if pair[0] == name {
					return pair[1], nil
				}
			}
			if err == nil {
				err = types.ErrorStatusNotFound
			}
			return "", err
		}}
	}
	var access_ access
	switch where {
	case "request":
		access_ = access{proxywasm.GetHttpRequestHeader, proxywasm.AddHttpRequestHeader, proxywasm.ReplaceHttpRequestHeader,
			proxywasm.RemoveHttpRequestHeader, proxywasm.GetHttpRequestHeaders, proxywasm.ReplaceHttpRequestHeaders}
	case "request_trailers":
		access_ = access{proxywasm.GetHttpRequestTrailer, proxywasm.AddHttpRequestTrailer, proxywasm.ReplaceHttpRequestTrailer,
			proxywasm.RemoveHttpRequestTrailer, proxywasm.GetHttpRequestTrailers, proxywasm.ReplaceHttpRequestTrailers}
	case "response":
		access_ = access{proxywasm.GetHttpResponseHeader, proxywasm.AddHttpResponseHeader, proxywasm.ReplaceHttpResponseHeader,
			proxywasm.RemoveHttpResponseHeader, proxywasm.GetHttpResponseHeaders, proxywasm.ReplaceHttpResponseHeaders}
	case "response_trailers":
		access_ = access{proxywasm.GetHttpResponseTrailer, proxywasm.AddHttpResponseTrailer, proxywasm.ReplaceHttpResponseTrailer,
			proxywasm.RemoveHttpResponseTrailer, proxywasm.GetHttpResponseTrailers, proxywasm.ReplaceHttpResponseTrailers}
	case "call":
		access_ = from(proxywasm.GetHttpCallResponseHeaders)
	case "call_trailers":
		access_ = from(proxywasm.GetHttpCallResponseTrailers)
	default:
		return "no such map"
	}
	switch verb {
	case "get":
		text, err := access_.get(name)
		return value([]byte(text), err)
	case "add":
		return status(access_.add(name, text))
	case "set":
		return status(access_.set(name, text))
	case "remove":
		return status(access_.remove(name))
	case "set_pairs":
		return status(access_.replaceAll(pairs(words[2])))
	}
	all, err := access_.pairs()
	if err != nil {
		return status(err)
	}
	listed := []string{}
	for _, pair := range all {
		listed = append(listed, pair[0]+"="+pair[1])
	}
	sort.Strings(listed)
	return quoted([]byte(strings.Join(listed, ",")))
}

func body(verb, where, start, most, text string) string {
	get := map[string]func(int, int) ([]byte, error){
		"request":  proxywasm.GetHttpRequestBody,
		"response": proxywasm.GetHttpResponseBody,
		"call":     proxywasm.GetHttpCallResponseBody,
		"plugin":   func(int, int) ([]byte, error) { return proxywasm.GetPluginConfiguration() },
		"vm":       func(int, int) ([]byte, error) { return proxywasm.GetVMConfiguration() },
	}
	change := map[string]func([]byte) error{
		"append request":   proxywasm.AppendHttpRequestBody,
		"append response":  proxywasm.AppendHttpResponseBody,
		"prepend request":  proxywasm.PrependHttpRequestBody,
		"prepend response": proxywasm.PrependHttpResponseBody,
		"replace request":  proxywasm.ReplaceHttpRequestBody,
		"replace response": proxywasm.ReplaceHttpResponseBody,
	}
	if verb != "body" {
		return status(change[verb+" "+where]([]byte(text)))
	}
	return value(get[where](int(number(start)), int(number(most))))
}

func (r *run) call(name, upstream, method, path string, timeout uint32, text string) string {
	headers := [][2]string{{":method", method}, {":path", path}, {":authority", "called"}, {"x-call", name}}
	_, err := proxywasm.DispatchHttpCall(upstream, headers, []byte(text), nil, timeout, func(count, size, trailers int) {
		answered := count > 0
		proxywasm.LogInfof("on call %s answered=%t size=%d trailers=%d", name, answered, size, trailers)
		r.steps("call")
		r.steps("call/" + name)
	})
	return status(err)
}

func (r *run) casOf(word string) uint32 {
	switch word {
	case "cas":
		return r.cas
	case "stale":
		return r.cas + 1000
	}
	return number(word)
}

type metric struct {
	counter   proxywasm.MetricCounter
	gauge     proxywasm.MetricGauge
	histogram proxywasm.MetricHistogram
	kind      string
}

func (r *run) metric(verb, name, amount string) string {
	if verb == "metric" {
		switch name {
		case "counter":
			r.metrics[amount] = metric{kind: name, counter: proxywasm.DefineCounterMetric(amount)}
		case "gauge":
			r.metrics[amount] = metric{kind: name, gauge: proxywasm.DefineGaugeMetric(amount)}
		case "histogram":
			r.metrics[amount] = metric{kind: name, histogram: proxywasm.DefineHistogramMetric(amount)}
		}
		return "OK"
	}
	metric := r.metrics[name]
	by, _ := strconv.ParseInt(amount, 10, 64)
	switch {
	case verb == "record":
		metric.histogram.Record(uint64(by))
	case verb == "increment" && metric.kind == "counter":
		metric.counter.Increment(uint64(by))
	case verb == "increment":
		metric.gauge.Add(by)
	case metric.kind == "counter":
		return fmt.Sprint(metric.counter.Value())
	default:
		return fmt.Sprint(metric.gauge.Value())
	}
	return "OK"
}

func logAt(level, text string) {
	levels := map[string]func(string){
		"trace": proxywasm.LogTrace, "debug": proxywasm.LogDebug, "info": proxywasm.LogInfo,
		"warn": proxywasm.LogWarn, "error": proxywasm.LogError, "critical": proxywasm.LogCritical,
	}
	levels[level](text)
}

// Parses `a=1,b=2`, or `-` for an empty list.
func pairs(text string) [][2]string {
	pairs := [][2]string{}
	for _, pair := range strings.Split(text, ",") {
		if name, value, found := strings.Cut(pair, "="); found {
			pairs = append(pairs, [2]string{name, value})
		}
	}
	return pairs
}

func number(text string) uint32 {
	number, _ := strconv.ParseUint(text, 10, 32)
	return uint32(number)
}

func value(bytes []byte, err error) string {
	if err != nil {
		return status(err)
	}
	return quoted(bytes)
}

func quoted(bytes []byte) string {
	if len(bytes) == 0 {
		return "(empty)"
	}
	var text strings.Builder
	for _, byte := range bytes {
		if byte < ' ' || byte > '~' {
			fmt.Fprintf(&text, "\\x%02x", byte)
		} else {
			text.WriteByte(byte)
		}
	}
	return text.String()
}

func status(err error) string {
	switch {
	case err == nil:
		return "OK"
	case errors.Is(err, types.ErrorStatusNotFound):
		return "NOT_FOUND"
	case errors.Is(err, types.ErrorStatusBadArgument):
		return "BAD_ARGUMENT"
	case errors.Is(err, types.ErrorStatusEmpty):
		return "EMPTY"
	case errors.Is(err, types.ErrorStatusCasMismatch):
		return "CAS_MISMATCH"
	case errors.Is(err, types.ErrorInternalFailure):
		return "INTERNAL_FAILURE"
	case errors.Is(err, types.ErrorUnimplemented):
		return "UNIMPLEMENTED"
	}
	// The SDK has no names for other statuses.
	if err.Error() == "unknown status code: 3" {
		return "SERIALIZATION_FAILURE"
	}
	return err.Error()
}
