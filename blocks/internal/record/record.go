// Package record encodes small objects. A record is a line of JSON and a line with a hash of its key and that line: a
// flipped bit in a manifest must not free data, or give a disk another holder or size.
package record

import (
	"bytes"
	"encoding/json"
	"fmt"

	"coppice/blocks/internal/segment"
)

// Encode returns the object of a value.
func Encode(key string, value any) ([]byte, error) {
	line, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	line = append(line, '\n')
	return append(append(line, hash(key, line)...), '\n'), nil
}

// Decode verifies an object and parses its value.
func Decode(key string, body []byte, value any) error {
	end := bytes.IndexByte(body, '\n') + 1
	if end == 0 || string(body[end:]) != hash(key, body[:end])+"\n" {
		return fmt.Errorf("%w: the hash of %s differs", segment.ErrCorrupt, key)
	}
	if err := json.Unmarshal(body[:end], value); err != nil {
		return fmt.Errorf("%w: %s: %w", segment.ErrCorrupt, key, err)
	}
	return nil
}

func hash(key string, line []byte) string {
	return segment.HashOf(append([]byte(key+"\n"), line...)).String()
}
