package execution

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/agenttest"
	"coppice/agent/internal/guest"
	"coppice/agent/internal/process"
)

// pidOf reads the process id that a command has written.
func pidOf(t *testing.T, path string) int {
	t.Helper()
	pid := 0
	agenttest.Eventually(t, "the command has started", func() bool {
		content, err := os.ReadFile(path)
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(content)))
		}
		return err == nil
	})
	return pid
}

func gone(pid int) bool { return unix.Kill(pid, 0) == unix.ESRCH }

func TestAClientThatLeavesKillsItsProcessGroup(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "pid")
	c := newMachine(t).start(map[string]any{"command": fmt.Sprintf("sleep 1000 & echo $! > %s; sleep 1000", marker)})
	pid := pidOf(t, marker)
	if err := c.Answer.Body.Close(); err != nil {
		t.Fatal(err)
	}
	agenttest.Eventually(t, "the group is gone", func() bool { return gone(pid) })
}

func TestTheEndOfTheSessionKeepsProcessesAndDrainsThem(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "done")
	m := newMachine(t)
	m.start(map[string]any{"command": fmt.Sprintf("head -c 5000000 /dev/zero; echo $$ > %s", marker)})
	m.MoveHost()
	pid := pidOf(t, marker)
	agenttest.Eventually(t, "the process ended by itself", func() bool { return gone(pid) })
}

func TestAClientThatDoesNotReadStopsTheProcess(t *testing.T) {
	const size = 100_000_000
	directory := t.TempDir()
	marker := filepath.Join(directory, "done")
	c := newMachine(t).start(map[string]any{
		"command":    fmt.Sprintf("echo $$ > %s/pid; head -c %d /dev/zero; echo > %s", directory, size, marker),
		"timeout_ms": 1000,
	})
	pid := pidOf(t, filepath.Join(directory, "pid"))
	// The client does not read until the time is up. At that moment the process is stopped by the full pipe.
	agenttest.Eventually(t, "the command has been killed", func() bool { return gone(pid) })
	if _, err := os.Stat(marker); err == nil {
		t.Fatal("the process wrote everything although the client did not read")
	}
	kept, err := io.Copy(io.Discard, c.Answer.Body)
	if err != nil || kept >= size/2 {
		t.Fatal("kept in memory: ", kept, err)
	}
}

func TestWhatCannotStartIsRefusedWithTheFieldsName(t *testing.T) {
	cases := []struct {
		head  map[string]any
		field string
	}{
		{map[string]any{"command": ""}, "command"},
		{map[string]any{"command": "a\x00b"}, "command"},
		{map[string]any{"command": strings.Repeat("x", process.MaxArgumentBytes+1)}, "command"},
		{map[string]any{"command": 5}, "command"},
		{map[string]any{"command": "true", "cwd": "/nonexistent"}, "cwd"},
		{map[string]any{"command": "true", "cwd": "/dev/null"}, "cwd"},
		{map[string]any{"command": "true", "cwd": "relative"}, "cwd"},
		{map[string]any{"command": "true", "user": "nobody-here"}, "user"},
		{map[string]any{"command": "true", "env": map[string]string{"A=B": "1"}}, "env"},
		{map[string]any{"command": "true", "env": map[string]string{"A": "\x00"}}, "env"},
		{map[string]any{"command": "true", "timeout_ms": -1}, "timeout_ms"},
	}
	m := newMachine(t)
	for _, c := range cases {
		m.start(c.head).ExpectError(http.StatusBadRequest, "invalid_request", c.field)
	}
}

func TestBeforeTheFirstResumeNothingRuns(t *testing.T) {
	m := newMachine(t)
	*m.state = guest.State{}
	m.start(map[string]any{"command": "true"}).ExpectError(http.StatusConflict, "invalid_state", "resume")
}

func FuzzHead(f *testing.F) {
	f.Add([]byte(`{"command":"true","cwd":"/","env":{"A":"b"},"user":"root","timeout_ms":1,"stdin":true}`))
	f.Add([]byte(`{"command":null,"env":null}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		h, err := parseHead(payload)
		if err == nil && (h.Command == "" || strings.ContainsRune(h.Command, 0) || h.TimeoutMs < 0) {
			t.Fatalf("%+v was accepted", h)
		}
	})
}
