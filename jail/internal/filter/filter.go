// Package filter is the second of two filters of system calls. QEMU has one of its own (`-sandbox`), but puts it in
// place itself, after it has read its arguments and made its devices, and it differs between versions. This one is
// there from QEMU's first instruction and holds for any program.
package filter

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// x32 numbers its calls from here: the same kernel functions under numbers that no rule names.
const x32Bit = 0x40000000

// Numbers that were left out on this architecture, and to which newer kernels have given calls after all.
const (
	gapStart = unix.SYS_RSEQ + 1
	gapEnd   = unix.SYS_PIDFD_SEND_SIGNAL
)

// Install applies the filter to the calling thread, for good. It needs no_new_privs, or the kernel refuses it.
func Install() error {
	program := assemble(rulesFor(uint32(os.Getpid())))
	description := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&description)))
	if errno != 0 {
		return fmt.Errorf("filtering system calls: %w", errno)
	}
	return nil
}

// assemble makes the program: first what the numbers of the rules rest on, then the rules, and what none of them
// names is allowed.
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
