package transport

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// errSessionOver is what a session's reads and writes return once it has been replaced.
var errSessionOver = errors.New("session is over")

// kernelReadBytes is the most that one read of a virtio-serial port returns.
const kernelReadBytes = 4096

// session is the net.Conn of one HTTP/2 session. The port below lives longer than it: closing a session interrupts
// what is under way and leaves the port open for the next.
type session struct {
	port  *Port
	input *bufio.Reader

	mu       sync.Mutex
	closed   bool
	inFlight sync.WaitGroup
	ended    chan struct{}
	host     presence
	// requests is the parent of every request's context.
	requests       context.Context
	cancelRequests context.CancelFunc
}

func newSession(port *Port) *session {
	s := &session{port: port, ended: make(chan struct{})}
	s.requests, s.cancelRequests = context.WithCancel(context.WithValue(context.Background(), sessionKey{}, s))
	s.input = bufio.NewReaderSize(portReader{s}, kernelReadBytes)
	return s
}

// portReader keeps bufio from seeing the session's own Read.
type portReader struct{ session *session }

func (r portReader) Read(buffer []byte) (int, error) {
	s := r.session
	if !s.enter() {
		return 0, errSessionOver
	}
	defer s.inFlight.Done()
	n, err := s.port.read(buffer, &s.host)
	if err != nil {
		s.end()
		return n, err
	}
	return n, nil
}

// awaitPreface returns when the first byte after the marker has come. Nothing may be written before that: until the
// runner sends its preface it throws away whatever arrives.
func (s *session) awaitPreface(marker []byte) error {
	if err := skipPast(s.input, marker); err != nil {
		return err
	}
	_, err := s.input.Peek(1)
	return err
}

// skipPast reads until the marker has come by.
func skipPast(input io.ByteReader, marker []byte) error {
	latest := make([]byte, len(marker))
	for !bytes.Equal(latest, marker) {
		next, err := input.ReadByte()
		if err != nil {
			return err
		}
		copy(latest, latest[1:])
		latest[len(latest)-1] = next
	}
	return nil
}

func (s *session) Read(buffer []byte) (int, error) { return s.input.Read(buffer) }

func (s *session) Write(data []byte) (int, error) {
	if !s.enter() {
		return 0, errSessionOver
	}
	defer s.inFlight.Done()
	n, err := s.port.file.Write(data)
	if err != nil {
		s.end()
	}
	return n, err
}

// enter counts an operation on the port, unless the session is over.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.inFlight.Add(1)
	return true
}

// end interrupts under the lock: once it has returned, nobody can interrupt the session that comes next. It cancels the
// requests itself, not by way of the HTTP/2 server, which notices later: a request that waits must not go on in a copy of
// the machine.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.port.interrupt()
	close(s.ended)
	s.cancelRequests()
}

// Close ends the session; operations under way fail.
func (s *session) Close() error {
	s.end()
	return nil
}

// quiesce ends the session and returns when no operation of it touches the port any more. Only then may deadlines
// be cleared: a late reader would swallow bytes of the next session.
func (s *session) quiesce() {
	s.end()
	s.inFlight.Wait()
	s.port.clearDeadline()
}

type portAddress struct{}

func (portAddress) Network() string { return "virtio" }
func (portAddress) String() string  { return "virtio" }

func (s *session) LocalAddr() net.Addr  { return portAddress{} }
func (s *session) RemoteAddr() net.Addr { return portAddress{} }

// Deadlines belong to the session's end; the HTTP/2 server sets none with the configuration of this package.
func (s *session) SetDeadline(time.Time) error      { return nil }
func (s *session) SetReadDeadline(time.Time) error  { return nil }
func (s *session) SetWriteDeadline(time.Time) error { return nil }

type sessionKey struct{}

// endDetection is how long the end of a session may show later than that of its streams when the HTTP/2 server ends both,
// for a breach of the protocol: it cancels streams first and closes the connection right after. An end by either port is
// known before any request is cancelled.
const endDetection = 20 * time.Millisecond

// HostMoved tells, for a request whose context is done, whether the whole session ended (restart, fork, restore of
// the host side) rather than its client having left.
func HostMoved(ctx context.Context) bool {
	s, ok := ctx.Value(sessionKey{}).(*session)
	return ok && s.endsWithin(endDetection)
}

// endsWithin goes by the state, not by what woke it: in a machine that has just been brought back, the time can be up
// before it is waited for.
func (s *session) endsWithin(limit time.Duration) bool {
	select {
	case <-s.ended:
	case <-time.After(limit):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
