package segment_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"testing"

	"coppice/blocks/internal/segment"
)

func TestFramesAreReadAsTheyWereWritten(t *testing.T) {
	noise := make([]byte, segment.BlockBytes)
	_, _ = rand.Read(noise)
	writer, places := segment.NewWriter(), []segment.Place{}
	contents := [][]byte{bytes.Repeat([]byte("x"), segment.BlockBytes), noise, noise[:segment.PageBytes]}
	for _, content := range contents {
		places = append(places, writer.Append(segment.Encode(content, nil)))
	}
	stored := writer.Bytes()
	for i, at := range places {
		found, err := segment.Decode(at, stored[at.Offset:at.Offset+at.Length])
		if err != nil || !bytes.Equal(found, contents[i]) {
			t.Errorf("frame %d: %v", i, err)
		}
	}
	if places[0].Length > 1000 {
		t.Errorf("a uniform block takes %d bytes", places[0].Length)
	}
}

func TestEveryFlippedBitIsDetected(t *testing.T) {
	writer := segment.NewWriter()
	at := writer.Append(segment.Encode(bytes.Repeat([]byte("some text"), 1000)[:segment.PageBytes], nil))
	frame := writer.Bytes()[at.Offset:]
	for i := range frame {
		frame[i] ^= 1 << (i % 8)
		if _, err := segment.Decode(at, frame); !errors.Is(err, segment.ErrCorrupt) {
			t.Fatalf("byte %d: %v", i, err)
		}
		frame[i] ^= 1 << (i % 8)
	}
	other := at
	other.Offset++
	if _, err := segment.Decode(other, frame); !errors.Is(err, segment.ErrCorrupt) {
		t.Errorf("a frame of another place: %v", err)
	}
	if _, err := segment.Decode(at, frame[:10]); !errors.Is(err, segment.ErrCorrupt) {
		t.Errorf("a short frame: %v", err)
	}
}
