package privilege

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"coppice/jail/internal/plan"
)

type limit struct {
	name     string
	resource int
	value    uint64
	// maximum is the hard limit if it is higher.
	maximum uint64
}

// Limit lowers what the program may use. A write beyond the file size limit returns EFBIG: the signal that would kill
// the program is ignored, because a guest can make QEMU's disk file grow.
func Limit(limits plan.Limits) error {
	wanted := []limit{
		{"core files", unix.RLIMIT_CORE, 0, 0},
		{"message queues", unix.RLIMIT_MSGQUEUE, 0, 0},
	}
	for _, optional := range []limit{
		{"open files", unix.RLIMIT_NOFILE, limits.OpenFiles, 0},
		{"file size", unix.RLIMIT_FSIZE, limits.FileSizeBytes, limits.FileSizeMaxBytes},
		{"tasks", unix.RLIMIT_NPROC, limits.Tasks, 0},
	} {
		if optional.value != 0 {
			wanted = append(wanted, optional)
		}
	}
	for _, each := range wanted {
		if err := each.set(); err != nil {
			return fmt.Errorf("limiting %s: %w", each.name, err)
		}
	}
	return ignoreSignal(unix.SIGXFSZ)
}

// set lowers the limit. A limit that is already lower stays. It uses package syscall, which would otherwise restore the
// old limit of open files when the program is started.
func (l limit) set() error {
	var current syscall.Rlimit
	if err := syscall.Getrlimit(l.resource, &current); err != nil {
		return err
	}
	wanted := syscall.Rlimit{Cur: min(l.value, current.Max), Max: min(max(l.value, l.maximum), current.Max)}
	return syscall.Setrlimit(l.resource, &wanted)
}

// ignoreSignal ignores a signal, which lasts beyond execve, unlike a handler. Package os/signal would start a goroutine
// to do it.
func ignoreSignal(signal unix.Signal) error {
	action := struct {
		handler, flags, restorer uintptr
		mask                     uint64
	}{handler: 1 /* SIG_IGN */}
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(signal), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	if errno != 0 {
		return fmt.Errorf("ignoring %v: %w", signal, errno)
	}
	return nil
}
