// Package fault names the errors that the runner distinguishes.
package fault

import (
	"errors"

	"golang.org/x/sys/unix"
)

const (
	DiskFull = "disk_full"
	VMGone   = "vm_gone"
	Internal = "internal"
)

// ErrVMGone is the error for a process that has ended if the kernel does not report ESRCH.
var ErrVMGone = errors.New("the VM's process is gone")

// Code returns the code of err that the runner receives.
func Code(err error) string {
	switch {
	// To the runner, a limit on the size of files or a quota is a full disk.
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return DiskFull
	case errors.Is(err, ErrVMGone), errors.Is(err, unix.ESRCH):
		return VMGone
	default:
		return Internal
	}
}
