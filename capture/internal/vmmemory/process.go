// Package vmmemory reads the memory of a VM, which is a process with a private mapping of its RAM file. An escaped
// guest may control the process: its mappings can change at any time, and nothing that it shows is trusted beyond its
// own memory.
package vmmemory

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"coppice/capture/internal/fault"
)

// PageSize is the page size of the machine in bytes. x86-64 has no other, and RAM does not use huge pages.
const PageSize = 4096

// Memory is the RAM of one VM.
type Memory struct {
	pid int
	// directory is /proc/<pid>. It stays that of this process, even if another process gets the number later.
	directory *os.File
	pagemap   *os.File
	address   uint64
	size      uint64
}

// Open finds the process's private mapping of the whole of base, size bytes.
func Open(pid int, base *os.File, size uint64) (*Memory, error) {
	directory, err := openProcess(pid)
	if err != nil {
		return nil, err
	}
	memory := &Memory{pid: pid, directory: directory, size: size}
	if err := memory.find(base); err != nil {
		memory.Close()
		return nil, err
	}
	return memory, nil
}

// Close releases the process.
func (m *Memory) Close() {
	m.directory.Close()
	if m.pagemap != nil {
		m.pagemap.Close()
	}
}

func openProcess(pid int) (*os.File, error) {
	path := filepath.Join("/proc", strconv.Itoa(pid))
	descriptor, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, fault.ErrVMGone
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(descriptor), path), nil
}

func (m *Memory) find(base *os.File) error {
	file, err := identify(base)
	if err != nil {
		return fmt.Errorf("identifying the base: %w", err)
	}
	maps, err := m.open("maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	if m.address, err = findWhole(maps, file, m.size); err != nil {
		if !m.isAlive() {
			return fault.ErrVMGone
		}
		return fmt.Errorf("looking for the VM's RAM: %w", err)
	}
	m.pagemap, err = m.open("pagemap")
	return err
}

func (m *Memory) open(name string) (*os.File, error) {
	descriptor, err := unix.Openat(int(m.directory.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return nil, fault.ErrVMGone
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: filepath.Join(m.directory.Name(), name), Err: err}
	}
	return os.NewFile(uintptr(descriptor), name), nil
}

// Check returns ErrVMGone unless everything that was read so far came from this process: while the process exists, no
// other process has its number.
func (m *Memory) Check() error {
	if m.isAlive() {
		return nil
	}
	return fault.ErrVMGone
}

func (m *Memory) isAlive() bool {
	status, err := m.open("stat")
	if err == nil {
		status.Close()
	}
	return err == nil
}

// identify maps a page of the file in this process, to see how the kernel names the file in maps.
func identify(file *os.File) (fileID, error) {
	page, err := unix.Mmap(int(file.Fd()), 0, PageSize, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return fileID{}, fmt.Errorf("mapping it: %w", err)
	}
	defer unix.Munmap(page)
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return fileID{}, err
	}
	defer maps.Close()
	address := addressOf(page)
	var found *fileID
	err = readMappings(maps, func(each mapping) error {
		if each.start <= address && address < each.end {
			found = &each.file
		}
		return nil
	})
	if err == nil && found == nil {
		err = errors.New("it is not among the mappings of this process")
	}
	if err != nil {
		return fileID{}, err
	}
	return *found, nil
}
