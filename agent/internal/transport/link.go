// Package transport carries HTTP/2 over a virtio-serial port that never closes, with a control port alongside it.
//
// A VM may be saved in the middle of an HTTP/2 frame, and the host may return before the guest has seen it leave. So
// each connection starts with a handshake on the control port, which is quiet while a VM is saved:
//
//	runner                       agent
//	  open N, marker ── ctl ──▶  end the session, wait until nothing uses the data port
//	                 ◀─ data ──  marker: earlier data belongs to an older session
//	                 ◀─ ctl ───  waiting N
//	  marker ────────── data ─▶  discard input up to the marker
//	  preface ───────── data ─▶  HTTP/2 begins; the agent sends its first byte after the runner's first
//
// The marker is random and new each time, so no data of an older session contains it. A silent line proves nothing: a
// machine that is emulated on a busy host can stand still at any moment.
//
// docs/reference/agent-protocol.md is the contract.
package transport

import (
	"errors"
	"log/slog"
	"net/http"
	"os"
	"time"

	"golang.org/x/net/http2"
)

// ProtocolVersion is the version of docs/reference/agent-protocol.md that the agent speaks.
const ProtocolVersion = 1

const (
	controlSilence = 100 * time.Millisecond
	// A host that keeps sending does not speak the protocol; the runner's next open starts over.
	drainLimit = 5 * time.Second
	// The runner sends a control frame in one write; a part of one is the rest of an earlier connection.
	controlFrameLimit = time.Second
	controlWriteLimit = 2 * time.Second
	// The host reads the data port before it requests a session.
	markerWriteLimit = 10 * time.Second
)

// Stream windows are small, so that an unread upload holds little memory. The connection's window is large, so that it
// is never the bottleneck: Go returns it only as bodies are read, so two unread uploads would stall everything.
const (
	streamWindowBytes     = 256 << 10
	connectionWindowBytes = 1 << 30
	// Each shell and each connection to a port is one stream. The guest's memory bounds their number.
	maxStreams        = 100_000
	maxReadFrameBytes = 1 << 20
)

// Link serves one guest: a control port and a data port.
type Link struct {
	control, data *Port
	handler       http.Handler
	server        *http2.Server
	current       *session
}

// NewLink returns a Link that serves handler on the data port.
func NewLink(control, data *Port, handler http.Handler) *Link {
	return &Link{
		control: control,
		data:    data,
		handler: handler,
		server: &http2.Server{
			MaxConcurrentStreams:         maxStreams,
			MaxReadFrameSize:             maxReadFrameBytes,
			MaxUploadBufferPerConnection: connectionWindowBytes,
			MaxUploadBufferPerStream:     streamWindowBytes,
		},
	}
}

// Serve answers the control port until reading it fails permanently.
func (l *Link) Serve() error {
	var pending []byte
	buffer := make([]byte, kernelReadBytes)
	for {
		n, err := l.readControl(buffer, len(pending) > 0)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			pending = nil
			continue
		case err != nil:
			return err
		}
		pending = l.consume(append(pending, buffer[:n]...))
	}
}

// readControl waits without limit for the start of a frame, but not for its rest.
func (l *Link) readControl(buffer []byte, inFrame bool) (int, error) {
	if !inFrame {
		return l.control.read(buffer, nil)
	}
	defer l.control.clearDeadline()
	if err := l.control.file.SetReadDeadline(time.Now().Add(controlFrameLimit)); err != nil {
		return 0, err
	}
	return l.control.read(buffer, nil)
}

// consume handles the complete frames of input and returns the rest.
func (l *Link) consume(input []byte) []byte {
	for {
		body, rest, err := splitControl(input)
		if err == nil && body == nil {
			return rest
		}
		var message openMessage
		if err == nil {
			message, err = parseOpen(body)
		}
		if err != nil {
			slog.Warn("control input dropped", "error", err)
			if err := l.control.discardUntilSilent(controlSilence, drainLimit); err != nil {
				slog.Warn("control port", "error", err)
			}
			return nil
		}
		if err := l.open(message); err != nil {
			slog.Warn("session not opened", "generation", message.Generation, "error", err)
		}
		input = rest
	}
}

func (l *Link) open(asked openMessage) error {
	if l.current != nil {
		l.current.quiesce()
		l.current = nil
	}
	marker := []byte(asked.Marker)
	if err := l.data.writeWithin(marker, markerWriteLimit); err != nil {
		return err
	}
	answer, err := encodeControl(waitingMessage{"waiting", asked.Generation, ProtocolVersion, asked.Marker})
	if err != nil {
		return err
	}
	l.current = newSession(l.data)
	go l.serveSession(l.current, marker)
	return l.control.writeWithin(answer, controlWriteLimit)
}

func (l *Link) serveSession(s *session, marker []byte) {
	if err := s.awaitPreface(marker); err != nil {
		slog.Debug("session ended before its preface", "error", err)
		return
	}
	l.server.ServeConn(s, &http2.ServeConnOpts{
		Context:    s.requests,
		Handler:    l.handler,
		BaseConfig: &http.Server{ErrorLog: slog.NewLogLogger(slog.Default().Handler(), slog.LevelWarn)},
	})
}
