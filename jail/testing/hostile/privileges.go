package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// x32 is the bit of a system call number that selects the x32 interface.
const x32 = 0x40000000

// inventedCall is a number that no system call has.
const inventedCall = 5000

func privilegeAttempts(*Targets) []attempt {
	invalid := ^uintptr(0)
	return []attempt{
		calling("make a user namespace", unix.SYS_UNSHARE, unix.CLONE_NEWUSER),
		calling("make a mount namespace", unix.SYS_UNSHARE, unix.CLONE_NEWNS),
		calling("clone into a namespace", unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD), 0, 0, 0, 0),
		calling("enter a namespace", unix.SYS_SETNS, invalid, 0),
		{"mount", func() error { return unix.Mount("none", "/run", "tmpfs", 0, "") }},
		{"unmount", func() error { return unix.Unmount("/run", unix.MNT_DETACH) }},
		{"change the root", func() error { return unix.Chroot("/run") }},
		{"exchange the root", func() error { return unix.PivotRoot("/run", "/run") }},
		calling("open a mount", unix.SYS_OPEN_TREE, invalid, 0, 0),
		calling("open a file system", unix.SYS_FSOPEN, 0, 0),
		calling("become root", unix.SYS_SETUID, 0),
		calling("become another user", unix.SYS_SETRESUID, 4711, 4711, 4711),
		calling("join a group", unix.SYS_SETGROUPS, 0, 0),
		{"take all capabilities", takeCapabilities},
		calling("raise an ambient capability", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SYS_ADMIN),
		calling("take back no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0),
		{"raise a limit", raiseLimit},
		calling("bpf", unix.SYS_BPF, 0, 0, 0),
		calling("perf_event_open", unix.SYS_PERF_EVENT_OPEN, 0, 0, invalid, invalid, 0),
		calling("userfaultfd", unix.SYS_USERFAULTFD, 0),
		calling("io_uring", unix.SYS_IO_URING_SETUP, 1, 0),
		calling("keyctl", unix.SYS_KEYCTL, 0, 0, 0),
		calling("add_key", unix.SYS_ADD_KEY, 0, 0, 0, 0, 0),
		calling("load a module", unix.SYS_FINIT_MODULE, invalid, 0, 0),
		calling("load a kernel", unix.SYS_KEXEC_LOAD, 0, 0, 0, 0),
		calling("ports", unix.SYS_IOPL, 3),
		calling("segments", unix.SYS_MODIFY_LDT, 0, 0, 0),
		calling("shared memory", unix.SYS_SHMGET, 0, 4096, 0),
		calling("the kernel's log", unix.SYS_SYSLOG, 2, 0, 0),
		calling("a call by its x32 number", unix.SYS_GETPID|x32),
		calling("a call that does not exist", inventedCall),
	}
}

func takeCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	all := [2]unix.CapUserData{}
	for index := range all {
		all[index] = unix.CapUserData{Effective: ^uint32(0), Permitted: ^uint32(0)}
	}
	return unix.Capset(&header, &all[0])
}

func raiseLimit() error {
	limit := unix.Rlimit{Cur: 1, Max: 1}
	return call(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, uintptr(unsafe.Pointer(&limit)), 0)
}
