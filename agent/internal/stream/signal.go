package stream

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/api"
	"coppice/agent/internal/fault"
)

// ParseSignal reads the payload of a signal frame: {"signal":"TERM"}. The prefix SIG is allowed.
func ParseSignal(payload []byte) (syscall.Signal, error) {
	var body struct {
		Signal string `json:"signal"`
	}
	if err := api.DecodeJSON("signal frame", payload, &body); err != nil {
		return 0, err
	}
	number := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(body.Signal), "SIG"))
	if number == 0 {
		return 0, fault.Invalid("signal: %q is not a signal name such as TERM", body.Signal)
	}
	return number, nil
}
