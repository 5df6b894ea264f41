package process

import (
	"path"
	"strings"

	"coppice/agent/internal/api"
	"coppice/agent/internal/fault"
)

// MaxArgumentBytes is the kernel's MAX_ARG_STRLEN less the NUL.
const MaxArgumentBytes = 131071

// Place is the directory, environment and user that a request wants for its process. Each field may be absent.
type Place struct {
	Cwd  string            `json:"cwd"`
	Env  map[string]string `json:"env"`
	User string            `json:"user"`
}

// ParsePlace reads the fields that the heads of all kinds of requests share.
func ParsePlace(head []byte) (Place, error) {
	var p Place
	if err := api.DecodeJSON("head frame", head, &p); err != nil {
		return Place{}, err
	}
	return p, p.validate()
}

func (p Place) validate() error {
	switch {
	case strings.ContainsRune(p.Cwd, 0):
		return fault.Invalid("cwd: must not contain NUL")
	case p.Cwd != "" && !path.IsAbs(p.Cwd):
		return fault.Invalid("cwd: must be an absolute path, not %q", p.Cwd)
	}
	for name, value := range p.Env {
		if err := validateVariable(name, value); err != nil {
			return err
		}
	}
	return nil
}

func validateVariable(name, value string) error {
	switch {
	case name == "" || strings.ContainsAny(name, "=\x00"):
		return fault.Invalid("env: %q is not a variable name; it must not be empty or contain = or NUL", name)
	case strings.ContainsRune(value, 0):
		return fault.Invalid("env: the value of %s must not contain NUL", name)
	case len(name)+1+len(value) > MaxArgumentBytes:
		return fault.Invalid("env: %s is longer than %d bytes with its value", name, MaxArgumentBytes)
	}
	return nil
}

// ValidateCommand checks a command that becomes an argument of a shell.
func ValidateCommand(command string) error {
	switch {
	case command == "":
		return fault.Invalid("command: must not be empty")
	case len(command) > MaxArgumentBytes:
		return fault.Invalid("command: longer than %d bytes; upload it as a file and run that", MaxArgumentBytes)
	case strings.ContainsRune(command, 0):
		return fault.Invalid("command: must not contain NUL")
	}
	return nil
}
