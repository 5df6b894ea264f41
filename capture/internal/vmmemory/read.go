package vmmemory

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"coppice/capture/internal/fault"
)

// MaxRuns is the most runs that one read takes: the kernel's limit of a vector.
const MaxRuns = 1024

// Run is a range of RAM in bytes. Offset counts from the start of the RAM.
type Run struct{ Offset, Length uint64 }

// Read fills buffer with the runs, one after the other. The buffer must be as long as the runs together.
func (m *Memory) Read(buffer []byte, runs []Run) error {
	remote := make([]unix.RemoteIovec, len(runs))
	for i, run := range runs {
		remote[i] = unix.RemoteIovec{Base: uintptr(m.address + run.Offset), Len: int(run.Length)}
	}
	for len(buffer) > 0 {
		local := []unix.Iovec{{Base: &buffer[0], Len: uint64(len(buffer))}}
		count, err := unix.ProcessVMReadv(m.pid, local, remote, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return m.explain(err)
		}
		if count == 0 {
			return errors.New("reading the VM's RAM: the kernel returns no more bytes")
		}
		buffer, remote = buffer[count:], skip(remote, count)
	}
	return nil
}

// ReadInto reads each run to its own place in a mapping of all of the RAM. The kernel writes to that mapping, so if the
// mapping's file fails, the result is an error and not a signal. ReadInto returns false if it could not read
// everything, for any reason; Read finds the reason.
func (m *Memory) ReadInto(mapped []byte, runs []Run) bool {
	local, remote := make([]unix.Iovec, len(runs)), make([]unix.RemoteIovec, len(runs))
	wanted := 0
	for i, run := range runs {
		local[i] = unix.Iovec{Base: &mapped[run.Offset], Len: run.Length}
		remote[i] = unix.RemoteIovec{Base: uintptr(m.address + run.Offset), Len: int(run.Length)}
		wanted += int(run.Length)
	}
	count, err := unix.ProcessVMReadv(m.pid, local, remote, 0)
	return err == nil && count == wanted
}

func (m *Memory) explain(err error) error {
	// A process that has ended and was not waited for yet still exists, without memory.
	if errors.Is(err, unix.ESRCH) || !m.isAlive() {
		return fault.ErrVMGone
	}
	// The module yama allows only root and a process's ancestors to read it. An ordinary user's service is neither.
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("reading the VM's RAM: %w (without root, kernel.yama.ptrace_scope has to be 0)", err)
	}
	return fmt.Errorf("reading the VM's RAM: %w", err)
}

func skip(remote []unix.RemoteIovec, count int) []unix.RemoteIovec {
	for len(remote) > 0 && count >= remote[0].Len {
		count -= remote[0].Len
		remote = remote[1:]
	}
	if count > 0 {
		remote[0].Base += uintptr(count)
		remote[0].Len -= count
	}
	return remote
}

func addressOf(bytes []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(bytes)))) }
