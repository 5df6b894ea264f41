package guest

import (
	"net/http"
	"strings"

	"coppice/agent/internal/api"
	"coppice/agent/internal/fault"
)

// ValidateEnvironment rejects variables that no process can be given.
func ValidateEnvironment(env map[string]string) error {
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return fault.Invalid("env: %q cannot be an environment variable", name)
		}
	}
	return nil
}

// SetEnvironment replaces the environment of processes that are started from now on.
func (s *State) SetEnvironment(env map[string]string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready {
		return notResumed()
	}
	s.settings.Env = env
	return nil
}

// HandleEnvironment answers POST /environment.
func (s *State) HandleEnvironment(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Env map[string]string `json:"env"`
	}
	if err := api.ReadJSON(r, &body); err != nil {
		return err
	}
	if err := ValidateEnvironment(body.Env); err != nil {
		return err
	}
	if err := s.SetEnvironment(body.Env); err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, struct{}{})
	return nil
}
