package execution

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"coppice/agent/internal/agenttest"
	"coppice/agent/internal/api"
	"coppice/agent/internal/frame"
	"coppice/agent/internal/guest"
	"coppice/agent/internal/process"
	"coppice/agent/internal/reap"
	"coppice/agent/internal/stream"
)

var reaper *reap.Reaper

func TestMain(m *testing.M) {
	reaper = agenttest.RunReaper()
	os.Exit(m.Run())
}

// machine is a Service behind HTTP/2 on a pipe, and its state.
type machine struct {
	*agenttest.Machine
	state *guest.State
}

func newMachine(t *testing.T) machine {
	t.Helper()
	state := &guest.State{}
	state.Set(guest.Settings{Env: map[string]string{"PATH": "/usr/bin:/bin", "IMAGE": "yes"}, Workdir: "/"})
	return machine{state: state, Machine: agenttest.NewMachine(t, func(hostMoved func(context.Context) bool) api.Router {
		launcher := process.NewLauncher(process.Options{Reaper: reaper, Root: t.TempDir()})
		service := New(Options{Guest: state, Launcher: launcher, Null: agenttest.OpenNull(t), HostMoved: hostMoved})
		return api.Router{"POST /exec": service.Exec}
	})}
}

func (m machine) start(h map[string]any) *agenttest.Call { return m.Start("/exec", h) }

// result is the output and exit of a finished exec.
type result struct {
	stdout, stderr string
	exit           stream.Exit
}

func finish(t *testing.T, c *agenttest.Call) result {
	t.Helper()
	var r result
	for {
		switch kind, payload := c.MustNext(); kind {
		case frame.Stdout:
			r.stdout += string(payload)
		case frame.Stderr:
			r.stderr += string(payload)
		case frame.Exit:
			if err := json.Unmarshal(payload, &r.exit); err != nil {
				t.Fatal(err)
			}
			c.ExpectEnd()
			return r
		}
	}
}

func (m machine) run(t *testing.T, h map[string]any) result {
	t.Helper()
	return finish(t, m.start(h))
}

func TestExecReturnsBothStreamsAndTheExitCode(t *testing.T) {
	got := newMachine(t).run(t, map[string]any{"command": "echo out; echo err >&2; exit 3"})
	if got != (result{"out\n", "err\n", stream.Exit{ExitCode: 3}}) {
		t.Fatalf("%+v", got)
	}
}

func TestExecLayersTheEnvironment(t *testing.T) {
	got := newMachine(t).run(t, map[string]any{
		"command": "echo $IMAGE $OWN $USER $HOME; pwd", "cwd": "/usr", "env": map[string]string{"OWN": "1", "HOME": "/h"},
	})
	if got.stdout != "yes 1 root /h\n/usr\n" {
		t.Fatalf("%+v", got)
	}
}

func TestExecRunsAsTheUserThatIsAskedFor(t *testing.T) {
	got := newMachine(t).run(t, map[string]any{"command": "id -u; id -g; id -G", "user": "1234:4321"})
	if got.stdout != "1234\n4321\n4321\n" {
		t.Fatalf("%+v", got)
	}
}

func TestStandardInputIsFedAndEnded(t *testing.T) {
	c := newMachine(t).start(map[string]any{"command": "cat; echo end", "stdin": true})
	c.Send(frame.Stdin, "hello ")
	c.ReadUntil("hello ")
	c.Send(frame.Stdin, "again ")
	c.Send(frame.StdinEnd, "")
	if got := finish(t, c); got.stdout != "again end\n" {
		t.Fatalf("%+v", got)
	}
}

func TestWithoutStdinInputIsEmpty(t *testing.T) {
	if got := newMachine(t).run(t, map[string]any{"command": "cat; echo end"}); got.stdout != "end\n" {
		t.Fatalf("%+v", got)
	}
}

func TestInputThatTheProcessDoesNotReadDoesNotDelayItsEnd(t *testing.T) {
	c := newMachine(t).start(map[string]any{"command": "sleep 0.2; exit 5", "stdin": true})
	go func() { _, _ = c.Input.Write(frame.Encode(frame.Stdin, make([]byte, frame.MaxPayloadBytes))) }()
	if got := finish(t, c); got.exit.ExitCode != 5 {
		t.Fatalf("%+v", got)
	}
}

func TestASignalFrameReachesTheGroup(t *testing.T) {
	c := newMachine(t).start(map[string]any{"command": "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done"})
	c.ReadUntil("ready")
	c.Send(frame.Signal, `{"signal":"TERM"}`)
	if got := finish(t, c); got.exit != (stream.Exit{ExitCode: 7}) {
		t.Fatalf("%+v", got)
	}
}

func TestDeathBySignalIsReportedAsSuch(t *testing.T) {
	got := newMachine(t).run(t, map[string]any{"command": "kill -9 $$"})
	if got.exit != (stream.Exit{ExitCode: 137, Signal: 9}) {
		t.Fatalf("%+v", got)
	}
}

func TestTimeoutKillsAGroupThatIgnoresSIGTERM(t *testing.T) {
	got := newMachine(t).run(t, map[string]any{"command": "trap '' TERM; sleep 1000 & echo begun; sleep 1000", "timeout_ms": 300})
	if got.stdout != "begun\n" || got.exit != (stream.Exit{ExitCode: 124, TimedOut: true}) {
		t.Fatalf("%+v", got)
	}
}

func TestABackgroundChildNeitherDelaysTheExitNorIsKilled(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "done")
	command := fmt.Sprintf("(head -c 1000000 /dev/zero; sleep 0.3; head -c 1000000 /dev/zero; echo > %s) & echo hi", marker)
	began := time.Now()
	if got := newMachine(t).run(t, map[string]any{"command": command}); !strings.Contains(got.stdout, "hi\n") {
		t.Fatalf("%+v", got.exit)
	}
	if waited := time.Since(began); waited > agenttest.Limit/2 {
		t.Fatal("the background child delayed the exit by ", waited)
	}
	agenttest.Eventually(t, "the background child has written everything and ended", func() bool {
		_, err := os.Stat(marker)
		return err == nil
	})
}

func TestABackgroundChildThatNeverStopsWritingDoesNotDelayTheExit(t *testing.T) {
	m := newMachine(t)
	got := m.run(t, map[string]any{"command": "yes >&2 & echo $!"})
	if got.exit.ExitCode != 0 {
		t.Fatalf("%+v", got.exit)
	}
	m.run(t, map[string]any{"command": "kill -9 " + got.stdout})
}

func TestALargeOutputArrivesWhole(t *testing.T) {
	const size = 8 << 20
	got := newMachine(t).run(t, map[string]any{"command": fmt.Sprintf("head -c %d /dev/zero", size)})
	if len(got.stdout) != size {
		t.Fatal(len(got.stdout))
	}
}
