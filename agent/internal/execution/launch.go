package execution

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/account"
	"coppice/agent/internal/fault"
	"coppice/agent/internal/guest"
	"coppice/agent/internal/reap"
)

// process is a started command and the agent's ends of its pipes.
type process struct {
	child          *reap.Child
	timeout        time.Duration
	stdin          *os.File // nil if standard input is /dev/null
	stdout, stderr *os.File
}

// launch starts the command of h. An error means that nothing runs.
func (s *Service) launch(h head, settings guest.Settings) (*process, error) {
	attr, err := s.prepare(h, settings)
	if err != nil {
		return nil, err
	}
	pipes, err := openPipes(h.Stdin)
	if err != nil {
		return nil, err
	}
	attr.Files = pipes.childFiles(s.null)
	child, err := s.reaper.Start(s.shell, []string{"sh", "-c", h.Command}, attr)
	pipes.closeChildEnds()
	if err != nil {
		pipes.closeAgentEnds()
		return nil, s.explainStart(err, h, attr)
	}
	return &process{
		child:   child,
		timeout: time.Duration(h.TimeoutMs) * time.Millisecond,
		stdin:   pipes.stdin.agent,
		stdout:  pipes.stdout.agent,
		stderr:  pipes.stderr.agent,
	}, nil
}

func (s *Service) prepare(h head, settings guest.Settings) (*syscall.ProcAttr, error) {
	accounts, err := account.Load(s.root)
	if err != nil {
		return nil, fault.FromFile("cannot read the sandbox's accounts", err)
	}
	who, err := resolveUser(accounts, h, settings)
	if err != nil {
		return nil, err
	}
	directory, err := resolveDirectory(h, settings)
	if err != nil {
		return nil, err
	}
	if err := s.requireShell(); err != nil {
		return nil, err
	}
	return &syscall.ProcAttr{
		Dir: directory,
		Env: buildEnvironment(settings, who, h.Env),
		Sys: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: who.UID, Gid: who.GID, Groups: who.Groups}},
	}, nil
}

// resolveUser and resolveDirectory say whose fault it is: the request's, or the image's, which the request can override.
func resolveUser(accounts account.Database, h head, settings guest.Settings) (account.Identity, error) {
	if h.User != "" {
		return accounts.Resolve(h.User)
	}
	who, err := accounts.Resolve(settings.User)
	if err != nil {
		return who, fault.New(fault.InvalidImage, "the image's USER %q cannot be used; give \"user\" in the request: %s",
			settings.User, fault.From(err).Message)
	}
	return who, nil
}

func resolveDirectory(h head, settings guest.Settings) (string, error) {
	if h.Cwd != "" {
		if err := requireDirectory(h.Cwd); err != nil {
			return "", fault.Invalid("cwd: %v; create the directory first", err)
		}
		return h.Cwd, nil
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

// requireShell is asked for each command: a sandbox may bring its shell along as a file.
func (s *Service) requireShell() error {
	info, err := os.Stat(s.shell)
	if err == nil && (!info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0) {
		err = fmt.Errorf("%s is not an executable file", s.shell)
	}
	if err == nil {
		return nil
	}
	return fault.New(fault.InvalidImage, "the image has no %s that could run the command; "+
		"use an image with a shell, or upload a static one to that path: %v", s.shell, err)
}

// explainStart names the field to change. fork and exec report one errno for several steps.
func (s *Service) explainStart(err error, h head, attr *syscall.ProcAttr) error {
	switch {
	case errors.Is(err, unix.E2BIG):
		return fault.Invalid("env: command and environment together are larger than the kernel allows; make env smaller")
	case errors.Is(err, unix.EACCES):
		return fault.Invalid("user: uid %d may not enter %s or run %s", attr.Sys.Credential.Uid, attr.Dir, s.shell)
	case errors.Is(err, unix.ENOEXEC), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ELIBBAD):
		return fault.New(fault.InvalidImage, "%s of the image cannot be executed here: %v", s.shell, err)
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM):
		return fault.New(fault.Capacity, "the sandbox has no room for another process: %v", err)
	}
	return fmt.Errorf("start of %s in %s: %w", s.shell, attr.Dir, err)
}
