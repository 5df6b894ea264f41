package transport

import (
	"bytes"
	"encoding/json"
	"testing"
)

const testMarker = "0123456789abcdef0123456789abcdef"

func TestSplitControlWaitsForTheWholeFrame(t *testing.T) {
	framed, err := encodeControl(openMessage{"open", 7, testMarker})
	if err != nil {
		t.Fatal(err)
	}
	for cut := range framed {
		if body, _, err := splitControl(framed[:cut]); body != nil || err != nil {
			t.Fatalf("cut at %d: %q %v", cut, body, err)
		}
	}
	body, rest, err := splitControl(append(framed, 1, 2))
	if err != nil || !bytes.Equal(rest, []byte{1, 2}) {
		t.Fatal(rest, err)
	}
	if message, err := parseOpen(body); err != nil || message.Generation != 7 {
		t.Fatal(message, err)
	}
}

func TestSplitControlRefusesLengthsOutOfBounds(t *testing.T) {
	for _, input := range [][]byte{{0, 0, 0, 0}, {0, 1, 0, 1}, {0xff, 0xff, 0xff, 0xff}} {
		if _, _, err := splitControl(input); err == nil {
			t.Errorf("%v was accepted", input)
		}
	}
}

func TestParseOpenRefusesEverythingElse(t *testing.T) {
	for _, body := range []string{``, `null`, `[]`, `{}`, `{"type":"close","generation":1}`, `{"type":"open","generation":-1}`, `{"type":"open","generation":1}`, `{"type":"open","generation":1,"marker":"short"}`} {
		if _, err := parseOpen([]byte(body)); err == nil {
			t.Errorf("%s was accepted", body)
		}
	}
}

func FuzzControl(f *testing.F) {
	framed, err := encodeControl(openMessage{"open", 1, testMarker})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(framed)
	f.Add([]byte{0, 0, 0, 2, '{', '}'})
	f.Fuzz(func(t *testing.T, input []byte) {
		body, rest, err := splitControl(input)
		if err != nil || body == nil {
			return
		}
		if controlHeaderBytes+len(body)+len(rest) != len(input) || len(body) > maxControlBodyBytes {
			t.Fatal("bytes were lost or added")
		}
		if _, err := parseOpen(body); err == nil && !json.Valid(body) {
			t.Fatal("invalid JSON was accepted")
		}
	})
}
