package filter

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	ownPid = 4711
	allow  = unix.SECCOMP_RET_ALLOW
)

// run executes a program as the kernel does. It knows the instructions that the assembly makes.
func run(t *testing.T, program []unix.SockFilter, data []byte) uint32 {
	t.Helper()
	var accumulator uint32
	for at := 0; at < len(program); at++ {
		each := program[at]
		holds := false
		switch each.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			accumulator = binary.NativeEndian.Uint32(data[each.K:])
			continue
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			accumulator &= each.K
			continue
		case unix.BPF_RET | unix.BPF_K:
			return each.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			holds = accumulator == each.K
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			holds = accumulator >= each.K
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			holds = accumulator > each.K
		default:
			t.Fatalf("instruction %d has the unknown code %#x", at, each.Code)
		}
		if holds {
			at += int(each.Jt)
		} else {
			at += int(each.Jf)
		}
	}
	t.Fatal("the program does not end")
	return 0
}

func ask(t *testing.T, architecture uint32, number uint64, arguments ...uint64) uint32 {
	t.Helper()
	data := make([]byte, 64)
	binary.NativeEndian.PutUint32(data[offsetNumber:], uint32(number))
	binary.NativeEndian.PutUint32(data[offsetArchitecture:], architecture)
	for index, argument := range arguments {
		binary.NativeEndian.PutUint64(data[offsetArguments+8*index:], argument)
	}
	return run(t, assemble(rulesFor(ownPid, Options{})), data)
}

func TestOptionsAllowAndRefuseOneCallEach(t *testing.T) {
	for _, test := range []struct {
		options   Options
		connect   uint32
		fallocate uint32
	}{
		{Options{}, refuse(unix.EPERM), allow},
		{Options{NoFallocate: true}, refuse(unix.EPERM), refuse(unix.EOPNOTSUPP)},
		{Options{MayConnect: true}, allow, allow},
	} {
		program := assemble(rulesFor(ownPid, test.options))
		for number, want := range map[uint32]uint32{unix.SYS_CONNECT: test.connect, unix.SYS_FALLOCATE: test.fallocate} {
			data := make([]byte, 64)
			binary.NativeEndian.PutUint32(data[offsetNumber:], number)
			binary.NativeEndian.PutUint32(data[offsetArchitecture:], unix.AUDIT_ARCH_X86_64)
			if got := run(t, program, data); got != want {
				t.Errorf("%+v, call %d: got %#x, want %#x", test.options, number, got, want)
			}
		}
	}
}

func TestCallsAreAnsweredByNumberAndArguments(t *testing.T) {
	const threadFlags = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD
	const high = 1 << 32
	for _, test := range []struct {
		name      string
		number    uint64
		arguments []uint64
		want      uint32
	}{
		{"the call that QEMU reads with", unix.SYS_READ, nil, allow},
		{"the call that starts the program", unix.SYS_EXECVE, nil, allow},
		{"QEMU's own filter", unix.SYS_SECCOMP, nil, allow},
		{"tracing", unix.SYS_PTRACE, nil, refuse(unix.EPERM)},
		{"the last forbidden call", unix.SYS_MEMFD_SECRET, nil, refuse(unix.EPERM)},
		{"clone3", unix.SYS_CLONE3, nil, refuse(unix.ENOSYS)},
		{"a thread", unix.SYS_CLONE, []uint64{threadFlags}, allow},
		{"a process", unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, refuse(unix.EPERM)},
		{"a thread in a namespace", unix.SYS_CLONE, []uint64{threadFlags | unix.CLONE_NEWNET}, refuse(unix.EPERM)},
		{"a signal to itself", unix.SYS_TGKILL, []uint64{ownPid, 1, 6}, allow},
		{"a signal to another process", unix.SYS_TGKILL, []uint64{ownPid + 1, 1, 6}, refuse(unix.EPERM)},
		{"a signal to all processes", unix.SYS_KILL, []uint64{^uint64(0), 9}, refuse(unix.EPERM)},
		{"its own limits by 0", unix.SYS_PRLIMIT64, []uint64{0}, allow},
		{"its own limits by number", unix.SYS_PRLIMIT64, []uint64{ownPid}, allow},
		{"its own size of files", unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_FSIZE, 0, 1}, allow},
		{"another size of files", unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_FSIZE, 8}, refuse(unix.EPERM)},
		{"another size of files, at a high address", unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_FSIZE, high}, refuse(unix.EPERM)},
		{"another size of files, by the older call", unix.SYS_SETRLIMIT, []uint64{unix.RLIMIT_FSIZE, 8}, refuse(unix.EPERM)},
		{"another number of open files", unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_NOFILE, 8}, allow},
		{"limits of another process", unix.SYS_PRLIMIT64, []uint64{1}, refuse(unix.EPERM)},
		{"a Unix stream", unix.SYS_SOCKET, []uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC}, allow},
		{"a Unix datagram", unix.SYS_SOCKET, []uint64{unix.AF_UNIX, unix.SOCK_DGRAM}, refuse(unix.EPERM)},
		{"an IPv4 socket", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM}, refuse(unix.EAFNOSUPPORT)},
		{"a harmless ioctl", unix.SYS_IOCTL, []uint64{3, unix.TUNGETIFF}, allow},
		{"the TAP's owner", unix.SYS_IOCTL, []uint64{3, unix.TUNSETOWNER}, refuse(unix.EPERM)},
		{"bits that the kernel drops", unix.SYS_IOCTL, []uint64{3, high | unix.TUNSETOWNER}, refuse(unix.EPERM)},
		{"a family with bits that the kernel drops", unix.SYS_SOCKET, []uint64{high | unix.AF_INET}, refuse(unix.EAFNOSUPPORT)},
		{"clone with bits that the kernel drops", unix.SYS_CLONE, []uint64{high}, refuse(unix.EPERM)},
		{"the last forbidden fcntl", unix.SYS_FCNTL, []uint64{3, unix.F_SETSIG}, refuse(unix.EPERM)},
		{"a harmless fcntl", unix.SYS_FCNTL, []uint64{3, unix.F_GETFD}, allow},
		{"advice to keep a part of the memory out of children", unix.SYS_MADVISE, []uint64{0, 4096, unix.MADV_DONTFORK}, allow},
		{"advice to use huge pages", unix.SYS_MADVISE, []uint64{0, 4096, unix.MADV_HUGEPAGE}, refuse(unix.EINVAL)},
		{"the newest call that was assessed", newestKnown, nil, allow},
		{"a newer call", newestKnown + 1, nil, refuse(unix.ENOSYS)},
		{"the last call before the gap", unix.SYS_RSEQ, nil, allow},
		{"the first number in the gap", 335, nil, refuse(unix.ENOSYS)},
		{"the last number in the gap", 423, nil, refuse(unix.ENOSYS)},
		{"the first call after the gap", 424, nil, refuse(unix.EPERM)},
		{"x32", unix.SYS_READ | x32Bit, nil, refuse(unix.EPERM)},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := ask(t, unix.AUDIT_ARCH_X86_64, test.number, test.arguments...); got != test.want {
				t.Errorf("got %#x, want %#x", got, test.want)
			}
		})
	}
}

func TestNoOtherArchitectureIsServed(t *testing.T) {
	if got := ask(t, unix.AUDIT_ARCH_I386, unix.SYS_READ); got != unix.SECCOMP_RET_KILL_PROCESS {
		t.Errorf("got %#x", got)
	}
}

func TestNoRuleIsOutOfReachOfItsOwnJumps(t *testing.T) {
	for _, each := range rulesFor(ownPid, Options{}) {
		length := len(assembleRule(each.number, each.conditions, allow))
		if length > 0xff {
			t.Errorf("the rule for call %d has %d instructions", each.number, length)
		}
	}
	if length := len(assemble(rulesFor(ownPid, Options{}))); length > unix.BPF_MAXINSNS {
		t.Errorf("the filter has %d instructions", length)
	}
}
