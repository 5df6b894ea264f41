// Package probe runs in the jail in a program's place, to see from inside whether the kernel has done what it was
// asked for: container runtimes and old kernels refuse some of it.
package probe

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"coppice/jail/internal/privilege"
)

const seccompModeFilter = 2

// Run prints "confined" or returns what is amiss.
func Run(output io.Writer) error {
	if held, err := privilege.HoldsAny(); err != nil || held {
		return errors.Join(errors.New("capabilities are left"), err)
	}
	if set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || set != 1 {
		return errors.Join(errors.New("no_new_privs is not set"), err)
	}
	if mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil || mode != seccompModeFilter {
		return errors.Join(errors.New("there is no filter of system calls"), err)
	}
	if err := unix.Unshare(unix.CLONE_NEWUTS); !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("the filter of system calls lets unshare through: %w", err)
	}
	_, err := fmt.Fprintln(output, "confined")
	return err
}
