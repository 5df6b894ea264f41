// Package launch turns this process into the program of a plan. Each step narrows what the next one can do, so their
// order is the design:
//
//	cgroups, out-of-memory score → TAP → namespaces and root directory → limits → user, capabilities, no_new_privs
//	→ end with the parent → descriptors → system calls → execve
//
// The process keeps its id and start time, by which the runner identifies it. All steps run on the main thread.
package launch

import (
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"coppice/jail/internal/descriptor"
	"coppice/jail/internal/filter"
	"coppice/jail/internal/namespace"
	"coppice/jail/internal/plan"
	"coppice/jail/internal/privilege"
	"coppice/jail/internal/tap"
)

// fileMask makes new files accessible to the program's user only.
const fileMask = 0o077

// outOfMemoryScore makes the kernel kill a VM before the service or its database. Any process may raise its own score.
const outOfMemoryScore = "500"

// Run becomes the program of the plan that it reads. It returns only if a step has failed.
func Run(input io.Reader) error {
	parent := os.Getppid()
	wanted, err := plan.Read(input)
	if err != nil {
		return err
	}
	if err := confine(wanted, parent); err != nil {
		return err
	}
	// Do not make the system call directly: the runtime must not start a thread at the moment when all threads end.
	return fmt.Errorf("starting %s: %w", wanted.Program,
		syscall.Exec(wanted.Program, append([]string{wanted.Program}, wanted.Arguments...), []string{}))
}

func confine(wanted *plan.Plan, parent int) error {
	if err := enterCgroups(wanted.Cgroups); err != nil {
		return err
	}
	// If a container's /proc is not writable, the kernel chooses freely; nothing else depends on the score.
	_ = writeTo("/proc/self/oom_score_adj", outOfMemoryScore)
	if wanted.Tap != nil {
		if err := tap.Open(wanted.Tap.Name, wanted.Tap.Descriptor); err != nil {
			return err
		}
	}
	if wanted.Namespaces {
		if err := namespace.Enter(wanted.Mounts); err != nil {
			return err
		}
	}
	if err := privilege.Limit(wanted.Limits); err != nil {
		return err
	}
	if err := privilege.Drop(wanted.Identity); err != nil {
		return err
	}
	if wanted.EndWithParent {
		if err := privilege.EndWith(parent); err != nil {
			return err
		}
	}
	if err := descriptor.Settle(wanted.Descriptors, wanted.Input); err != nil {
		return err
	}
	unix.Umask(fileMask)
	return filter.Install(filter.Options{NoFallocate: wanted.NoFallocate, MayConnect: wanted.MayConnect})
}

// enterCgroups moves the whole process: 0 stands for the process that writes.
func enterCgroups(files []string) error {
	for _, file := range files {
		if err := writeTo(file, "0"); err != nil {
			return fmt.Errorf("entering a cgroup: %s: %w", file, err)
		}
	}
	return nil
}

func writeTo(file, text string) error {
	descriptor, err := unix.Open(file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(descriptor)
	_, err = unix.Write(descriptor, []byte(text))
	return err
}
