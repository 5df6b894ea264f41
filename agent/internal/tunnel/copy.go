package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Buffers are held only while they contain something: a thousand idle tunnels must fit into a guest of 128 MiB.
const (
	copyBytes = 64 << 10
	// idleBytes is the size of the buffer in which an idle tunnel waits for the request's bytes. It cannot wait for
	// them without a buffer.
	idleBytes = 1 << 10
)

type copyBuffer [copyBytes]byte

var copyBuffers = sync.Pool{New: func() any { return new(copyBuffer) }}

// tunnel is an open tunnel. up and down run at the same time; down runs in the request's handler.
type tunnel struct {
	conn *net.TCPConn
	raw  syscall.RawConn
	body io.ReadCloser

	writer http.ResponseWriter
	flush  func() error

	// upEnded is closed when up has returned. Then upErr is valid.
	upEnded chan struct{}
	upErr   error
}

func newTunnel(conn *net.TCPConn, w http.ResponseWriter, r *http.Request) (*tunnel, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &tunnel{
		conn: conn, raw: raw, body: r.Body,
		writer: w, flush: http.NewResponseController(w).Flush,
		upEnded: make(chan struct{}),
	}, nil
}

// run copies until the service's stream has ended or either side is gone. It returns nil if the answer is complete.
func (t *tunnel) run(ctx context.Context) error {
	stopWatching := context.AfterFunc(ctx, t.cut)
	defer stopWatching()
	go func() {
		defer close(t.upEnded)
		t.upErr = t.up()
	}()
	err := t.begin()
	if err == nil {
		err = t.down()
	}
	bodyEnded := false
	select {
	case <-t.upEnded:
		bodyEnded = t.upErr == nil
	default:
	}
	if err != nil || !bodyEnded {
		t.cut()
	}
	return errors.Join(err, t.finish())
}

// begin sends the status line.
func (t *tunnel) begin() error {
	t.writer.Header().Set("content-type", "application/octet-stream")
	t.writer.WriteHeader(http.StatusOK)
	return t.flush()
}

// cut drops the connection with RST: a FIN would make the service think that it has received everything.
func (t *tunnel) cut() {
	_ = t.conn.SetLinger(0)
	_ = t.conn.Close()
}

// finish frees everything and returns the connection's failure that up has seen. The kernel reports a reset only once:
// if the write got it, the read saw a normal end.
func (t *tunnel) finish() error {
	_ = t.body.Close()
	_ = t.conn.Close()
	<-t.upEnded
	if errors.Is(t.upErr, unix.ECONNRESET) || errors.Is(t.upErr, unix.ETIMEDOUT) {
		return t.upErr
	}
	return nil
}

// up copies the request's body to the service. It returns nil if all of it has been passed on.
func (t *tunnel) up() error {
	small := make([]byte, idleBytes)
	buffer := small
	var large *copyBuffer
	release := func() {
		if large != nil {
			copyBuffers.Put(large)
			large, buffer = nil, small
		}
	}
	defer release()
	for {
		n, readErr := t.body.Read(buffer)
		if n > 0 {
			// EPIPE means that the service has already ended and accepts nothing more; down finds the end.
			if _, err := t.conn.Write(buffer[:n]); err != nil {
				return fmt.Errorf("to the service: %w", err)
			}
		}
		if errors.Is(readErr, io.EOF) {
			return t.conn.CloseWrite()
		}
		if readErr != nil {
			t.cut()
			return fmt.Errorf("request body: %w", readErr)
		}
		switch {
		case n < len(buffer):
			release()
		case large == nil:
			large, _ = copyBuffers.Get().(*copyBuffer)
			buffer = large[:]
		}
	}
}

// down copies the service's stream to the answer. It returns nil if the service has ended the stream.
func (t *tunnel) down() error {
	for {
		buffer, n, err := t.read()
		if err != nil {
			return fmt.Errorf("from the service: %w", err)
		}
		if n == 0 {
			return nil
		}
		_, err = t.writer.Write(buffer[:n])
		if err == nil {
			err = t.flush()
		}
		copyBuffers.Put(buffer)
		if err != nil {
			return fmt.Errorf("to the client: %w", err)
		}
	}
}

// read waits for bytes before it takes a buffer. If n > 0, the caller owns the buffer. At the end n is 0.
func (t *tunnel) read() (buffer *copyBuffer, n int, err error) {
	waitErr := t.raw.Read(func(fd uintptr) bool {
		buffer, n, err = readOnce(int(fd))
		return !errors.Is(err, unix.EAGAIN)
	})
	if waitErr != nil {
		return nil, 0, waitErr
	}
	return buffer, n, err
}

func readOnce(fd int) (*copyBuffer, int, error) {
	buffer, _ := copyBuffers.Get().(*copyBuffer)
	for {
		n, err := unix.Read(fd, buffer[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && n > 0 {
			return buffer, n, nil
		}
		copyBuffers.Put(buffer)
		return nil, 0, err
	}
}
