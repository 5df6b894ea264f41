// Package agenttest drives the agent's handlers as the runner does: HTTP/2 over one connection. Only tests use it.
package agenttest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"

	"coppice/agent/internal/api"
	"coppice/agent/internal/frame"
	"coppice/agent/internal/reap"
)

// Limit bounds everything that a test waits for.
const Limit = 30 * time.Second

// RunReaper makes the test process adopt orphans as PID 1 does. TestMain calls it once.
func RunReaper() *reap.Reaper {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	reaper := reap.New()
	go reaper.Run()
	return reaper
}

// OpenNull opens /dev/null until the end of the test.
func OpenNull(t *testing.T) *os.File {
	t.Helper()
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = null.Close() })
	return null
}

// Machine is a router behind HTTP/2 on a pipe.
type Machine struct {
	t      *testing.T
	client *http2.ClientConn
	server net.Conn
	moved  atomic.Bool
}

// NewMachine serves the router that build returns. build receives the test's HostMoved.
func NewMachine(t *testing.T, build func(hostMoved func(context.Context) bool) api.Router) *Machine {
	t.Helper()
	near, far := net.Pipe()
	m := &Machine{t: t, server: far}
	routes := build(func(context.Context) bool { return m.moved.Load() })
	go (&http2.Server{}).ServeConn(far, &http2.ServeConnOpts{Handler: routes})
	client, err := (&http2.Transport{AllowHTTP: true, DisableCompression: true}).NewClientConn(near)
	if err != nil {
		t.Fatal(err)
	}
	m.client = client
	t.Cleanup(func() { _ = near.Close() })
	return m
}

// MoveHost ends the session as a restart of the host side does.
func (m *Machine) MoveHost() {
	m.t.Helper()
	m.moved.Store(true)
	if err := m.server.Close(); err != nil {
		m.t.Fatal(err)
	}
}

// Call is a request in progress.
type Call struct {
	t *testing.T
	// Input is the request's body.
	Input  *io.PipeWriter
	Answer *http.Response
	Frames *frame.Reader
	leave  context.CancelFunc
}

// Post begins a request whose body the test writes. It writes first at once.
func (m *Machine) Post(path string, first []byte) *Call {
	m.t.Helper()
	body, input := io.Pipe()
	ctx, leave := context.WithTimeout(context.Background(), Limit)
	m.t.Cleanup(leave)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://guest"+path, body)
	if err != nil {
		m.t.Fatal(err)
	}
	// The transport does not look at the context while it waits for more of the body.
	context.AfterFunc(ctx, func() { _ = input.CloseWithError(ctx.Err()) })
	if len(first) > 0 {
		go func() { _, _ = input.Write(first) }()
	}
	answer, err := m.client.RoundTrip(request)
	if err != nil {
		m.t.Fatal(err)
	}
	return &Call{t: m.t, Input: input, Answer: answer, Frames: frame.NewReader(answer.Body), leave: leave}
}

// Ask sends a request with a whole body, which may be empty.
func (m *Machine) Ask(method, path, body string) *Call {
	m.t.Helper()
	ctx, leave := context.WithTimeout(context.Background(), Limit)
	m.t.Cleanup(leave)
	request, err := http.NewRequestWithContext(ctx, method, "http://guest"+path, strings.NewReader(body))
	if err != nil {
		m.t.Fatal(err)
	}
	answer, err := m.client.RoundTrip(request)
	if err != nil {
		m.t.Fatal(err)
	}
	return &Call{t: m.t, Answer: answer, Frames: frame.NewReader(answer.Body), leave: leave}
}

// Start begins a request with a head frame.
func (m *Machine) Start(path string, head map[string]any) *Call {
	m.t.Helper()
	encoded, err := json.Marshal(head)
	if err != nil {
		m.t.Fatal(err)
	}
	return m.Post(path, frame.Encode(frame.Head, encoded))
}

// Send writes a frame. It returns when the transport has accepted the frame.
func (c *Call) Send(kind byte, payload string) {
	c.t.Helper()
	if _, err := c.Input.Write(frame.Encode(kind, []byte(payload))); err != nil {
		c.t.Fatal(err)
	}
}

// Leave resets the stream.
func (c *Call) Leave() {
	c.leave()
	_ = c.Answer.Body.Close()
}

// Next returns the next frame of the answer, or io.EOF.
func (c *Call) Next() (kind byte, payload []byte, err error) {
	kind, _, err = c.Frames.Next()
	if err != nil {
		return 0, nil, err
	}
	payload, err = c.Frames.ReadPayload()
	return kind, payload, err
}

// MustNext returns the next frame. It fails the test at the end of the answer or if the answer breaks.
func (c *Call) MustNext() (kind byte, payload []byte) {
	c.t.Helper()
	if c.Answer.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(c.Answer.Body)
		c.t.Fatalf("status %d: %s", c.Answer.StatusCode, body)
	}
	kind, payload, err := c.Next()
	if err != nil {
		c.t.Fatal(err)
	}
	return kind, payload
}

// ReadUntil reads frames until their joined payloads contain a text.
func (c *Call) ReadUntil(text string) string {
	c.t.Helper()
	var seen strings.Builder
	for !strings.Contains(seen.String(), text) {
		_, payload, err := c.Next()
		if err != nil {
			c.t.Fatalf("%v after %q", err, seen.String())
		}
		seen.Write(payload)
	}
	return seen.String()
}

// ExpectEnd fails the test unless the answer ends cleanly.
func (c *Call) ExpectEnd() {
	c.t.Helper()
	if kind, payload, err := c.Next(); !errors.Is(err, io.EOF) {
		c.t.Fatalf("after the last frame: %d %q %v", kind, payload, err)
	}
}

// ExpectError checks that the request was refused.
func (c *Call) ExpectError(status int, code, mention string) {
	c.t.Helper()
	var body struct{ Code, Message string }
	if err := json.NewDecoder(c.Answer.Body).Decode(&body); err != nil {
		c.t.Fatal(err)
	}
	if c.Answer.StatusCode != status || body.Code != code || !strings.Contains(body.Message, mention) {
		c.t.Errorf("%d %+v, want %d %s about %s", c.Answer.StatusCode, body, status, code, mention)
	}
}

// Eventually waits until a condition holds.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(Limit); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still false after %v: %s", Limit, what)
		}
	}
}
