// Package files moves files into and out of the guest, and changes them there: /files and /list of
// docs/reference/agent-protocol.md. By then the agent's root is the guest's own, so no path leads out of the guest.
package files

import (
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync/atomic"

	"coppice/agent/internal/api"
	"coppice/agent/internal/fault"
	"coppice/agent/internal/guest"
)

// copyBytes is large because each system call is expensive under emulation.
const copyBytes = 256 << 10

// Service serves files of the guest.
type Service struct {
	guest *guest.State
	// root is the directory with the account files.
	root string
	// watches counts the open watches.
	watches atomic.Int32
}

// New returns a Service for the guest whose account files are below root.
func New(state *guest.State, root string) *Service { return &Service{guest: state, root: root} }

// locate returns the absolute, cleaned path that a request names.
func (s *Service) locate(query url.Values) (string, error) {
	return s.absolute("path", query.Get("path"))
}

// readChange reads the body of a change into wanted, and returns the absolute, cleaned path for the text of its field path.
func (s *Service) readChange(r *http.Request, wanted any, text *string) (string, error) {
	if err := api.ReadJSON(r, wanted); err != nil {
		return "", err
	}
	asked, err := s.absolute("path", *text)
	return path.Clean(asked), err
}

// absolute returns the absolute, cleaned path for the text of a field.
func (s *Service) absolute(field, text string) (string, error) {
	settings, err := s.guest.Get()
	if err != nil {
		return "", err
	}
	if text == "" {
		return "", fault.Invalid("%s: must not be empty", field)
	}
	if strings.ContainsRune(text, 0) {
		return "", fault.Invalid("%s: must not contain NUL", field)
	}
	if !path.IsAbs(text) {
		text = path.Join(settings.Workdir, text)
	}
	// A trailing slash asks for a directory. Cleaning would hide that a file cannot be written there.
	cleaned := path.Clean(text)
	if strings.HasSuffix(text, "/") && cleaned != "/" {
		cleaned += "/"
	}
	return cleaned, nil
}
