package commands

import (
	"bufio"
	"context"
	"encoding/json"
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

// machine is a Service behind HTTP/2 on a pipe. connect makes another session with the same service, as after a restart
// of the host side.
type machine struct {
	*agenttest.Machine
	t       *testing.T
	service *Service
}

func newMachine(t *testing.T) machine {
	t.Helper()
	state := &guest.State{}
	state.Set(guest.Settings{Env: map[string]string{"PATH": "/usr/bin:/bin"}, Workdir: "/"})
	directory := t.TempDir()
	service := New(Options{
		Guest: state, Null: agenttest.OpenNull(t),
		Launcher:   process.NewLauncher(process.Options{Reaper: reaper, Root: t.TempDir()}),
		CreateFile: func() (*os.File, error) { return os.OpenFile(directory, os.O_RDWR|unix.O_TMPFILE, 0o600) },
	})
	return connect(t, service)
}

func connect(t *testing.T, service *Service) machine {
	return machine{t: t, service: service, Machine: agenttest.NewMachine(t, func(func(context.Context) bool) api.Router {
		return api.Router{
			"POST /commands":        service.Start,
			"GET /commands":         service.List,
			"GET /commands/watch":   service.Watch,
			"GET /commands/output":  service.Output,
			"POST /commands/stdin":  service.Stdin,
			"POST /commands/signal": service.Signal,
		}
	})}
}

// start starts a command with an id.
func (m machine) start(id, command string, options map[string]any) record {
	m.t.Helper()
	call := m.request(id, command, options)
	if call.Answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(call.Answer.Body)
		m.t.Fatalf("%d %s", call.Answer.StatusCode, text)
	}
	return decode[record](m.t, call)
}

func (m machine) request(id, command string, options map[string]any) *agenttest.Call {
	m.t.Helper()
	body := map[string]any{"id": id, "command": command, "output_bytes": minOutputBytes}
	for name, value := range options {
		body[name] = value
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		m.t.Fatal(err)
	}
	return m.Ask("POST", "/commands", string(encoded))
}

func decode[T any](t *testing.T, call *agenttest.Call) (value T) {
	t.Helper()
	if err := json.NewDecoder(call.Answer.Body).Decode(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

type result struct {
	stdout, stderr string
	// positions are those of the position frames.
	positions []int64
	exit      *stream.Exit
}

// output reads the output of a command from a position to the end of the answer.
func (m machine) output(id string, position int64, follow bool) (got result) {
	m.t.Helper()
	call := m.Ask("GET", fmt.Sprintf("/commands/output?id=%s&position=%d&follow=%v", id, position, follow), "")
	for {
		kind, payload, err := call.Next()
		if err == io.EOF {
			return got
		}
		if err != nil {
			m.t.Fatal(err)
		}
		switch kind {
		case frame.Stdout:
			got.stdout += string(payload)
		case frame.Stderr:
			got.stderr += string(payload)
		case frame.Position:
			var at struct{ Position int64 }
			if err := json.Unmarshal(payload, &at); err != nil {
				m.t.Fatal(err)
			}
			got.positions = append(got.positions, at.Position)
		case frame.Exit:
			got.exit = &stream.Exit{}
			if err := json.Unmarshal(payload, got.exit); err != nil {
				m.t.Fatal(err)
			}
		}
	}
}

func TestACommandRunsWithoutAClientAndKeepsItsOutput(t *testing.T) {
	first := newMachine(t)
	marker := filepath.Join(t.TempDir(), "go")
	first.start("a", fmt.Sprintf("echo begun; while ! test -e %s; do sleep 0.01; done; echo end; echo err >&2; exit 3", marker), nil)
	first.MoveHost()

	second := connect(t, first.service)
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got := second.output("a", 0, true)
	if got.stdout != "begun\nend\n" || got.stderr != "err\n" || got.exit == nil || got.exit.ExitCode != 3 {
		t.Fatalf("%+v", got)
	}
	// Which stream was read first is not known: they are two pipes.
	again := second.output("a", 6, false)
	if len(again.stdout+again.stderr) != 8 || again.exit.ExitCode != 3 || again.positions[0] != 6 {
		t.Fatalf("%+v", again)
	}
	records := decode[[]record](t, second.Ask("GET", "/commands", ""))
	if len(records) != 1 || records[0].Exit.ExitCode != 3 || records[0].OutputBytes != 14 {
		t.Fatalf("%+v", records)
	}
}

func TestARepeatedStartRunsNothing(t *testing.T) {
	m := newMachine(t)
	marker := filepath.Join(t.TempDir(), "runs")
	for range 3 {
		m.start("a", "echo run >> "+marker, nil)
	}
	m.output("a", 0, true)
	if content, err := os.ReadFile(marker); err != nil || string(content) != "run\n" {
		t.Fatalf("%q %v", content, err)
	}
}

func TestOutputWithoutFollowEndsWithWhatIsThere(t *testing.T) {
	m := newMachine(t)
	m.start("a", "echo here; sleep 1000", nil)
	agenttest.Eventually(t, "the output is there", func() bool { return m.output("a", 0, false).stdout == "here\n" })
	if got := m.output("a", 0, false); got.exit != nil {
		t.Fatalf("%+v", got)
	}
	m.Ask("POST", "/commands/signal?id=a", `{"signal":"KILL"}`)
	if got := m.output("a", 5, true); got.stdout != "" || got.exit.ExitCode != 137 {
		t.Fatalf("%+v", got)
	}
}

func TestInputArrivesInOrderFromSeveralClients(t *testing.T) {
	m := newMachine(t)
	m.start("a", "cat; echo done", map[string]any{"stdin": "one ", "keep_stdin": true})
	m.Ask("POST", "/commands/stdin?id=a", "two ")
	m.Ask("POST", "/commands/stdin?id=a&end=true", "three ")
	if got := m.output("a", 0, true); got.stdout != "one two three done\n" {
		t.Fatalf("%+v", got)
	}
	m.Ask("POST", "/commands/stdin?id=a", "late").ExpectError(409, "invalid_state", "closed")
}

// lateEnd is input whose end follows that of the command.
type lateEnd struct {
	text  io.Reader
	ended <-chan struct{}
}

func (l lateEnd) Read(into []byte) (int, error) {
	count, err := l.text.Read(into)
	if err == io.EOF {
		<-l.ended
	}
	return count, err
}

func TestTheEndOfInputIsAcceptedWhenTheCommandHasReadItAndEnded(t *testing.T) {
	m := newMachine(t)
	m.start("a", `read line; echo "got $line"`, map[string]any{"keep_stdin": true})
	c, err := m.service.table.find("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.write(context.Background(), lateEnd{text: strings.NewReader("it\n"), ended: c.ended}, true); err != nil {
		t.Error(err)
	}
	if got := m.output("a", 0, true); got.stdout != "got it\n" {
		t.Errorf("%q", got.stdout)
	}
}

func TestInputOfTheStartIsEnded(t *testing.T) {
	m := newMachine(t)
	m.start("a", "cat; echo done", map[string]any{"stdin": "text "})
	if got := m.output("a", 0, true); got.stdout != "text done\n" {
		t.Fatalf("%+v", got)
	}
	m.start("b", "cat; echo done", nil)
	if got := m.output("b", 0, true); got.stdout != "done\n" {
		t.Fatalf("%+v", got)
	}
	m.Ask("POST", "/commands/stdin?id=b", "x").ExpectError(409, "invalid_state", "without standard input")
}

func TestAClientThatLeavesWhileTheCommandDoesNotReadBlocksNoOtherInput(t *testing.T) {
	m := newMachine(t)
	marker := filepath.Join(t.TempDir(), "go")
	m.start("a", fmt.Sprintf("while ! test -e %s; do sleep 0.01; done; cat | tail -c 4", marker), map[string]any{"keep_stdin": true})
	ctx, leave := context.WithCancel(context.Background())
	c, err := m.service.table.find("a")
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() { written <- c.write(ctx, strings.NewReader(strings.Repeat("x", 1<<20)), false) }()
	leave()
	if err := <-written; err == nil {
		t.Fatal("a full pipe took everything")
	}
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m.Ask("POST", "/commands/stdin?id=a&end=true", "last")
	if got := m.output("a", 0, true); got.stdout != "last" {
		t.Fatalf("%+v", got)
	}
}

func TestTheTimeoutKillsTheGroup(t *testing.T) {
	m := newMachine(t)
	m.start("a", "trap '' TERM; echo begun; sleep 1000", map[string]any{"timeout_ms": 300})
	if got := m.output("a", 0, true); got.stdout != "begun\n" || *got.exit != (stream.Exit{ExitCode: 124, TimedOut: true}) {
		t.Fatalf("%+v", got)
	}
}

func TestACommandAtFullSpeedIsBounded(t *testing.T) {
	m := newMachine(t)
	m.start("a", "head -c 64000000 /dev/zero; echo end", nil)
	got := m.output("a", 0, true)
	if !strings.HasSuffix(got.stdout, "end\n") || len(got.positions) == 0 {
		t.Fatalf("%d bytes, positions %v", len(got.stdout), got.positions)
	}
	record := decode[[]record](t, m.Ask("GET", "/commands", ""))[0]
	if kept := record.OutputBytes - record.DroppedBytes; record.OutputBytes != 64_000_004 || kept > minOutputBytes {
		t.Fatalf("%+v", record)
	}
}

func TestWatchReportsEveryEndOnce(t *testing.T) {
	m := newMachine(t)
	m.start("early", "exit 1", nil)
	m.output("early", 0, true)
	lines := bufio.NewScanner(m.Ask("GET", "/commands/watch", "").Answer.Body)
	next := func() (r record) {
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &r) != nil {
			t.Fatal(lines.Err(), lines.Text())
		}
		return r
	}
	if r := next(); r.ID != "early" || r.Exit.ExitCode != 1 {
		t.Fatalf("%+v", r)
	}
	seen := map[string]int{}
	for i := range 20 {
		m.start(strconv.Itoa(i), fmt.Sprintf("exit %d", i), nil)
	}
	for range 20 {
		r := next()
		seen[r.ID]++
		if strconv.Itoa(r.Exit.ExitCode) != r.ID || seen[r.ID] > 1 {
			t.Fatalf("%+v", r)
		}
	}
}

func TestTooManyCommandsAreRefusedAndEndedOnesAreForgotten(t *testing.T) {
	m := newMachine(t)
	for i := range maxRunning {
		m.start(strconv.Itoa(i), "sleep 1000", nil)
	}
	m.request("more", "true", nil).ExpectError(409, "invalid_state", "128 commands")
	for i := range maxRunning {
		m.Ask("POST", "/commands/signal?id="+strconv.Itoa(i), `{"signal":"KILL"}`)
		m.output(strconv.Itoa(i), 0, true)
	}
	for i := range maxKept {
		id := fmt.Sprint("later", i)
		m.start(id, "true", nil)
		m.output(id, 0, true)
	}
	m.Ask("GET", "/commands/output?position=0&id=1", "").ExpectError(409, "invalid_state", "no command")
}

func TestWhatCannotStartIsRefusedAndLeavesNothing(t *testing.T) {
	m := newMachine(t)
	cases := []struct {
		id, command string
		options     map[string]any
		field       string
	}{
		{"", "true", nil, "id"},
		{"a", "", nil, "command"},
		{"a", "true", map[string]any{"cwd": "/nonexistent"}, "cwd"},
		{"a", "true", map[string]any{"user": "nobody-here"}, "user"},
		{"a", "true", map[string]any{"timeout_ms": -1}, "timeout_ms"},
		{"a", "true", map[string]any{"output_bytes": 1}, "output_bytes"},
		{"a", "true", map[string]any{"env": map[string]string{"A=": ""}}, "env"},
	}
	for _, c := range cases {
		m.request(c.id, c.command, c.options).ExpectError(http.StatusBadRequest, "invalid_request", c.field)
	}
	if records := decode[[]record](t, m.Ask("GET", "/commands", "")); len(records) != 0 {
		t.Fatalf("%+v", records)
	}
	m.Ask("GET", "/commands/output?id=a&position=0", "").ExpectError(409, "invalid_state", "no command")
	m.Ask("POST", "/commands/signal?id=a", `{"signal":"TERM"}`).ExpectError(409, "invalid_state", "no command")
}
