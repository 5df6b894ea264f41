package transport

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"
)

const testLimit = 20 * time.Second

// host is the runner's end of both ports. A socket pair replaces the chardev: like a virtio port, it stays open on the
// guest's side while "connections" of the host come and go.
type host struct {
	t             *testing.T
	control, data net.Conn
	generation    uint64
	line          *line
}

func newHost(t *testing.T, handler http.Handler) *host {
	t.Helper()
	control, guestControl := socketPair(t)
	data, guestData := socketPair(t)
	go func() { _ = NewLink(guestControl, guestData, handler).Serve() }()
	return &host{t: t, control: control, data: data}
}

func socketPair(t *testing.T) (net.Conn, *Port) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(ends[0]), "host")
	conn, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	port, err := NewPort(os.NewFile(uintptr(ends[1]), "guest"))
	if err != nil {
		t.Fatal(err)
	}
	return conn, port
}

// open does the handshake. Data that arrives on the data port before the marker is of an older session.
func (h *host) open() {
	h.t.Helper()
	if err := h.tryOpen(testLimit); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) tryOpen(limit time.Duration) error {
	if h.line != nil {
		if err := h.line.leave(); err != nil {
			return err
		}
	}
	h.generation++
	marker := h.marker()
	if err := h.sendControl(openMessage{"open", h.generation, marker}); err != nil {
		return err
	}
	marked := make(chan error, 1)
	go func() { marked <- skipPast(bufio.NewReader(h.data), []byte(marker)) }()
	answer, err := h.readAnswer(limit)
	if err != nil {
		if err := h.data.SetReadDeadline(time.Unix(1, 0)); err != nil {
			return err
		}
		<-marked
		return errors.Join(err, h.data.SetReadDeadline(time.Time{}))
	}
	if answer != (waitingMessage{"waiting", h.generation, ProtocolVersion, marker}) {
		return fmt.Errorf("answer %v", answer)
	}
	return <-marked
}

func (h *host) marker() string { return fmt.Sprintf("%032x", h.generation) }

func (h *host) sendControl(message any) error {
	framed, err := encodeControl(message)
	if err != nil {
		return err
	}
	_, err = h.control.Write(framed)
	return err
}

func (h *host) readAnswer(limit time.Duration) (answer waitingMessage, err error) {
	if err := h.control.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return answer, err
	}
	var length [4]byte
	if _, err := io.ReadFull(h.control, length[:]); err != nil {
		return answer, fmt.Errorf("no answer to open: %w", err)
	}
	body := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(h.control, body); err != nil {
		return answer, err
	}
	return answer, json.Unmarshal(body, &answer)
}

// line lets a client "leave" without the guest noticing an end.
type line struct {
	net.Conn
	reading sync.Mutex
	left    bool
}

func (l *line) Read(buffer []byte) (int, error) {
	l.reading.Lock()
	defer l.reading.Unlock()
	if l.left {
		return 0, io.EOF
	}
	return l.Conn.Read(buffer)
}

func (l *line) Close() error { return nil }

func (l *line) leave() error {
	if err := l.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return err
	}
	l.reading.Lock()
	defer l.reading.Unlock()
	l.left = true
	return l.SetReadDeadline(time.Time{})
}

func (h *host) client() *http2.ClientConn {
	h.t.Helper()
	if _, err := io.WriteString(h.data, h.marker()); err != nil {
		h.t.Fatal(err)
	}
	h.line = &line{Conn: h.data}
	client, err := (&http2.Transport{AllowHTTP: true}).NewClientConn(h.line)
	if err != nil {
		h.t.Fatal(err)
	}
	return client
}

func get(t *testing.T, client *http2.ClientConn, path string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://guest"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })

func TestAnOpenedSessionServesRequests(t *testing.T) {
	h := newHost(t, hello)
	h.open()
	if body := get(t, h.client(), "/"); body != "hello" {
		t.Fatal(body)
	}
}

func TestASessionCanBeOpenedAgainAfterItBrokeInsideOfAFrame(t *testing.T) {
	h := newHost(t, hello)
	for round := range 5 {
		h.open()
		client := h.client()
		if body := get(t, client, "/"); body != "hello" {
			t.Fatal(round, body)
		}
		// This is the header of a frame of a megabyte, and ten bytes of it.
		half := append([]byte{0x10, 0, 0, 0, 0, 0, 0, 0, 1}, make([]byte, 10)...)
		if _, err := h.data.Write(half); err != nil {
			t.Fatal(err)
		}
		client.SetDoNotReuse()
		h.open()
		h.open()
	}
}

func TestWhatAnOlderSessionSentMayArriveAtAnyTimeBeforeTheMarker(t *testing.T) {
	h := newHost(t, hello)
	h.open()
	rest := bytes.Repeat([]byte(strings.Repeat("0", markerBytes-1)+"x"), 10_000)
	for at := 0; at < len(rest); at += 100_000 {
		if _, err := h.data.Write(rest[at:min(at+100_000, len(rest))]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if body := get(t, h.client(), "/"); body != "hello" {
		t.Fatal(body)
	}
}

func TestWhatAnOlderSessionWasSendingEndsWithTheMarker(t *testing.T) {
	interrupted := make(chan struct{})
	h := newHost(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			hello(w, r)
			return
		}
		defer close(interrupted)
		block := make([]byte, 64<<10)
		for _, err := w.Write(block); err == nil; {
			_, err = w.Write(block)
		}
	}))
	h.open()
	if _, err := h.client().RoundTrip(newRequest(t, context.Background(), "/flood")); err != nil {
		t.Fatal(err)
	}
	if err := h.line.leave(); err != nil {
		t.Fatal(err)
	}
	// The port fills because the host does not read it, and the flood waits in the middle of a frame.
	time.Sleep(100 * time.Millisecond)
	h.open()
	<-interrupted
	if body := get(t, h.client(), "/"); body != "hello" {
		t.Fatal(body)
	}
}

func TestGarbageOnTheControlPortIsDroppedUntilItIsSilent(t *testing.T) {
	h := newHost(t, hello)
	h.open()
	if _, err := h.control.Write([]byte(strings.Repeat("garbage", 100))); err != nil {
		t.Fatal(err)
	}
	// An open that comes before the line has been silent is dropped too.
	end := time.Now().Add(testLimit)
	for err := h.tryOpen(3 * controlSilence); err != nil; err = h.tryOpen(3 * controlSilence) {
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if body := get(t, h.client(), "/"); body != "hello" {
		t.Fatal(body)
	}
}

func TestAHandlerLearnsThatTheHostMoved(t *testing.T) {
	started, moved := make(chan struct{}), make(chan bool, 1)
	h := newHost(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		close(started)
		<-r.Context().Done()
		moved <- HostMoved(r.Context())
	}))
	h.open()
	client := h.client()
	go func() { _, _ = client.RoundTrip(newRequest(t, context.Background(), "/")) }()
	<-started
	h.open()
	select {
	case answer := <-moved:
		if !answer {
			t.Fatal("the end of the session was mistaken for a client that left")
		}
	case <-time.After(testLimit):
		t.Fatal("the handler's context was not cancelled")
	}
}

func TestAHandlerLearnsThatItsClientLeft(t *testing.T) {
	started, moved := make(chan struct{}), make(chan bool, 1)
	h := newHost(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		close(started)
		<-r.Context().Done()
		moved <- HostMoved(r.Context())
	}))
	h.open()
	client := h.client()
	ctx, leave := context.WithCancel(context.Background())
	go func() {
		if response, err := client.RoundTrip(newRequest(t, ctx, "/")); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
		}
	}()
	<-started
	leave()
	select {
	case answer := <-moved:
		if answer {
			t.Fatal("a reset of the stream was mistaken for the end of the session")
		}
	case <-time.After(testLimit):
		t.Fatal("the handler's context was not cancelled")
	}
}

func TestTheEndOfASessionIsKnownHoweverLateItIsAskedFor(t *testing.T) {
	_, port := socketPair(t)
	s := newSession(port)
	if s.endsWithin(0) {
		t.Fatal("a session that continues was mistaken for one that ended")
	}
	s.end()
	for range 1000 {
		if !s.endsWithin(0) {
			t.Fatal("the end of the session was mistaken for a client that left")
		}
	}
}

func newRequest(t *testing.T, ctx context.Context, path string) *http.Request {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://guest"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

func TestTheRequestsOfAnOlderSessionAreOverBeforeTheNextIsAnnounced(t *testing.T) {
	started := make(chan context.Context, 1)
	release := make(chan struct{})
	h := newHost(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		started <- r.Context()
		<-release
	}))
	defer close(release)
	h.open()
	client := h.client()
	go func() { _, _ = client.RoundTrip(newRequest(t, context.Background(), "/")) }()
	request := <-started
	h.open()
	// The request is over at once: in a copy of the machine, nothing that the original's client requested may begin.
	if request.Err() == nil || !HostMoved(request) {
		t.Fatal("the request is still running")
	}
}

func TestTheEndOfASessionIsAnnouncedToItsRequests(t *testing.T) {
	_, port := socketPair(t)
	s := newSession(port)
	end := SessionEnd(s.requests)
	select {
	case <-end:
		t.Fatal("the session has ended before its end")
	default:
	}
	s.end()
	select {
	case <-end:
	case <-time.After(testLimit):
		t.Fatal("the end is not announced")
	}
	if SessionEnd(context.Background()) != nil {
		t.Fatal("there is an end without a session")
	}
}
