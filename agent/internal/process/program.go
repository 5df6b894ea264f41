package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"coppice/agent/internal/fault"
)

// Program is an executable with its arguments. The first argument is its own name.
type Program struct {
	Path string
	Argv []string
}

// systemShell is the shell that every usable image has.
const systemShell = "/bin/sh"

// maxSearchDirectories bounds how many directories of PATH are searched: a request may choose PATH.
const maxSearchDirectories = 64

// bashDirectories are the places where distributions put bash. They are searched after those of PATH.
var bashDirectories = []string{"/bin", "/usr/bin", "/usr/local/bin"}

// FindShell returns the shell that a person would want: bash if the image has it, else /bin/sh. isBash says which.
func (p *Plan) FindShell() (program Program, isBash bool) {
	for _, directory := range searchDirectories(p.variables["PATH"]) {
		path := filepath.Join(directory, "bash")
		if requireExecutable(path) == nil {
			return Program{Path: path, Argv: []string{"bash"}}, true
		}
	}
	return p.SystemShell(), false
}

// SystemShell returns /bin/sh without arguments.
func (p *Plan) SystemShell() Program {
	return Program{Path: p.launcher.shell, Argv: []string{"sh"}}
}

// RunInShell returns /bin/sh with a command to execute.
func (p *Plan) RunInShell(command string) Program {
	return Program{Path: p.launcher.shell, Argv: []string{"sh", "-c", command}}
}

func searchDirectories(path string) []string {
	var found []string
	for _, directory := range strings.SplitN(path, ":", maxSearchDirectories) {
		if filepath.IsAbs(directory) {
			found = append(found, directory)
		}
	}
	return append(found, bashDirectories...)
}

func requireExecutable(path string) error {
	info, err := os.Stat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0) {
		err = fmt.Errorf("%s is not an executable file", path)
	}
	return err
}

// require runs at each start: a sandbox may upload its shell as a file.
func (p Program) require() error {
	if err := requireExecutable(p.Path); err != nil {
		return fault.New(fault.InvalidImage, "the image has no %s that could run the command; "+
			"use an image with a shell, or upload a static one to that path: %v", p.Path, err)
	}
	return nil
}
