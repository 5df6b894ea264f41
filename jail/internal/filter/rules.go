package filter

import (
	"slices"

	"golang.org/x/sys/unix"
)

// newestKnown is the newest system call whose effect was assessed for this list (mseal, Linux 6.10). Newer calls do not
// exist here: a library then does without them.
const newestKnown = unix.SYS_MSEAL

// forbidden are the calls that a virtual machine monitor with all its files and sockets open never makes. They are
// grouped by the reason why an escaped guest would make them.
var forbidden = [][]uint32{
	// Other processes: to read, change, signal or find them.
	{
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE,
		unix.SYS_PROCESS_MRELEASE, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_KCMP,
		unix.SYS_TKILL, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES, unix.SYS_GET_ROBUST_LIST, unix.SYS_SETPRIORITY,
		unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETATTR, unix.SYS_SCHED_SETAFFINITY,
		unix.SYS_IOPRIO_SET,
	},
	// More processes. The launcher's own execve comes after the filter, so that one call must stay.
	{unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_EXECVEAT},
	// File systems and namespaces.
	{
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT,
		unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_STATMOUNT,
		unix.SYS_LISTMOUNT, unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SWAPON,
		unix.SYS_SWAPOFF, unix.SYS_FANOTIFY_INIT,
	},
	// Names for things elsewhere: the runner, which is root, opens files in the socket directory.
	{
		unix.SYS_SYMLINK, unix.SYS_SYMLINKAT, unix.SYS_LINK, unix.SYS_LINKAT, unix.SYS_MKNOD, unix.SYS_MKNODAT,
		unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT,
	},
	// Shared objects of the kernel.
	{
		unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMCTL,
		unix.SYS_SEMTIMEDOP, unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL, unix.SYS_MQ_OPEN,
		unix.SYS_MQ_UNLINK, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	},
	// Identity and capabilities.
	{
		unix.SYS_SETUID, unix.SYS_SETGID, unix.SYS_SETREUID, unix.SYS_SETREGID, unix.SYS_SETRESUID, unix.SYS_SETRESGID,
		unix.SYS_SETGROUPS, unix.SYS_SETFSUID, unix.SYS_SETFSGID, unix.SYS_CAPSET, unix.SYS_PERSONALITY,
	},
	// Complex parts of the kernel, and its control.
	{
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
		unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_CREATE_MODULE,
		unix.SYS_QUERY_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT,
		unix.SYS_REBOOT, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME,
		unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_ACCT, unix.SYS_SYSLOG, unix.SYS_VHANGUP, unix.SYS_NFSSERVCTL,
		unix.SYS_LOOKUP_DCOOKIE, unix.SYS_USELIB, unix.SYS__SYSCTL, unix.SYS_SYSFS, unix.SYS_USTAT, unix.SYS_MEMFD_SECRET,
	},
}

// absent are calls that libraries try first and replace if the kernel does not have them. The filter cannot inspect
// the arguments of clone3, and io_uring carries out other calls that the filter would not see.
var absent = []uint32{
	unix.SYS_CLONE3, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
}

// namespaceFlags are the clone flags that make a new namespace.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

const socketTypeMask = 0xf

// fioSetOwner is FIOSETOWN of asm-generic/sockios.h.
const fioSetOwner = 0x8901

// forbiddenRequests are ioctl requests that reach beyond what QEMU does with its TAP, or that send signals or input to
// others. TUNGETDEVNETNS, the last of the TAP's, would open the host's network namespace.
var forbiddenRequests = []uint32{
	unix.TUNSETIFF, unix.TUNSETPERSIST, unix.TUNSETOWNER, unix.TUNSETGROUP, unix.TUNSETLINK, unix.TUNSETDEBUG,
	unix.TUNSETCARRIER, unix.TUNATTACHFILTER, unix.TUNDETACHFILTER, unix.TUNSETFILTEREBPF, unix.TUNSETSTEERINGEBPF,
	unix.TUNSETTXFILTER, unix.TUNGETDEVNETNS, unix.SIOCGSKNS, unix.SIOCSIFHWADDR, unix.TIOCSTI, unix.TIOCLINUX,
	fioSetOwner, unix.SIOCSPGRP,
}

// forbiddenCommands are fcntl commands that would make the kernel send signals to others.
var forbiddenCommands = []uint32{unix.F_SETOWN, unix.F_SETOWN_EX, unix.F_SETSIG}

// signalCalls are the calls that name a process in their first argument.
var signalCalls = []uint32{
	unix.SYS_KILL, unix.SYS_TGKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
}

type rule struct {
	number     uint32
	conditions []condition
	errno      unix.Errno
}

func equal(argument int, value uint32) condition {
	return condition{argument: argument, operator: unix.BPF_JEQ, value: value}
}

func equalHigh(argument int, value uint32) condition {
	return condition{argument: argument, high: true, operator: unix.BPF_JEQ, value: value}
}

func not(c condition) condition {
	c.negated = !c.negated
	return c
}

// rulesFor lists what a program with the process id `pid` may not do. The program keeps that id when it is executed.
func rulesFor(pid uint32, options Options) []rule {
	rules := []rule{}
	for _, number := range slices.Concat(forbidden...) {
		rules = append(rules, rule{number: number, errno: unix.EPERM})
	}
	for _, number := range absent {
		rules = append(rules, rule{number: number, errno: unix.ENOSYS})
	}
	if options.NoFallocate {
		rules = append(rules, rule{number: unix.SYS_FALLOCATE, errno: unix.EOPNOTSUPP})
	}
	if !options.MayConnect {
		rules = append(rules, rule{number: unix.SYS_CONNECT, errno: unix.EPERM})
	}
	return slices.Concat(rules, processRules(pid), socketRules(), requestRules(), memoryRules())
}

func processRules(pid uint32) []rule {
	thread := condition{argument: 0, mask: unix.CLONE_THREAD, operator: unix.BPF_JEQ, value: unix.CLONE_THREAD}
	space := condition{argument: 0, mask: namespaceFlags, operator: unix.BPF_JEQ}
	rules := []rule{
		{unix.SYS_CLONE, []condition{not(thread)}, unix.EPERM},
		{unix.SYS_CLONE, []condition{not(space)}, unix.EPERM},
		// A program that ends with the runner cannot change that.
		{unix.SYS_PRCTL, []condition{equal(0, unix.PR_SET_PDEATHSIG)}, unix.EPERM},
		{unix.SYS_PRLIMIT64, []condition{not(equal(0, 0)), not(equal(0, pid))}, unix.EPERM},
		// The runner raises the size of files when the VM gets a larger disk. An address has two halves.
		{unix.SYS_SETRLIMIT, []condition{equal(0, unix.RLIMIT_FSIZE)}, unix.EPERM},
		{unix.SYS_PRLIMIT64, []condition{equal(1, unix.RLIMIT_FSIZE), not(equal(2, 0))}, unix.EPERM},
		{unix.SYS_PRLIMIT64, []condition{equal(1, unix.RLIMIT_FSIZE), not(equalHigh(2, 0))}, unix.EPERM},
	}
	for _, number := range signalCalls {
		rules = append(rules, rule{number, []condition{not(equal(0, pid))}, unix.EPERM})
	}
	return rules
}

// socketRules allows only stream sockets of the family Unix. Such a socket can be given an address only by connect.
func socketRules() []rule {
	stream := condition{argument: 1, mask: socketTypeMask, operator: unix.BPF_JEQ, value: unix.SOCK_STREAM}
	rules := []rule{}
	for _, number := range []uint32{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR} {
		rules = append(rules,
			rule{number, []condition{not(equal(0, unix.AF_UNIX))}, unix.EAFNOSUPPORT},
			rule{number, []condition{not(stream)}, unix.EPERM})
	}
	return rules
}

// memoryRules refuses huge pages, which QEMU requests for all RAM. If the file system has large folios (ext4 since
// Linux 6.16, xfs), the kernel would then read 2 MiB of zeros at the first access to a hole in the RAM file, and mark
// all 2 MiB as changed when the guest changes one byte. QEMU ignores the error.
func memoryRules() []rule {
	return []rule{{unix.SYS_MADVISE, []condition{equal(2, unix.MADV_HUGEPAGE)}, unix.EINVAL}}
}

func requestRules() []rule {
	rules := []rule{}
	for _, request := range forbiddenRequests {
		rules = append(rules, rule{unix.SYS_IOCTL, []condition{equal(1, request)}, unix.EPERM})
	}
	for _, command := range forbiddenCommands {
		rules = append(rules, rule{unix.SYS_FCNTL, []condition{equal(1, command)}, unix.EPERM})
	}
	return rules
}
