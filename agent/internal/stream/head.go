// Package stream holds what requests with frames have in common: the head frame at their start, and an answer that
// carries the output of processes. A client that does not read slows the processes down.
package stream

import (
	"net/http"
	"time"

	"coppice/agent/internal/fault"
	"coppice/agent/internal/frame"
)

// headLimit bounds the wait for a client's head frame.
const headLimit = 30 * time.Second

// ReadHead returns the payload of the first frame.
func ReadHead(w http.ResponseWriter, frames *frame.Reader) ([]byte, error) {
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(headLimit)); err != nil {
		return nil, err
	}
	kind, _, err := frames.Next()
	if err != nil {
		return nil, fault.Invalid("body: the head frame is missing or broken: %v", err)
	}
	if kind != frame.Head {
		return nil, fault.Invalid("body: the first frame must be the head (type 0), not type %d", kind)
	}
	payload, err := frames.ReadPayload()
	if err != nil {
		return nil, fault.Invalid("body: broken off inside the head frame: %v", err)
	}
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return payload, nil
}
