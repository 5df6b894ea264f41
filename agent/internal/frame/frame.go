// Package frame reads and writes the frames of exec, terminal and shell: uint8 type, big-endian uint32 length, payload.
package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Frame types of docs/reference/agent-protocol.md.
const (
	Head     = 0
	Stdin    = 1
	StdinEnd = 2
	Signal   = 3
	Resize   = 4
	Run      = 5
	Stdout   = 16
	Stderr   = 17
	Exit     = 18
	Done     = 19
	Position = 20
)

// HeaderBytes is the size of type and length, MaxPayloadBytes the longest payload in either direction.
const (
	HeaderBytes     = 5
	MaxPayloadBytes = 1 << 20
)

// ErrTooLong means that a frame announced more than MaxPayloadBytes.
var ErrTooLong = errors.New("frame is longer than 1 MiB")

// PutHeader writes a header into the first HeaderBytes of buffer.
func PutHeader(buffer []byte, kind byte, length int) {
	buffer[0] = kind
	binary.BigEndian.PutUint32(buffer[1:HeaderBytes], uint32(length))
}

// Encode returns a whole frame.
func Encode(kind byte, payload []byte) []byte {
	encoded := make([]byte, HeaderBytes+len(payload))
	PutHeader(encoded, kind, len(payload))
	copy(encoded[HeaderBytes:], payload)
	return encoded
}

// Reader splits a stream into frames. The caller reads the payloads, so that a large one is never held in memory.
type Reader struct {
	source io.Reader
	rest   io.LimitedReader
}

// NewReader returns a Reader of frames from source.
func NewReader(source io.Reader) *Reader {
	return &Reader{source: source, rest: io.LimitedReader{R: source}}
}

// Next skips the rest of the current payload and reads the next header. It returns io.EOF only between frames; a stream
// that ends inside a frame gives io.ErrUnexpectedEOF.
func (r *Reader) Next() (kind byte, length int, err error) {
	if r.rest.N > 0 {
		if _, err := io.Copy(io.Discard, &r.rest); err != nil {
			return 0, 0, err
		}
		if r.rest.N > 0 {
			return 0, 0, io.ErrUnexpectedEOF
		}
	}
	var header [HeaderBytes]byte
	if _, err := io.ReadFull(r.source, header[:]); err != nil {
		return 0, 0, err
	}
	size := binary.BigEndian.Uint32(header[1:])
	if size > MaxPayloadBytes {
		return 0, 0, fmt.Errorf("%w: %d bytes", ErrTooLong, size)
	}
	r.rest.N = int64(size)
	return header[0], int(size), nil
}

// Payload returns a reader of the rest of the current frame's payload, which ends with io.EOF. If the stream breaks
// inside the payload, this reader also gives io.EOF, and Next returns an error.
func (r *Reader) Payload() io.Reader { return &r.rest }

// ReadPayload returns the whole payload of the current frame.
func (r *Reader) ReadPayload() ([]byte, error) {
	payload := make([]byte, r.rest.N)
	_, err := io.ReadFull(&r.rest, payload)
	if errors.Is(err, io.EOF) && len(payload) > 0 {
		err = io.ErrUnexpectedEOF
	}
	return payload, err
}
