package execution

import (
	"coppice/agent/internal/api"
	"coppice/agent/internal/fault"
	"coppice/agent/internal/process"
)

// maxTimeoutMs is one year.
const maxTimeoutMs = 365 * 24 * 3600 * 1000

// head is the first frame of a request. place is the part that says where to run.
type head struct {
	Command   string `json:"command"`
	TimeoutMs int64  `json:"timeout_ms"`
	Stdin     bool   `json:"stdin"`

	place process.Place
}

func parseHead(payload []byte) (head, error) {
	var h head
	if err := api.DecodeJSON("head frame", payload, &h); err != nil {
		return head{}, err
	}
	if err := process.ValidateCommand(h.Command); err != nil {
		return head{}, err
	}
	if h.TimeoutMs < 0 || h.TimeoutMs > maxTimeoutMs {
		return head{}, fault.Invalid("timeout_ms: must be from 0 (none) to %d", int64(maxTimeoutMs))
	}
	var err error
	h.place, err = process.ParsePlace(payload)
	return h, err
}
