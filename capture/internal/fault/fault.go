// Package fault names the errors that the runner tells apart.
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

// ErrVMGone is met where the kernel does not say ESRCH of a process that has ended.
var ErrVMGone = errors.New("the VM's process is gone")

// Code of err, as the runner is told it.
func Code(err error) string {
	switch {
	// A limit on the size of files, or a quota, is a full disk to whoever meets it.
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return DiskFull
	case errors.Is(err, ErrVMGone), errors.Is(err, unix.ESRCH):
		return VMGone
	default:
		return Internal
	}
}
