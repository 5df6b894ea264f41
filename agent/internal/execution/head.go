package execution

import (
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/api"
	"coppice/agent/internal/fault"
)

const (
	// maxArgumentBytes is the kernel's MAX_ARG_STRLEN less the NUL.
	maxArgumentBytes = 131071
	// maxTimeoutMs is a year.
	maxTimeoutMs = 365 * 24 * 3600 * 1000
)

// head is the first frame of a request.
type head struct {
	Command   string            `json:"command"`
	Cwd       string            `json:"cwd"`
	Env       map[string]string `json:"env"`
	User      string            `json:"user"`
	TimeoutMs int64             `json:"timeout_ms"`
	Stdin     bool              `json:"stdin"`
}

func parseHead(payload []byte) (head, error) {
	var h head
	if err := api.DecodeJSON("head frame", payload, &h); err != nil {
		return head{}, err
	}
	return h, h.validate()
}

func (h head) validate() error {
	switch {
	case h.Command == "":
		return fault.Invalid("command: must not be empty")
	case len(h.Command) > maxArgumentBytes:
		return fault.Invalid("command: longer than %d bytes; upload it as a file and run that", maxArgumentBytes)
	case strings.ContainsRune(h.Command, 0):
		return fault.Invalid("command: must not contain NUL")
	case strings.ContainsRune(h.Cwd, 0):
		return fault.Invalid("cwd: must not contain NUL")
	case h.Cwd != "" && !path.IsAbs(h.Cwd):
		return fault.Invalid("cwd: must be an absolute path, not %q", h.Cwd)
	case h.TimeoutMs < 0 || h.TimeoutMs > maxTimeoutMs:
		return fault.Invalid("timeout_ms: must be from 0 (none) to %d", int64(maxTimeoutMs))
	}
	for name, value := range h.Env {
		if err := validateVariable(name, value); err != nil {
			return err
		}
	}
	return nil
}

func validateVariable(name, value string) error {
	switch {
	case name == "" || strings.ContainsAny(name, "=\x00"):
		return fault.Invalid("env: %q is no variable name; it must not be empty or contain = or NUL", name)
	case strings.ContainsRune(value, 0):
		return fault.Invalid("env: the value of %s must not contain NUL", name)
	case len(name)+1+len(value) > maxArgumentBytes:
		return fault.Invalid("env: %s is longer than %d bytes with its value", name, maxArgumentBytes)
	}
	return nil
}

// parseSignal reads the payload of a signal frame: {"signal":"TERM"}; the prefix SIG is allowed.
func parseSignal(payload []byte) (syscall.Signal, error) {
	var body struct {
		Signal string `json:"signal"`
	}
	if err := api.DecodeJSON("signal frame", payload, &body); err != nil {
		return 0, err
	}
	number := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(body.Signal), "SIG"))
	if number == 0 {
		return 0, fault.Invalid("signal: %q is no signal name such as TERM", body.Signal)
	}
	return number, nil
}
