// Package files moves files into and out of the guest: /files and /list of docs/reference/agent-protocol.md. By then
// the agent's root is the guest's own, so no path leads out of the guest.
package files

import (
	"net/url"
	"path"
	"strings"

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
}

// New returns a Service for the guest whose account files are below root.
func New(state *guest.State, root string) *Service { return &Service{guest: state, root: root} }

// locate returns the absolute, cleaned path that a request names.
func (s *Service) locate(query url.Values) (string, error) {
	settings, err := s.guest.Get()
	if err != nil {
		return "", err
	}
	return absolute(query.Get("path"), settings.Workdir)
}

func absolute(text, directory string) (string, error) {
	if text == "" {
		return "", fault.Invalid("path: must not be empty")
	}
	if strings.ContainsRune(text, 0) {
		return "", fault.Invalid("path: must not contain NUL")
	}
	if !path.IsAbs(text) {
		text = path.Join(directory, text)
	}
	// A trailing slash asks for a directory. Cleaning would hide that a file cannot be written there.
	cleaned := path.Clean(text)
	if strings.HasSuffix(text, "/") && cleaned != "/" {
		cleaned += "/"
	}
	return cleaned, nil
}
