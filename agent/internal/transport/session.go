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

// errSessionOver is the error of a session's reads and writes once the session has ended.
var errSessionOver = errors.New("session is over")

// kernelReadBytes is the most that one read of a virtio-serial port returns.
const kernelReadBytes = 4096

// session is the net.Conn of one HTTP/2 session. The port outlives it: closing a session interrupts the operations in
// progress and leaves the port open for the next session.
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

// portReader hides the session's own Read from bufio.
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

// awaitPreface returns when the first byte after the marker has arrived. The agent must write nothing before that:
// until the runner sends its preface, it discards everything that arrives.
func (s *session) awaitPreface(marker []byte) error {
	if err := skipPast(s.input, marker); err != nil {
		return err
	}
	_, err := s.input.Peek(1)
	return err
}

// skipPast reads up to and including the marker.
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

// enter counts an operation on the port. It returns false if the session is over.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.inFlight.Add(1)
	return true
}

// end interrupts the port under the lock, so that after its return nothing interrupts the next session. It cancels the
// requests itself, because the HTTP/2 server notices the end later: a waiting request must not continue in a copy of
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

// Close ends the session. Operations in progress fail.
func (s *session) Close() error {
	s.end()
	return nil
}

// quiesce ends the session and returns when none of its operations uses the port any more. Only then may deadlines be
// cleared: a late reader would swallow bytes of the next session.
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

// Deadlines are reserved for the session's end. The HTTP/2 server sets none with the configuration of this package.
func (s *session) SetDeadline(time.Time) error      { return nil }
func (s *session) SetReadDeadline(time.Time) error  { return nil }
func (s *session) SetWriteDeadline(time.Time) error { return nil }

type sessionKey struct{}

// endDetection bounds how much later than its streams a session may end if the HTTP/2 server ends both, for a breach of
// the protocol: it cancels the streams first and closes the connection right after. If a port ends the session, the end
// is known before any request is cancelled.
const endDetection = 20 * time.Millisecond

// HostMoved reports, for a request whose context is done, whether the whole session ended (restart, fork, restore of
// the host side) and not only its client left.
func HostMoved(ctx context.Context) bool {
	s, ok := ctx.Value(sessionKey{}).(*session)
	return ok && s.endsWithin(endDetection)
}

// SessionEnd returns a channel that is closed when the session of a request ends. Without a session it is nil.
func SessionEnd(ctx context.Context) <-chan struct{} {
	if s, ok := ctx.Value(sessionKey{}).(*session); ok {
		return s.ended
	}
	return nil
}

// endsWithin decides by the state, not by the event that woke it: in a machine that was just restored, the time can be
// up before the wait begins.
func (s *session) endsWithin(limit time.Duration) bool {
	select {
	case <-s.ended:
	case <-time.After(limit):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
