package stream

import (
	"encoding/json"
	"syscall"

	"coppice/agent/internal/frame"
)

// timeoutExitCode is also the exit code of timeout(1) after a timeout.
const timeoutExitCode = 124

// Exit is the payload of the last frame.
type Exit struct {
	ExitCode int  `json:"exit_code"`
	TimedOut bool `json:"timed_out"`
	Signal   int  `json:"signal,omitempty"`
}

// ExitOf describes how a process ended.
func ExitOf(status syscall.WaitStatus, timedOut bool) Exit {
	switch {
	case timedOut:
		return Exit{ExitCode: timeoutExitCode, TimedOut: true}
	case status.Signaled():
		return Exit{ExitCode: 128 + int(status.Signal()), Signal: int(status.Signal())}
	default:
		return Exit{ExitCode: status.ExitStatus()}
	}
}

// Frame encodes e as an exit frame.
func (e Exit) Frame() []byte {
	payload, err := json.Marshal(e)
	if err != nil {
		panic("exit frame: " + err.Error())
	}
	return frame.Encode(frame.Exit, payload)
}
