package main

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call makes a system call by its number, without the work that a library does around it.
func call(number uintptr, arguments ...uintptr) error {
	var all [6]uintptr
	copy(all[:], arguments)
	if _, _, errno := unix.RawSyscall6(number, all[0], all[1], all[2], all[3], all[4], all[5]); errno != 0 {
		return errno
	}
	return nil
}

func calling(name string, number uintptr, arguments ...uintptr) attempt {
	return attempt{name, func() error { return call(number, arguments...) }}
}

func processAttempts(targets *Targets) []attempt {
	attempts := []attempt{
		calling("signal all processes", unix.SYS_KILL, ^uintptr(0), 0),
		{"fork", fork},
		calling("clone3", unix.SYS_CLONE3, 0, 0),
		calling("execveat", unix.SYS_EXECVEAT, ^uintptr(0), 0, 0, 0, 0),
	}
	for index, pid := range targets.Pids {
		of := func(what string) string { return fmt.Sprintf("%s process %d", what, index) }
		id := uintptr(pid)
		attempts = append(attempts,
			calling(of("trace"), unix.SYS_PTRACE, unix.PTRACE_SEIZE, id, 0, 0),
			attempt{of("read memory of"), func() error { return readMemory(pid) }},
			calling(of("signal"), unix.SYS_KILL, id, 0),
			calling(of("signal a thread of"), unix.SYS_TGKILL, id, id, 0),
			calling(of("signal by number"), unix.SYS_TKILL, id, 0),
			calling(of("open"), unix.SYS_PIDFD_OPEN, id, 0),
			calling(of("read limits of"), unix.SYS_PRLIMIT64, id, unix.RLIMIT_CORE, 0, 0),
			calling(of("place"), unix.SYS_SCHED_SETAFFINITY, id, 0, 0),
			calling(of("compare with"), unix.SYS_KCMP, id, id, 0, 0, 0),
		)
	}
	return attempts
}

// fork creates a process that ends at once, if the filter allows it.
func fork() error {
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	if pid == 0 {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	return nil
}

func readMemory(pid int) error {
	buffer := [8]byte{}
	local := unix.Iovec{Base: &buffer[0], Len: uint64(len(buffer))}
	remote := unix.RemoteIovec{Base: uintptr(unsafe.Pointer(&buffer)), Len: len(buffer)}
	_, err := unix.ProcessVMReadv(pid, []unix.Iovec{local}, []unix.RemoteIovec{remote}, 0)
	return err
}
