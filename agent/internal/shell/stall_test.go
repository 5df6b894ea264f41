package shell

import (
	"testing"

	"coppice/agent/internal/frame"
)

// The trap reads the script. A damaged parser of bash waits in the same way.
func TestAShellThatWaitsForMoreThanItsScriptEnds(t *testing.T) {
	s := open(t, false)
	s.Send(frame.Run, "trap 'read -r line' DEBUG")
	for {
		if kind, _ := s.MustNext(); kind == frame.Exit {
			return
		}
	}
}

func TestAShellThatWaitsForSomethingElseDoesNot(t *testing.T) {
	eachShell(t, func(t *testing.T, s *testSession) {
		fifo := t.TempDir() + "/fifo"
		s.expect("mkfifo "+fifo+"; (sleep 2; echo late > "+fifo+") & read -r x < "+fifo+"; echo \"$x\"", "late\n")
	})
}
