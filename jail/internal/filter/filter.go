// Package filter is the second of two filters of system calls. QEMU has its own (`-sandbox`), but QEMU installs it
// itself, after it has read its arguments and made its devices, and it differs between versions. This filter is active
// from QEMU's first instruction and works for any program.
package filter

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// x32Bit marks the call numbers of the x32 interface: the same kernel functions under numbers that no rule names.
const x32Bit = 0x40000000

// The gap holds numbers that this architecture left out. Newer kernels have given calls to some of them after all.
const (
	gapStart = unix.SYS_RSEQ + 1
	gapEnd   = unix.SYS_PIDFD_SEND_SIGNAL
)

// Options are what differs between programs.
type Options struct {
	// NoFallocate refuses fallocate.
	NoFallocate bool
	// MayConnect allows connect. Only Unix streams can be made; in a jail they reach only its own mounts.
	MayConnect bool
}

// Install applies the filter to the calling thread, permanently. The kernel refuses it without no_new_privs.
func Install(options Options) error {
	rules := rulesFor(uint32(os.Getpid()), options)
	program := assemble(rules)
	description := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&description)))
	if errno != 0 {
		return fmt.Errorf("filtering system calls: %w", errno)
	}
	return nil
}

// assemble makes the program: first the checks that the numbers in the rules depend on, then the rules. A call that no
// rule names is allowed.
func assemble(rules []rule) []unix.SockFilter {
	program := []unix.SockFilter{
		loadWord(offsetArchitecture),
		jump(unix.BPF_JEQ, unix.AUDIT_ARCH_X86_64, 1, 0),
		answer(unix.SECCOMP_RET_KILL_PROCESS),
		loadWord(offsetNumber),
		jump(unix.BPF_JGE, x32Bit, 0, 1),
		answer(refuse(unix.EPERM)),
		jump(unix.BPF_JGT, newestKnown, 0, 1),
		answer(refuse(unix.ENOSYS)),
		jump(unix.BPF_JGE, gapEnd, 2, 0),
		jump(unix.BPF_JGE, gapStart, 0, 1),
		answer(refuse(unix.ENOSYS)),
	}
	for _, rule := range rules {
		program = append(program, assembleRule(rule.number, rule.conditions, refuse(rule.errno))...)
	}
	return append(program, answer(unix.SECCOMP_RET_ALLOW))
}
