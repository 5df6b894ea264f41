package workspace

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// endUsers kills the processes that use the file system of a device, and returns their number. They end later. thorough
// also ends every process in another mount namespace: what it has mounted, as a container engine does, may use the file
// system without a sign of it.
func endUsers(device uint64, thorough bool) (count int, err error) {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return 0, err
	}
	names, err := listNames("/proc")
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() || pid == 1 {
			continue
		}
		process := usage{directory: filepath.Join("/proc", name), device: device}
		if !process.uses(own, thorough) {
			continue
		}
		count++
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
			slog.Warn("a process that uses the disk was not killed", "pid", pid, "error", err)
		}
	}
	return count, nil
}

// usage looks for a device in what a process uses. A process that ends in the meantime uses nothing.
type usage struct {
	directory string
	device    uint64
}

func (u usage) uses(ownNamespace string, thorough bool) bool {
	if _, err := os.Readlink(filepath.Join(u.directory, "exe")); err != nil {
		// A kernel thread, or a process that has ended.
		return false
	}
	namespace, err := os.Readlink(filepath.Join(u.directory, "ns/mnt"))
	if err != nil {
		return false
	}
	isForeign := namespace != ownNamespace
	return u.hasFiles() || u.hasMapped() || isForeign && (thorough || u.hasMounted())
}

func (u usage) hasFiles() bool {
	links := []string{"cwd", "root", "exe"}
	descriptors, err := listNames(filepath.Join(u.directory, "fd"))
	if err == nil {
		for _, descriptor := range descriptors {
			links = append(links, "fd/"+descriptor)
		}
	}
	return slices.ContainsFunc(links, u.isOnDevice)
}

// isOnDevice asks the kernel alone, and not a file system in a user process, which may be frozen.
func (u usage) isOnDevice(link string) bool {
	var state unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, filepath.Join(u.directory, link), unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, 0, &state)
	return err == nil && unix.Mkdev(state.Dev_major, state.Dev_minor) == u.device
}

func (u usage) hasMapped() bool {
	file, err := os.Open(filepath.Join(u.directory, "maps"))
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	const fieldDevice = 3
	wanted := fmt.Sprintf("%02x:%02x", unix.Major(u.device), unix.Minor(u.device))
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > fieldDevice && fields[fieldDevice] == wanted {
			return true
		}
	}
	return false
}

func (u usage) hasMounted() bool {
	table, err := readMounts(filepath.Join(u.directory, "mountinfo"))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(table, func(entry mountEntry) bool { return entry.device == u.device })
}

func listNames(path string) ([]string, error) {
	directory, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	names, err := directory.Readdirnames(-1)
	_ = directory.Close()
	return names, err
}
