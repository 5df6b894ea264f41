// Package process starts programs in the guest's root and in the commands' control group. The request and the image
// choose the user, the directory and the environment. Each error names the field to change.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/account"
	"coppice/agent/internal/fault"
	"coppice/agent/internal/freezer"
	"coppice/agent/internal/guest"
	"coppice/agent/internal/reap"
	"coppice/agent/internal/workload"
)

// Launcher starts programs.
type Launcher struct {
	reaper   *reap.Reaper
	root     string
	shell    string
	workload *workload.Group
	freezer  *freezer.Freezer
}

// Options are what a Launcher needs. Root is the directory with the account files. Without a Freezer nothing is ever
// frozen.
type Options struct {
	Reaper   *reap.Reaper
	Root     string
	Workload *workload.Group
	Freezer  *freezer.Freezer
}

// NewLauncher returns a Launcher.
func NewLauncher(o Options) *Launcher {
	return &Launcher{reaper: o.Reaper, root: o.Root, shell: systemShell, workload: o.Workload, freezer: o.Freezer}
}

// Plan is a Place whose user and directory exist.
type Plan struct {
	// Who is the user that the program will run as.
	Who account.Identity

	launcher  *Launcher
	directory string
	variables map[string]string
}

// Plan resolves a Place. The image and the request may override defaults, which are variables.
func (l *Launcher) Plan(place Place, settings guest.Settings, defaults map[string]string) (*Plan, error) {
	accounts, err := account.Load(l.root)
	if err != nil {
		return nil, fault.FromFile("cannot read the sandbox's accounts", err)
	}
	who, err := resolveUser(accounts, place, settings)
	if err != nil {
		return nil, err
	}
	directory, err := resolveDirectory(place, settings)
	if err != nil {
		return nil, err
	}
	variables := buildEnvironment(settings, who, defaults, place.Env)
	return &Plan{Who: who, launcher: l, directory: directory, variables: variables}, nil
}

// resolveUser and resolveDirectory return errors that say what is wrong: the request, or the image, which the request
// can override.
func resolveUser(accounts account.Database, place Place, settings guest.Settings) (account.Identity, error) {
	if place.User != "" {
		return accounts.Resolve(place.User)
	}
	who, err := accounts.Resolve(settings.User)
	if err != nil {
		return who, fault.New(fault.InvalidImage, "the image's USER %q cannot be used; give \"user\" in the request: %s",
			settings.User, fault.From(err).Message)
	}
	return who, nil
}

func resolveDirectory(place Place, settings guest.Settings) (string, error) {
	if place.Cwd != "" {
		if err := requireDirectory(place.Cwd); err != nil {
			return "", fault.Invalid("cwd: %v; create the directory first", err)
		}
		return place.Cwd, nil
	}
	if err := requireDirectory(settings.Workdir); err != nil {
		return "", fault.New(fault.InvalidImage, "the working directory %s (of the image, or the default) cannot be used; "+
			"give \"cwd\" in the request: %v", settings.Workdir, err)
	}
	return settings.Workdir, nil
}

func requireDirectory(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", path)
	}
	return err
}

// Start runs a program with files as its descriptors from 0. If terminal is set, descriptor 0 becomes its controlling
// terminal. An error means that nothing runs. While the guest is frozen, Start waits, at most until ctx ends.
func (p *Plan) Start(ctx context.Context, program Program, files []uintptr, terminal bool) (*reap.Child, error) {
	if err := program.require(); err != nil {
		return nil, err
	}
	leave, err := p.launcher.freezer.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	who := p.Who
	sys := &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: who.UID, Gid: who.GID, Groups: who.Groups},
		Setctty:    terminal,
	}
	p.launcher.workload.Place(sys)
	attr := &syscall.ProcAttr{Dir: p.directory, Env: encodeEnvironment(p.variables), Files: files, Sys: sys}
	child, err := p.launcher.reaper.Start(program.Path, program.Argv, attr)
	if err != nil {
		return nil, p.explainStart(err, program)
	}
	return child, nil
}

// explainStart returns an error that names the field to change. fork and exec report the same errno for several steps.
func (p *Plan) explainStart(err error, program Program) error {
	switch {
	case errors.Is(err, unix.E2BIG):
		return fault.Invalid("env: command and environment together are larger than the kernel allows; make env smaller")
	case errors.Is(err, unix.EACCES):
		return fault.Invalid("user: uid %d may not enter %s or run %s", p.Who.UID, p.directory, program.Path)
	case errors.Is(err, unix.ENOEXEC), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ELIBBAD):
		return fault.New(fault.InvalidImage, "%s of the image cannot be executed here: %v", program.Path, err)
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM):
		return fault.New(fault.Capacity, "the sandbox has no room for another process: %v", err)
	}
	return fmt.Errorf("start of %s in %s: %w", program.Path, p.directory, err)
}
