// Package guest holds the settings that resume has made for new processes and files.
package guest

import (
	"sync"

	"coppice/agent/internal/fault"
)

// DefaultDirectory is where commands run and relative paths start if the image has no WORKDIR.
const DefaultDirectory = "/workspace"

// Settings are replaced as a whole by each resume. The environment may also be replaced in between.
type Settings struct {
	Env     map[string]string
	User    string
	Workdir string
}

// State holds the Settings. Resume writes it, and everything that serves user requests reads it.
type State struct {
	mu       sync.RWMutex
	ready    bool
	settings Settings
}

// Set makes the guest ready for user code.
func (s *State) Set(settings Settings) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settings = settings
	s.ready = true
}

// Get returns the settings, or invalid_state before the first resume: until then, / is the initramfs.
func (s *State) Get() (Settings, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.ready {
		return Settings{}, notResumed()
	}
	return s.settings, nil
}

func notResumed() error {
	return fault.New(fault.InvalidState, "the guest has not been resumed yet; call POST /resume first")
}
