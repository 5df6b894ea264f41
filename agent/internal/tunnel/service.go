// Package tunnel connects a stream of the runner to a port of the guest: POST /tunnel of
// docs/reference/agent-protocol.md.
//
//	request body ──▶ up ──▶ service      end of the body: half-close
//	answer     ◀── down ◀── service      end of the service's stream: end of the answer, and of the tunnel
//
// Neither side may mistake a part for the whole: if one side breaks, the agent breaks the other, by RST or RST_STREAM.
// A handler of Go's HTTP/2 server cannot end its answer and keep reading the request. So the end of the service's
// stream ends both directions; a service that only half-closed, and to which bytes were still being sent, sees a reset.
package tunnel

import (
	"log/slog"
	"net/http"
	"net/url"
	"strconv"

	"coppice/agent/internal/fault"
	"coppice/agent/internal/guest"
)

const maxPort = 65535

// Service opens tunnels to what listens in the guest.
type Service struct {
	guest *guest.State
}

// New returns a Service. It dials nothing before the first resume.
func New(state *guest.State) *Service { return &Service{guest: state} }

// Open answers POST /tunnel.
func (s *Service) Open(w http.ResponseWriter, r *http.Request) error {
	port, err := parsePort(r.URL.Query())
	if err != nil {
		return err
	}
	if _, err := s.guest.Get(); err != nil {
		return err
	}
	conn, err := dial(r.Context(), port)
	if err != nil {
		return err
	}
	t, err := newTunnel(conn, w, r)
	if err != nil {
		return err
	}
	if err := t.run(r.Context()); err != nil {
		slog.Debug("tunnel broke", "port", port, "error", err)
		// A normal end would make the part that has been sent look complete.
		panic(http.ErrAbortHandler)
	}
	return nil
}

func parsePort(query url.Values) (int, error) {
	text := query.Get("port")
	port, err := strconv.Atoi(text)
	if err != nil || port < 1 || port > maxPort || text != strconv.Itoa(port) {
		return 0, fault.Invalid("port: %q is not a port number; give one from 1 to %d", text, maxPort)
	}
	return port, nil
}
