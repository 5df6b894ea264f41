// Package resume gives a guest its identity: POST /resume of docs/reference/agent-protocol.md. Every clone of a
// template wakes up with the same random pool, clock, name and address; no user code runs before all of them are its
// own. The steps are ordered, each may be repeated, and one that fails leaves the generation unset, so that the runner
// may ask again.
//
// Of a machine that was saved while it ran, the programs are frozen: see package freezer. They go on in the last step.
package resume

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"coppice/agent/internal/api"
	"coppice/agent/internal/fault"
	"coppice/agent/internal/transport"
)

const maxBodyBytes = 4 << 20

// Step is one part of a resume.
type Step struct {
	Name string
	Do   func(Request) error
}

// Service answers POST /resume, one request at a time.
type Service struct {
	mu         sync.Mutex
	steps      []Step
	generation uint64
}

// New makes a Service that does the steps in their order.
func New(steps []Step) *Service { return &Service{steps: steps} }

// Resume answers POST /resume.
func (s *Service) Resume(w http.ResponseWriter, r *http.Request) error {
	arrived := time.Now()
	text, err := io.ReadAll(io.LimitReader(r.Body, maxBodyBytes+1))
	if err != nil {
		return fault.Invalid("body: broken off: %v", err)
	}
	if len(text) > maxBodyBytes {
		return fault.Invalid("body: longer than %d bytes", maxBodyBytes)
	}
	request, err := parse(text, arrived)
	if err != nil {
		return err
	}
	if err := s.apply(request); err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, struct {
		Protocol   int    `json:"protocol"`
		Generation uint64 `json:"generation"`
	}{transport.ProtocolVersion, request.Generation})
	return nil
}

func (s *Service) apply(request Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if request.Generation == s.generation {
		return nil
	}
	if request.Generation < s.generation {
		return fault.New(fault.InvalidState, "generation %d is older than %d, which has been resumed", request.Generation, s.generation)
	}
	for _, step := range s.steps {
		if err := step.Do(request); err != nil {
			return fmt.Errorf("resume, %s: %w", step.Name, err)
		}
	}
	s.generation = request.Generation
	return nil
}
