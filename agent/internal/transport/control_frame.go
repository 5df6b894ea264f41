package transport

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

const (
	controlHeaderBytes  = 4
	maxControlBodyBytes = 65536
	markerBytes         = 32
)

var errControlFrame = errors.New("ctl frame cannot be parsed")

// openMessage is the only message that the runner sends.
type openMessage struct {
	Type       string `json:"type"`
	Generation uint64 `json:"generation"`
	// Marker separates the new session's bytes on the data port from those of older ones, in both directions.
	Marker string `json:"marker"`
}

// waitingMessage says that the marker has been sent, and that the agent waits for the same marker and, right after it,
// the HTTP/2 preface of that generation.
type waitingMessage struct {
	Type       string `json:"type"`
	Generation uint64 `json:"generation"`
	Protocol   int    `json:"protocol"`
	Marker     string `json:"marker"`
}

// splitControl removes one frame from the front of input. It returns a nil body while the frame is incomplete.
func splitControl(input []byte) (body, rest []byte, err error) {
	if len(input) < controlHeaderBytes {
		return nil, input, nil
	}
	length := int(binary.BigEndian.Uint32(input))
	if length == 0 || length > maxControlBodyBytes {
		return nil, nil, fmt.Errorf("%w: length %d", errControlFrame, length)
	}
	end := controlHeaderBytes + length
	if len(input) < end {
		return nil, input, nil
	}
	return input[controlHeaderBytes:end], input[end:], nil
}

// parseOpen refuses any other message: after lost bytes, a frame may seem to start anywhere.
func parseOpen(body []byte) (openMessage, error) {
	var message openMessage
	if err := json.Unmarshal(body, &message); err != nil {
		return openMessage{}, fmt.Errorf("%w: %w", errControlFrame, err)
	}
	if message.Type != "open" {
		return openMessage{}, fmt.Errorf("%w: type %q", errControlFrame, message.Type)
	}
	if len(message.Marker) != markerBytes {
		return openMessage{}, fmt.Errorf("%w: a marker of %d bytes", errControlFrame, len(message.Marker))
	}
	return message, nil
}

func encodeControl(message any) ([]byte, error) {
	body, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	framed := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	return append(framed, body...), nil
}
