package frame

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestReaderReturnsFramesInOrderAndSkipsUnreadPayloads(t *testing.T) {
	stream := append(Encode(Head, []byte("{}")), Encode(Stdin, []byte("skipped"))...)
	stream = append(stream, Encode(StdinEnd, nil)...)
	reader := NewReader(bytes.NewReader(stream))

	kind, length, err := reader.Next()
	payload, readErr := reader.ReadPayload()
	if kind != Head || length != 2 || err != nil || readErr != nil || string(payload) != "{}" {
		t.Fatalf("head: %d %d %q %v %v", kind, length, payload, err, readErr)
	}
	if kind, length, err = reader.Next(); kind != Stdin || length != 7 || err != nil {
		t.Fatalf("stdin: %d %d %v", kind, length, err)
	}
	if kind, _, err = reader.Next(); kind != StdinEnd || err != nil {
		t.Fatalf("stdin end: %d %v", kind, err)
	}
	if _, _, err = reader.Next(); !errors.Is(err, io.EOF) {
		t.Fatalf("end: %v", err)
	}
}

func TestReaderTellsABrokenFrameFromTheEndOfTheStream(t *testing.T) {
	whole := Encode(Stdin, []byte("abc"))
	for cut := 1; cut < len(whole); cut++ {
		reader := NewReader(bytes.NewReader(whole[:cut]))
		_, _, err := reader.Next()
		if err == nil {
			_, err = reader.ReadPayload()
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut after %d bytes: %v", cut, err)
		}
	}
}

func TestReaderRefusesAPayloadOverTheLimit(t *testing.T) {
	_, _, err := NewReader(bytes.NewReader([]byte{Stdin, 0, 0x10, 0, 1})).Next()
	if !errors.Is(err, ErrTooLong) {
		t.Fatal(err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(Encode(Head, []byte(`{"command":"true"}`)))
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, stream []byte) {
		reader := NewReader(bytes.NewReader(stream))
		var again []byte
		for {
			kind, length, err := reader.Next()
			if err != nil {
				break
			}
			payload, err := reader.ReadPayload()
			if err != nil {
				break
			}
			if len(payload) != length {
				t.Fatalf("payload of %d bytes, announced %d", len(payload), length)
			}
			again = append(again, Encode(kind, payload)...)
		}
		if !bytes.HasPrefix(stream, again) {
			t.Fatal("the frames that were read differ from the stream")
		}
	})
}
