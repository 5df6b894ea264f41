// Package plan defines what the runner sends to the launcher: one JSON object on standard input. It is never sent in
// arguments, which every user of the host can read.
package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// Version is the version of the plan's format. Launcher and runner come from the same set-up; another number means that
// they do not.
const Version = 4

const maxBytes = 1 << 20

// Plan is everything that a jailed program gets.
type Plan struct {
	Version int `json:"version"`
	// Cgroups are cgroup.procs files to enter, in this order and before all other steps.
	Cgroups []string `json:"cgroups"`
	// Namespaces requests a mount, network, IPC and UTS namespace and a root directory that holds only Mounts.
	Namespaces bool    `json:"namespaces"`
	Mounts     []Mount `json:"mounts"`
	// Identity is the identity to take. It is absent for a service that is an ordinary user and has only its own.
	Identity *Identity `json:"identity"`
	Limits   Limits    `json:"limits"`
	// Tap is opened before the namespaces are entered. It is absent for a program without a network.
	Tap *Tap `json:"tap"`
	// Descriptors are kept for the program in addition to 0, 1 and 2.
	Descriptors []int `json:"descriptors"`
	// Input is the descriptor that becomes standard input. It is absent for a program whose standard input is empty.
	Input *int `json:"input"`
	// EndWithParent ends the program when the process that started the launcher ends.
	EndWithParent bool `json:"end_with_parent"`
	// NoFallocate refuses fallocate: the program can fill a disk only as fast as it writes.
	NoFallocate bool `json:"no_fallocate"`
	// MayConnect lets the program connect to the Unix sockets that it can reach.
	MayConnect bool `json:"may_connect"`
	// Program is a path inside the jail.
	Program   string   `json:"program"`
	Arguments []string `json:"arguments"`
}

// Mount puts a file or directory of the host at a place in the jail. It is writable, executable or a device only if its
// fields say so.
type Mount struct {
	Source     string `json:"source"`
	Target     string `json:"target"`
	Writable   bool   `json:"writable"`
	Executable bool   `json:"executable"`
	Device     bool   `json:"device"`
}

// Tap is an interface of the host, and the descriptor at which the program finds it.
type Tap struct {
	Name       string `json:"name"`
	Descriptor int    `json:"descriptor"`
}

// Identity is an unprivileged user of the host.
type Identity struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
}

// Limits are both hard and soft limits, unless another one is given. Zero leaves a limit as it is. No core file is ever
// written.
type Limits struct {
	OpenFiles     uint64 `json:"open_files"`
	FileSizeBytes uint64 `json:"file_size_bytes"`
	// FileSizeMaxBytes is the hard limit on the size of files. The program cannot raise the soft one by itself.
	FileSizeMaxBytes uint64 `json:"file_size_max_bytes"`
	// Tasks bounds the tasks of the user id, including threads.
	Tasks uint64 `json:"tasks"`
}

// Read reads one plan from r and checks it.
func Read(r io.Reader) (*Plan, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the plan: %w", err)
	}
	if len(text) > maxBytes {
		return nil, fmt.Errorf("the plan is longer than %d bytes", maxBytes)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	read := &Plan{}
	if err := decoder.Decode(read); err != nil {
		return nil, fmt.Errorf("the plan is not valid: %w", err)
	}
	return read, read.check()
}

func (p *Plan) check() error {
	if p.Version != Version {
		return fmt.Errorf("the plan has version %d, but this launcher reads version %d: run the set-up again", p.Version, Version)
	}
	if !isPlain(p.Program) {
		return fmt.Errorf("program %q is not a plain absolute path", p.Program)
	}
	if p.Identity != nil && (p.Identity.UID <= 0 || p.Identity.GID <= 0) {
		return errors.New("identity: neither user nor group may be root")
	}
	for _, descriptor := range p.Descriptors {
		if descriptor < 3 {
			return fmt.Errorf("descriptor %d is a standard stream", descriptor)
		}
	}
	if p.Input != nil && *p.Input < 3 {
		return fmt.Errorf("input: descriptor %d is a standard stream", *p.Input)
	}
	if p.Tap != nil && !slices.Contains(p.Descriptors, p.Tap.Descriptor) {
		return fmt.Errorf("tap: descriptor %d is not kept", p.Tap.Descriptor)
	}
	return p.checkMounts()
}

func (p *Plan) checkMounts() error {
	if !p.Namespaces && len(p.Mounts) > 0 {
		return errors.New("mounts need namespaces")
	}
	seen := map[string]bool{}
	for _, mount := range p.Mounts {
		if !path.IsAbs(mount.Source) || !isPlain(mount.Target) {
			return fmt.Errorf("mount of %q at %q: both must be plain absolute paths", mount.Source, mount.Target)
		}
		if seen[mount.Target] {
			return fmt.Errorf("two mounts at %q", mount.Target)
		}
		seen[mount.Target] = true
	}
	return nil
}

func isPlain(name string) bool {
	return path.IsAbs(name) && path.Clean(name) == name && name != "/" && !strings.ContainsRune(name, 0)
}
