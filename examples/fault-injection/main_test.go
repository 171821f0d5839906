package main

import "testing"

func TestAcceptsConfigurationsOfAPISIX(t *testing.T) {
	fault, err := parse([]byte(`{"body":"hello world", "http_status":200}`))
	if err != nil || fault.Status != 200 || fault.Body != "hello world" || !fault.hits(99) {
		t.Fatalf("%+v, %v", fault, err)
	}
}

func TestRejectsInvalidConfigurations(t *testing.T) {
	for _, text := range []string{``, `{}`, `{"http_status":99}`, `{"http_status":503,"percentage":101}`, `{"http_status":503,"percentage":-1}`} {
		if _, err := parse([]byte(text)); err == nil {
			t.Errorf("%s was accepted", text)
		}
	}
}

func TestPercentageOfRequestsIsHit(t *testing.T) {
	fault, _ := parse([]byte(`{"http_status":503,"percentage":10}`))
	hit := 0
	for dice := range 100 {
		if fault.hits(dice) {
			hit++
		}
	}
	if hit != 10 {
		t.Errorf("%d of 100", hit)
	}
}
