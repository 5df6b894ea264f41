package execution

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"

	"coppice/agent/internal/api"
	"coppice/agent/internal/frame"
	"coppice/agent/internal/guest"
	"coppice/agent/internal/reap"
)

const testLimit = 30 * time.Second

var reaper = reap.New()

func TestMain(m *testing.M) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	go reaper.Run()
	os.Exit(m.Run())
}

// machine is a Service behind HTTP/2 on a pipe.
type machine struct {
	t      *testing.T
	client *http2.ClientConn
	server net.Conn
	moved  atomic.Bool
	state  *guest.State
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = null.Close() })
	m := &machine{t: t, state: &guest.State{}}
	m.state.Set(guest.Settings{Env: map[string]string{"PATH": "/usr/bin:/bin", "IMAGE": "yes"}, Workdir: "/"})
	service := New(Options{
		Reaper:    reaper,
		Guest:     m.state,
		Null:      null,
		Root:      t.TempDir(),
		HostMoved: func(context.Context) bool { return m.moved.Load() },
	})
	near, far := net.Pipe()
	m.server = far
	go (&http2.Server{}).ServeConn(far, &http2.ServeConnOpts{Handler: api.Router{"POST /exec": service.Exec}})
	if m.client, err = (&http2.Transport{AllowHTTP: true}).NewClientConn(near); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = near.Close() })
	return m
}

// call is an exec under way.
type call struct {
	t      *testing.T
	input  *io.PipeWriter
	answer *http.Response
	frames *frame.Reader
}

func (m *machine) start(h map[string]any) *call {
	m.t.Helper()
	encoded, err := json.Marshal(h)
	if err != nil {
		m.t.Fatal(err)
	}
	body, input := io.Pipe()
	ctx, leave := context.WithTimeout(context.Background(), testLimit)
	m.t.Cleanup(leave)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://guest/exec", body)
	if err != nil {
		m.t.Fatal(err)
	}
	go func() { _, _ = input.Write(frame.Encode(frame.Head, encoded)) }()
	answer, err := m.client.RoundTrip(request)
	if err != nil {
		m.t.Fatal(err)
	}
	return &call{t: m.t, input: input, answer: answer, frames: frame.NewReader(answer.Body)}
}

func (c *call) send(kind byte, payload string) {
	c.t.Helper()
	if _, err := c.input.Write(frame.Encode(kind, []byte(payload))); err != nil {
		c.t.Fatal(err)
	}
}

// result is what a finished exec gave.
type result struct {
	stdout, stderr string
	exit           exitFrame
}

func (c *call) finish() result {
	c.t.Helper()
	if c.answer.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(c.answer.Body)
		c.t.Fatalf("status %d: %s", c.answer.StatusCode, body)
	}
	var r result
	for {
		kind, _, err := c.frames.Next()
		if errors.Is(err, io.EOF) {
			return r
		}
		payload, readErr := c.frames.ReadPayload()
		if err := errors.Join(err, readErr); err != nil {
			c.t.Fatal(err)
		}
		switch kind {
		case frame.Stdout:
			r.stdout += string(payload)
		case frame.Stderr:
			r.stderr += string(payload)
		case frame.Exit:
			if err := json.Unmarshal(payload, &r.exit); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}

func (c *call) readUntil(text string) {
	c.t.Helper()
	var seen bytes.Buffer
	for !strings.Contains(seen.String(), text) {
		_, _, err := c.frames.Next()
		payload, readErr := c.frames.ReadPayload()
		if err := errors.Join(err, readErr); err != nil {
			c.t.Fatalf("%v after %q", err, seen.String())
		}
		seen.Write(payload)
	}
}

func (m *machine) run(h map[string]any) result {
	m.t.Helper()
	return m.start(h).finish()
}

func TestExecReturnsBothStreamsAndTheExitCode(t *testing.T) {
	got := newMachine(t).run(map[string]any{"command": "echo out; echo err >&2; exit 3"})
	if got != (result{"out\n", "err\n", exitFrame{ExitCode: 3}}) {
		t.Fatalf("%+v", got)
	}
}

func TestExecLayersTheEnvironment(t *testing.T) {
	got := newMachine(t).run(map[string]any{
		"command": "echo $IMAGE $OWN $USER $HOME; pwd", "cwd": "/usr", "env": map[string]string{"OWN": "1", "HOME": "/h"},
	})
	if got.stdout != "yes 1 root /h\n/usr\n" {
		t.Fatalf("%+v", got)
	}
}

func TestExecRunsAsTheUserThatIsAskedFor(t *testing.T) {
	got := newMachine(t).run(map[string]any{"command": "id -u; id -g; id -G", "user": "1234:4321"})
	if got.stdout != "1234\n4321\n4321\n" {
		t.Fatalf("%+v", got)
	}
}

func TestStandardInputIsFedAndEnded(t *testing.T) {
	c := newMachine(t).start(map[string]any{"command": "cat; echo end", "stdin": true})
	c.send(frame.Stdin, "hello ")
	c.readUntil("hello ")
	c.send(frame.Stdin, "again ")
	c.send(frame.StdinEnd, "")
	if got := c.finish(); got.stdout != "again end\n" {
		t.Fatalf("%+v", got)
	}
}

func TestWithoutStdinInputIsEmpty(t *testing.T) {
	if got := newMachine(t).run(map[string]any{"command": "cat; echo end"}); got.stdout != "end\n" {
		t.Fatalf("%+v", got)
	}
}

func TestInputThatTheProcessDoesNotReadDoesNotDelayItsEnd(t *testing.T) {
	c := newMachine(t).start(map[string]any{"command": "sleep 0.2; exit 5", "stdin": true})
	go func() { _, _ = c.input.Write(frame.Encode(frame.Stdin, make([]byte, frame.MaxPayloadBytes))) }()
	if got := c.finish(); got.exit.ExitCode != 5 {
		t.Fatalf("%+v", got)
	}
}

func TestASignalFrameReachesTheGroup(t *testing.T) {
	c := newMachine(t).start(map[string]any{"command": "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done"})
	c.readUntil("ready")
	c.send(frame.Signal, `{"signal":"TERM"}`)
	if got := c.finish(); got.exit != (exitFrame{ExitCode: 7}) {
		t.Fatalf("%+v", got)
	}
}

func TestDeathBySignalIsReportedAsSuch(t *testing.T) {
	got := newMachine(t).run(map[string]any{"command": "kill -9 $$"})
	if got.exit != (exitFrame{ExitCode: 137, Signal: 9}) {
		t.Fatalf("%+v", got)
	}
}

func TestTimeoutKillsAGroupThatIgnoresSIGTERM(t *testing.T) {
	got := newMachine(t).run(map[string]any{"command": "trap '' TERM; sleep 1000 & echo begun; sleep 1000", "timeout_ms": 300})
	if got.stdout != "begun\n" || got.exit != (exitFrame{ExitCode: 124, TimedOut: true}) {
		t.Fatalf("%+v", got)
	}
}

func TestABackgroundChildNeitherDelaysTheExitNorIsKilled(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "done")
	command := fmt.Sprintf("(head -c 1000000 /dev/zero; sleep 0.3; head -c 1000000 /dev/zero; echo > %s) & echo hi", marker)
	began := time.Now()
	if got := newMachine(t).run(map[string]any{"command": command}); !strings.Contains(got.stdout, "hi\n") {
		t.Fatalf("%+v", got.exit)
	}
	if waited := time.Since(began); waited > testLimit/2 {
		t.Fatal("the background child delayed the exit by ", waited)
	}
	eventually(t, "the background child has written all and ended", func() bool {
		_, err := os.Stat(marker)
		return err == nil
	})
}

func TestABackgroundChildThatNeverStopsWritingDoesNotDelayTheExit(t *testing.T) {
	m := newMachine(t)
	got := m.run(map[string]any{"command": "yes >&2 & echo $!"})
	if got.exit.ExitCode != 0 {
		t.Fatalf("%+v", got.exit)
	}
	m.run(map[string]any{"command": "kill -9 " + got.stdout})
}

func TestALargeOutputArrivesWhole(t *testing.T) {
	const size = 8 << 20
	got := newMachine(t).run(map[string]any{"command": fmt.Sprintf("head -c %d /dev/zero", size)})
	if len(got.stdout) != size {
		t.Fatal(len(got.stdout))
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(testLimit); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so within %v: %s", testLimit, what)
		}
	}
}
