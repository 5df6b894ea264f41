// Package probe runs in the jail in the program's place. It checks from inside whether the kernel has applied what the
// launcher requested: container runtimes and old kernels refuse some of it.
package probe

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"coppice/jail/internal/privilege"
)

const seccompModeFilter = 2

// Run prints "confined" or returns an error that names the restriction that is missing.
func Run(output io.Writer) error {
	if held, err := privilege.HoldsAny(); err != nil || held {
		return errors.Join(errors.New("capabilities are left"), err)
	}
	if set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || set != 1 {
		return errors.Join(errors.New("no_new_privs is not set"), err)
	}
	if mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil || mode != seccompModeFilter {
		return errors.Join(errors.New("there is no system call filter"), err)
	}
	if err := unix.Unshare(unix.CLONE_NEWUTS); !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("the system call filter allows unshare: %w", err)
	}
	_, err := fmt.Fprintln(output, "confined")
	return err
}
