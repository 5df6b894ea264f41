// Package resume gives a guest its identity: POST /resume of docs/reference/agent-protocol.md. All clones of a template
// wake up with the same random pool, clock, name and address. No user code runs before a clone has its own. The steps
// are ordered, and each may be repeated. If a step fails, the generation stays unset, so that the runner can send the
// request again.
//
// If the machine was saved while it ran, its programs are frozen: see package freezer. The last step thaws them.
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

// New returns a Service that runs the steps in order.
func New(steps []Step) *Service { return &Service{steps: steps} }

// Resume answers POST /resume.
func (s *Service) Resume(w http.ResponseWriter, r *http.Request) error {
	arrived := time.Now()
	text, err := io.ReadAll(io.LimitReader(r.Body, maxBodyBytes+1))
	if err != nil {
		return fault.Invalid("body: ended early: %v", err)
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
		return fault.New(fault.InvalidState, "generation %d is older than the resumed generation %d", request.Generation, s.generation)
	}
	for _, step := range s.steps {
		if err := step.Do(request); err != nil {
			return fmt.Errorf("resume, %s: %w", step.Name, err)
		}
	}
	s.generation = request.Generation
	return nil
}
