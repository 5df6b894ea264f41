package layer

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/fault"
	"coppice/agent/internal/freezer"
)

const (
	freezeLimit = 5 * time.Second
	// longest is more than a runner takes to read a layer.
	longest = 20 * time.Minute
	// outcomeTrailer follows the layer: it says that the layer is whole, or why it is not.
	outcomeTrailer = "layer-outcome"
	whole          = "whole"
	maxFaultBytes  = 500
)

// Freezer stops the programs of the guest, so that none changes a file while it is read.
type Freezer interface {
	Hold(ctx context.Context, limit, longest time.Duration) (*freezer.Hold, error)
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
	hold, err := s.freezer.Hold(r.Context(), freezeLimit, longest)
	if err != nil {
		return err
	}
	defer hold.Release()
	w.Header().Set("content-type", "application/x-tar")
	w.WriteHeader(http.StatusOK)
	err = write(hold.Context, w, upper, merged)
	if err == nil {
		err = hold.Check()
	}
	if err != nil {
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
