// Package mapper runs a process with a private mapping of a file, like a VM, for tests to read. A test's own program is
// started again as this process: each package that uses mapper calls Serve first in an init.
package mapper

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const role = "as-mapper"

// Serve turns this program into the process if it was started for that. Then it never returns.
func Serve() {
	if len(os.Args) != 4 || os.Args[1] != role {
		return
	}
	size, err := strconv.ParseInt(os.Args[3], 10, 64)
	if err == nil {
		err = serve(os.Args[2], int(size))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(path string, size int) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	memory, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	fmt.Println("done")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if err := obey(memory, file, lines.Text()); err != nil {
			return err
		}
		fmt.Println("done")
	}
	return nil
}

func obey(memory []byte, file *os.File, line string) error {
	var order, path string
	var offset, length, value int
	if strings.HasPrefix(line, "dump ") {
		path = strings.TrimPrefix(line, "dump ")
		return os.WriteFile(path, memory, 0o600)
	}
	if _, err := fmt.Sscan(line, &order, &offset, &length, &value); err != nil {
		return err
	}
	part := memory[offset : offset+length]
	switch order {
	case "fill":
		for i := range part {
			part[i] = byte(value)
		}
	case "dirty": // one byte of every value-th page
		for i := 0; i < length; i += value * 4096 {
			part[i]++
		}
	case "read":
		for i := 0; i < length; i += 4096 {
			value += int(part[i])
		}
	case "advise":
		return unix.Madvise(part, value)
	case "unmap":
		_, _, errno := unix.Syscall(unix.SYS_MUNMAP, addressOf(part), uintptr(length), 0)
		if errno != 0 {
			return errno
		}
	case "map":
		_, err := unix.Mmap(int(file.Fd()), int64(offset), length, unix.PROT_READ, value)
		return err
	default:
		return fmt.Errorf("unknown order %q", line)
	}
	return nil
}

// Process is a running process of this package.
type Process struct {
	Pid     int
	command *exec.Cmd
	stdin   io.WriteCloser
	answers *bufio.Scanner
}

// Start starts a process that maps size bytes of the file. The process ends with the test at the latest.
func Start(t testing.TB, path string, size int64) *Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(self, role, path, strconv.FormatInt(size, 10))
	command.Stderr = os.Stderr
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	process := &Process{command.Process.Pid, command, stdin, bufio.NewScanner(stdout)}
	t.Cleanup(process.End)
	process.expectDone(t, "start")
	return process
}

// Fill writes a value to a range of memory.
func (p *Process) Fill(t testing.TB, offset, length int64, value byte) {
	t.Helper()
	p.order(t, fmt.Sprintf("fill %d %d %d", offset, length, value))
}

// Dirty changes every step-th page of a range.
func (p *Process) Dirty(t testing.TB, offset, length int64, step int) {
	t.Helper()
	p.order(t, fmt.Sprintf("dirty %d %d %d", offset, length, step))
}

// Read touches each page of a range.
func (p *Process) Read(t testing.TB, offset, length int64) {
	t.Helper()
	p.order(t, fmt.Sprintf("read %d %d 0", offset, length))
}

// Advise calls madvise(2) for a range.
func (p *Process) Advise(t testing.TB, offset, length int64, advice int) {
	t.Helper()
	p.order(t, fmt.Sprintf("advise %d %d %d", offset, length, advice))
}

// Unmap removes a range from the mapping.
func (p *Process) Unmap(t testing.TB, offset, length int64) {
	t.Helper()
	p.order(t, fmt.Sprintf("unmap %d %d 0", offset, length))
}

// Map maps a range of the file once more, at any address.
func (p *Process) Map(t testing.TB, offset, length int64, flags int) {
	t.Helper()
	p.order(t, fmt.Sprintf("map %d %d %d", offset, length, flags))
}

// Dump writes the memory that the process sees to a file.
func (p *Process) Dump(t testing.TB, path string) {
	t.Helper()
	p.order(t, "dump "+path)
}

// End kills the process.
func (p *Process) End() {
	_ = p.command.Process.Kill()
	_ = p.command.Wait()
}

func (p *Process) order(t testing.TB, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(p.stdin, line); err != nil {
		t.Fatal(err)
	}
	p.expectDone(t, line)
}

func (p *Process) expectDone(t testing.TB, what string) {
	t.Helper()
	if !p.answers.Scan() || p.answers.Text() != "done" {
		t.Fatalf("%s: the process answered %q, %v", what, p.answers.Text(), p.answers.Err())
	}
}

func addressOf(bytes []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(bytes))) }
