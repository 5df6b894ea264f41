// Package process starts programs in the guest's root: as the user, in the directory and with the environment that the
// request and the image ask for, in the commands' control group. Whatever fails says which field to change.
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

// Options are what a Launcher needs. Root is that of the accounts' files. Without a Freezer nothing is ever frozen.
type Options struct {
	Reaper   *reap.Reaper
	Root     string
	Workload *workload.Group
	Freezer  *freezer.Freezer
}

// NewLauncher makes a Launcher.
func NewLauncher(o Options) *Launcher {
	return &Launcher{reaper: o.Reaper, root: o.Root, shell: systemShell, workload: o.Workload, freezer: o.Freezer}
}

// Plan is a Place that has been found to exist.
type Plan struct {
	// Who the program will run as.
	Who account.Identity

	launcher  *Launcher
	directory string
	variables map[string]string
}

// Plan resolves a Place. defaults are variables that image and request may set otherwise.
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

// resolveUser and resolveDirectory say whose fault it is: the request's, or the image's, which the request can override.
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
		return "", fault.New(fault.InvalidImage, "the working directory %s, which the image or the default names, cannot be used; "+
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

// Start runs a program with files as its descriptors from 0. terminal makes descriptor 0 its controlling terminal. An
// error means that nothing runs. While the guest is frozen it waits, at most as long as the request's context.
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

// explainStart names the field to change. fork and exec report one errno for several steps.
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
