package layer

import (
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/fault"
)

const (
	freezeLimit = 5 * time.Second
	// freezeAgain is shorter than the time after which the freezer continues the programs by itself.
	freezeAgain = 20 * time.Second
	// outcomeTrailer follows the layer: it says that the layer is whole, or why it is not.
	outcomeTrailer = "layer-outcome"
	whole          = "whole"
	maxFaultBytes  = 500
)

// Freezer stops the programs of the guest, so that none changes a file while it is read.
type Freezer interface {
	Freeze(limit time.Duration) bool
	Thaw() error
}

// Root opens the upper directory of the root's overlay.
type Root interface {
	OpenUpper() (*os.File, error)
}

// Service answers GET /layer.
type Service struct {
	root    Root
	freezer Freezer
}

// New returns a Service.
func New(root Root, freezer Freezer) *Service { return &Service{root: root, freezer: freezer} }

// Get sends the layer. The programs are frozen meanwhile. The head is sent before the files are read, so a trailer
// reports a later failure.
func (s *Service) Get(w http.ResponseWriter, r *http.Request) error {
	upper, err := s.root.OpenUpper()
	if err != nil {
		return fault.New(fault.InvalidState, "the sandbox has no scratch disk: %v", err)
	}
	defer upper.Close()
	merged, err := os.OpenFile("/", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer merged.Close()
	if !s.freezer.Freeze(freezeLimit) {
		s.thaw()
		return fault.New(fault.InvalidState, "the programs of the sandbox cannot be frozen; end them and try again")
	}
	defer s.thaw()
	defer s.stayFrozen()()
	w.Header().Set("content-type", "application/x-tar")
	w.WriteHeader(http.StatusOK)
	if err := write(r.Context(), w, upper, merged); err != nil {
		slog.Warn("cannot send the layer to its end", "error", err)
		w.Header().Set(http.TrailerPrefix+outcomeTrailer, shorten(err.Error()))
		return nil
	}
	w.Header().Set(http.TrailerPrefix+outcomeTrailer, whole)
	return nil
}

// shorten makes a text that a header can hold.
func shorten(text string) string {
	printable := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	return printable[:min(len(printable), maxFaultBytes)]
}

// stayFrozen freezes the programs again and again until the function that it returns is called.
func (s *Service) stayFrozen() (end func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		s.freezeUntil(done)
	}()
	return func() {
		close(done)
		<-ended
	}
}

func (s *Service) freezeUntil(done <-chan struct{}) {
	ticker := time.NewTicker(freezeAgain)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
			s.freezer.Freeze(freezeLimit)
		}
	}
}

func (s *Service) thaw() {
	if err := s.freezer.Thaw(); err != nil {
		slog.Error("the programs stay frozen", "error", err)
	}
}
