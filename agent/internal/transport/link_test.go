package transport

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"
)

const testLimit = 20 * time.Second

// host is the runner's end of both ports. A socket pair stands for the chardev: it stays open on the guest's side
// while "connections" of the host come and go, as a virtio port does.
type host struct {
	t             *testing.T
	control, data net.Conn
	generation    uint64
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

// open does the handshake: what arrives on the data port until the answer is of an older session.
func (h *host) open() {
	h.t.Helper()
	if err := h.tryOpen(testLimit); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) tryOpen(limit time.Duration) error {
	h.generation++
	framed, err := encodeControl(openMessage{Type: "open", Generation: h.generation})
	if err != nil {
		return err
	}
	if _, err := h.control.Write(framed); err != nil {
		return err
	}
	stop := h.discardData()
	defer stop()
	if err := h.control.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	var length [4]byte
	if _, err := io.ReadFull(h.control, length[:]); err != nil {
		return fmt.Errorf("no answer to open: %w", err)
	}
	body := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(h.control, body); err != nil {
		return err
	}
	var answer waitingMessage
	if err := json.Unmarshal(body, &answer); err != nil {
		return err
	}
	if answer != (waitingMessage{"waiting", h.generation, ProtocolVersion}) {
		return fmt.Errorf("answer %s", body)
	}
	return nil
}

func (h *host) discardData() (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, h.data)
	}()
	return func() {
		if err := h.data.SetReadDeadline(time.Unix(1, 0)); err != nil {
			h.t.Error(err)
		}
		<-done
		if err := h.data.SetReadDeadline(time.Time{}); err != nil {
			h.t.Error(err)
		}
	}
}

// unclosable lets a client "leave" without the guest seeing an end.
type unclosable struct{ net.Conn }

func (unclosable) Close() error { return nil }

func (h *host) client() *http2.ClientConn {
	h.t.Helper()
	client, err := (&http2.Transport{AllowHTTP: true}).NewClientConn(unclosable{h.data})
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
		// The header of a frame of a megabyte, and ten bytes of it.
		half := append([]byte{0x10, 0, 0, 0, 0, 0, 0, 0, 1}, make([]byte, 10)...)
		if _, err := h.data.Write(half); err != nil {
			t.Fatal(err)
		}
		client.SetDoNotReuse()
		h.open()
		h.open()
	}
}

func TestGarbageOnTheControlPortIsDroppedUntilItIsSilent(t *testing.T) {
	h := newHost(t, hello)
	h.open()
	if _, err := h.control.Write([]byte(strings.Repeat("garbage", 100))); err != nil {
		t.Fatal(err)
	}
	// An open that comes before the line has been silent is dropped as well.
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
	go func() { _, _ = client.RoundTrip(newRequest(t, context.Background())) }()
	<-started
	h.open()
	select {
	case answer := <-moved:
		if !answer {
			t.Fatal("the end of the session was taken for a client that left")
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
		if response, err := client.RoundTrip(newRequest(t, ctx)); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
		}
	}()
	<-started
	leave()
	select {
	case answer := <-moved:
		if answer {
			t.Fatal("a reset of the stream was taken for the end of the session")
		}
	case <-time.After(testLimit):
		t.Fatal("the handler's context was not cancelled")
	}
}

func newRequest(t *testing.T, ctx context.Context) *http.Request {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://guest/", nil)
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
	go func() { _, _ = client.RoundTrip(newRequest(t, context.Background())) }()
	request := <-started
	h.open()
	// At once: in a copy of the machine, nothing that the original's client asked for may begin.
	if request.Err() == nil || !HostMoved(request) {
		t.Fatal("the request goes on")
	}
}
