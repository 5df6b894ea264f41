package stream

import "testing"

func FuzzSignal(f *testing.F) {
	f.Add([]byte(`{"signal":"SIGTERM"}`))
	f.Add([]byte(`{"signal":"kill"}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if signal, err := ParseSignal(payload); err == nil && (signal < 1 || signal > 64) {
			t.Fatal(signal)
		}
	})
}
