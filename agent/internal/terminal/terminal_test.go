package terminal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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

func newMachine(t *testing.T) *agenttest.Machine {
	t.Helper()
	state := &guest.State{}
	state.Set(guest.Settings{Env: map[string]string{"PATH": "/usr/bin:/bin", "HOME": t.TempDir()}, Workdir: "/"})
	return agenttest.NewMachine(t, func(hostMoved func(context.Context) bool) api.Router {
		launcher := process.NewLauncher(process.Options{Reaper: reaper, Root: t.TempDir()})
		return api.Router{"POST /terminal": New(Options{Guest: state, Launcher: launcher, HostMoved: hostMoved}).Open}
	})
}

func headOf(more map[string]any) map[string]any {
	head := map[string]any{"cols": 80, "rows": 24}
	for name, value := range more {
		head[name] = value
	}
	return head
}

func run(t *testing.T, command string) *agenttest.Call {
	t.Helper()
	return newMachine(t).Start("/terminal", headOf(map[string]any{"command": command}))
}

// interact opens the default shell and waits for its prompt.
func interact(t *testing.T) *agenttest.Call {
	t.Helper()
	c := newMachine(t).Start("/terminal", headOf(nil))
	// The echo of this line does not contain the prompt.
	c.Send(frame.Stdin, "PS1='rea''dy> '\n")
	c.ReadUntil("ready> ")
	return c
}

func finish(t *testing.T, c *agenttest.Call) (output string, exit stream.Exit) {
	t.Helper()
	var seen strings.Builder
	for {
		kind, payload := c.MustNext()
		switch kind {
		case frame.Stdout:
			seen.Write(payload)
		case frame.Exit:
			if err := json.Unmarshal(payload, &exit); err != nil {
				t.Fatal(err)
			}
			c.ExpectEnd()
			return seen.String(), exit
		default:
			t.Fatalf("frame %d", kind)
		}
	}
}

func gone(pid int) bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

func pidOf(t *testing.T, path string) (pid int) {
	t.Helper()
	agenttest.Eventually(t, "the program has started", func() bool {
		content, err := os.ReadFile(path)
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(content)))
		}
		return err == nil
	})
	return pid
}

func TestACommandRunsOnATerminalOfItsOwn(t *testing.T) {
	output, exit := finish(t, run(t, "tty; stty size; echo $TERM $LANG; echo err >&2; stat -c '%U %g %a' $(tty); exit 3"))
	lines := strings.Split(output, "\r\n")
	if len(lines) != 6 || !strings.HasPrefix(lines[0], "/dev/pts/") || exit != (stream.Exit{ExitCode: 3}) {
		t.Fatalf("%q %+v", lines, exit)
	}
	want := []string{"24 80", "xterm-256color C.UTF-8", "err", "root 5 620", ""}
	if got := lines[1:]; strings.Join(got, "|") != strings.Join(want, "|") {
		t.Fatalf("%q", got)
	}
}

func TestWhatImageAndRequestSayOfTERMIsKept(t *testing.T) {
	c := newMachine(t).Start("/terminal", headOf(map[string]any{
		"command": "echo $TERM $LANG", "env": map[string]string{"TERM": "dumb", "LANG": "C"},
	}))
	if output, _ := finish(t, c); output != "dumb C\r\n" {
		t.Fatalf("%q", output)
	}
}

func TestTheTerminalBelongsToItsUser(t *testing.T) {
	c := newMachine(t).Start("/terminal", headOf(map[string]any{
		"command": "stat -c %u:%g $(tty); echo opened >/dev/tty", "user": "1234:4321",
	}))
	if output, _ := finish(t, c); output != "1234:5\r\nopened\r\n" {
		t.Fatalf("%q", output)
	}
}

func TestInputIsEchoedAndReadAndUTF8IsNotTouched(t *testing.T) {
	c := run(t, `read -r line; printf '<%s>' "$line"`)
	c.Send(frame.Stdin, "grüße 🌍\n")
	if output, _ := finish(t, c); output != "grüße 🌍\r\n<grüße 🌍>" {
		t.Fatalf("%q", output)
	}
}

func TestAResizeIsSeenBySizeAndSignal(t *testing.T) {
	c := run(t, `trap 'stty size; exit 9' WINCH; echo ready; while :; do sleep 0.05; done`)
	c.ReadUntil("ready")
	c.Send(frame.Resize, `{"cols":0,"rows":1}`)
	c.Send(frame.Resize, `{"cols":132,"rows":43}`)
	if output, exit := finish(t, c); strings.TrimSpace(output) != "43 132" || exit.ExitCode != 9 {
		t.Fatalf("%q %+v", output, exit)
	}
}

func TestTheDefaultShellIsInteractiveWithJobControl(t *testing.T) {
	c := interact(t)
	c.Send(frame.Stdin, "echo $0 $-; shopt login_shell; set -o | grep monitor\n")
	output := c.ReadUntil("ready> ")
	if !strings.Contains(output, "\rbash ") || !strings.Contains(output, "login_shell    \toff") || !strings.Contains(output, "monitor        \ton") {
		t.Fatalf("%q", output)
	}
	marker := filepath.Join(t.TempDir(), "pid")
	c.Send(frame.Stdin, fmt.Sprintf("sh -c 'echo $$ > %s; exec sleep 1000'\n", marker))
	pid := pidOf(t, marker)
	expectJob(t, pid, "sleeping in the foreground", func(state string, foreground bool) bool { return state == "S" && foreground })
	c.Send(frame.Stdin, "\x1a")
	expectJob(t, pid, "stopped", func(state string, foreground bool) bool { return state == "T" && !foreground })
	c.Send(frame.Stdin, "bg %1\n")
	expectJob(t, pid, "running in the background", func(state string, foreground bool) bool { return state == "S" && !foreground })
	c.Send(frame.Stdin, "fg %1\n")
	expectJob(t, pid, "back in the foreground", func(state string, foreground bool) bool { return state == "S" && foreground })
	c.Send(frame.Stdin, "\x03")
	agenttest.Eventually(t, "the job is gone", func() bool { return gone(pid) })
	c.Send(frame.Stdin, "exit $?\n")
	if _, exit := finish(t, c); exit != (stream.Exit{ExitCode: 130}) {
		t.Fatalf("%+v", exit)
	}
}

// expectJob waits for a state of proc(5), and for the job to be in the foreground or not.
func expectJob(t *testing.T, pid int, what string, holds func(state string, foreground bool) bool) {
	t.Helper()
	agenttest.Eventually(t, what, func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return false
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		const state, group, foreground = 0, 2, 5
		return holds(fields[state], fields[group] == fields[foreground])
	})
}

func TestASignalFrameReachesTheForegroundOnly(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "pid")
	c := interact(t)
	c.Send(frame.Stdin, fmt.Sprintf("sh -c 'echo $$ > %s; exec sleep 1000'\n", marker))
	pid := pidOf(t, marker)
	c.Send(frame.Signal, `{"signal":"KILL"}`)
	c.ReadUntil("Killed")
	if !gone(pid) {
		t.Fatal("the foreground is still alive")
	}
	c.Send(frame.Stdin, "exit 4\n")
	if _, exit := finish(t, c); exit.ExitCode != 4 {
		t.Fatalf("%+v", exit)
	}
}

func TestDeathBySignalIsReportedAsSuch(t *testing.T) {
	if _, exit := finish(t, run(t, "kill -9 $$")); exit != (stream.Exit{ExitCode: 137, Signal: 9}) {
		t.Fatalf("%+v", exit)
	}
}

func TestALargeOutputArrivesWholeThoughItsReaderIsSlow(t *testing.T) {
	const size = 10 << 20
	c := run(t, fmt.Sprintf("stty -opost; head -c %d /dev/zero; printf end", size))
	got := 0
	var last []byte
	for {
		kind, payload := c.MustNext()
		if kind == frame.Exit {
			break
		}
		got += len(payload)
		last = payload
		runtime.Gosched()
	}
	if got != size+3 || !strings.HasSuffix(string(last), "end") {
		t.Fatal(got, len(last))
	}
}

func TestWhatIsInTheTerminalWhenItsProgramEndsIsSent(t *testing.T) {
	for range 20 {
		output, _ := finish(t, run(t, "stty -opost; head -c 60000 /dev/zero | tr '\\0' x"))
		if len(output) != 60000 {
			t.Fatal(len(output))
		}
	}
}

func TestABackgroundProgramOnTheTerminalDoesNotDelayTheExitAndIsHungUp(t *testing.T) {
	for name, background := range map[string]string{"silent": "sleep 1000", "writing": "yes"} {
		t.Run(name, func(t *testing.T) {
			marker := filepath.Join(t.TempDir(), "pid")
			// With set -m, the end of the session's leader is not the end of the background program too.
			_, exit := finish(t, run(t, fmt.Sprintf("set -m; %s & echo $! > %s; exit 5", background, marker)))
			if exit.ExitCode != 5 {
				t.Fatalf("%+v", exit)
			}
			pid := pidOf(t, marker)
			if background == "yes" {
				agenttest.Eventually(t, "its writes fail", func() bool { return gone(pid) })
			}
			_ = unix.Kill(pid, unix.SIGKILL)
		})
	}
}

func TestAClientThatLeavesHangsUp(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "pid")
	c := interact(t)
	c.Send(frame.Stdin, fmt.Sprintf("sh -c 'echo $$ > %s; exec sleep 1000'\n", marker))
	pid := pidOf(t, marker)
	c.Leave()
	agenttest.Eventually(t, "the foreground is gone", func() bool { return gone(pid) })
}

func TestAForegroundThatIgnoresTheHangUpIsKilled(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "pid")
	c := interact(t)
	c.Send(frame.Stdin, fmt.Sprintf("sh -c 'trap \"\" HUP; echo $$ > %s; exec sleep 1000'\n", marker))
	pid := pidOf(t, marker)
	c.Leave()
	agenttest.Eventually(t, "the foreground is gone", func() bool { return gone(pid) })
}

func TestTheEndOfTheSessionKeepsTheProgramAndDrainsIt(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "done")
	m := newMachine(t)
	m.Start("/terminal", headOf(map[string]any{"command": fmt.Sprintf("head -c 5000000 /dev/zero; echo $$ > %s", marker)}))
	m.MoveHost()
	pid := pidOf(t, marker)
	agenttest.Eventually(t, "the program ended by itself", func() bool { return gone(pid) })
}

func TestAProgramThatClosesItsTerminalMayOpenItAgain(t *testing.T) {
	output, exit := finish(t, run(t, "exec </dev/null >/dev/null 2>&1; sleep 0.3; echo back >/dev/tty; exit 6"))
	if output != "back\r\n" || exit.ExitCode != 6 {
		t.Fatalf("%q %+v", output, exit)
	}
}

func TestALargeInputIsHeldBackUntilItIsRead(t *testing.T) {
	const size = 1 << 20
	c := run(t, fmt.Sprintf("stty raw -echo; echo ready; sleep 0.3; head -c %d | wc -c", size))
	c.ReadUntil("ready")
	go c.Send(frame.Stdin, strings.Repeat("x", size))
	output, _ := finish(t, c)
	if strings.TrimSpace(output) != strconv.Itoa(size) {
		t.Fatalf("%q", output)
	}
}

func TestInputThatNobodyReadsDoesNotOutliveTheProgram(t *testing.T) {
	c := run(t, "stty raw -echo; echo ready; sleep 0.3; exit 7")
	c.ReadUntil("ready")
	go func() { _, _ = c.Input.Write(frame.Encode(frame.Stdin, make([]byte, frame.MaxPayloadBytes))) }()
	if _, exit := finish(t, c); exit.ExitCode != 7 {
		t.Fatalf("%+v", exit)
	}
}

func TestTheEndOfTheBodyDoesNotEndTheProgram(t *testing.T) {
	c := run(t, "sleep 0.2; echo on; exit 8")
	if err := c.Input.Close(); err != nil {
		t.Fatal(err)
	}
	if output, exit := finish(t, c); output != "on\r\n" || exit.ExitCode != 8 {
		t.Fatalf("%q %+v", output, exit)
	}
}

func TestWhatCannotStartIsRefusedWithTheFieldsName(t *testing.T) {
	m := newMachine(t)
	for field, head := range map[string]map[string]any{
		"command": headOf(map[string]any{"command": ""}),
		"cols":    {"rows": 24},
		"rows":    {"cols": 80, "rows": 1001},
		"cwd":     headOf(map[string]any{"cwd": "/nonexistent"}),
		"user":    headOf(map[string]any{"user": "nobody-here"}),
	} {
		m.Start("/terminal", head).ExpectError(http.StatusBadRequest, "invalid_request", field)
	}
}

func TestTerminalsLeaveNoDescriptors(t *testing.T) {
	count := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	m := newMachine(t)
	before := count()
	for range 20 {
		c := m.Start("/terminal", headOf(map[string]any{"command": "true"}))
		_, _ = io.Copy(io.Discard, c.Answer.Body)
	}
	agenttest.Eventually(t, "no descriptor is left", func() bool { return count() <= before })
}
