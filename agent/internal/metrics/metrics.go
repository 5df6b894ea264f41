// Package metrics measures how much of the guest is in use. It reads the guest's own /proc, where root in the guest can
// lie. Billing uses measurements of the host.
package metrics

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/api"
	"coppice/agent/internal/guestfile"
)

// maxProcBytes bounds how much of one file in /proc is read.
const maxProcBytes = 64 << 10

// Metrics is the answer of GET /metrics.
type Metrics struct {
	MemTotalBytes     uint64  `json:"mem_total_bytes"`
	MemAvailableBytes uint64  `json:"mem_available_bytes"`
	DiskTotalBytes    uint64  `json:"disk_total_bytes"`
	DiskUsedBytes     uint64  `json:"disk_used_bytes"`
	Load1             float64 `json:"load1"`
	// Processes does not count kernel threads or the agent.
	Processes int `json:"processes"`
}

// Get answers GET /metrics.
func Get(w http.ResponseWriter, _ *http.Request) error {
	measured, err := Read("/")
	if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, measured)
	return nil
}

// Read measures the guest with the given root.
func Read(root string) (Metrics, error) {
	var m Metrics
	proc := filepath.Join(root, "proc")
	meminfo, err := guestfile.ReadBounded(filepath.Join(proc, "meminfo"), maxProcBytes)
	if err != nil {
		return m, fmt.Errorf("memory: %w", err)
	}
	m.MemTotalBytes, m.MemAvailableBytes = parseMeminfo(meminfo)
	loadavg, err := guestfile.ReadBounded(filepath.Join(proc, "loadavg"), maxProcBytes)
	if err != nil {
		return m, fmt.Errorf("load: %w", err)
	}
	m.Load1 = parseLoad(loadavg)
	var disk unix.Statfs_t
	if err := unix.Statfs(root, &disk); err != nil {
		return m, fmt.Errorf("disk: %w", err)
	}
	block := uint64(disk.Bsize)
	m.DiskTotalBytes, m.DiskUsedBytes = disk.Blocks*block, (disk.Blocks-disk.Bfree)*block
	m.Processes, err = countProcesses(proc)
	return m, err
}

func parseMeminfo(content []byte) (total, available uint64) {
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		kib, err := strconv.ParseUint(fields[1], 10, 54)
		if err != nil {
			continue
		}
		switch fields[0] {
		case "MemTotal:":
			total = kib << 10
		case "MemAvailable:":
			available = kib << 10
		}
	}
	return total, available
}

func parseLoad(content []byte) float64 {
	first, _, _ := strings.Cut(string(content), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil || load != load || load < 0 || load > 1e9 {
		return 0
	}
	return load
}

// kernelThread is PF_KTHREAD, one of the flags in /proc/<pid>/stat.
const kernelThread = 0x00200000

func countProcesses(proc string) (int, error) {
	names, err := readDirectory(proc)
	if err != nil {
		return 0, fmt.Errorf("processes: %w", err)
	}
	count := 0
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err != nil || pid == 1 {
			continue
		}
		stat, err := guestfile.ReadBounded(filepath.Join(proc, name, "stat"), maxProcBytes)
		if err == nil && !isKernelThread(stat) {
			count++
		}
	}
	return count, nil
}

func readDirectory(path string) ([]string, error) {
	opened, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	names, err := opened.Readdirnames(-1)
	if closeErr := opened.Close(); err == nil {
		err = closeErr
	}
	return names, err
}

// isKernelThread reads the flags, the seventh field after the name. The name is in parentheses and may contain spaces
// and parentheses.
func isKernelThread(stat []byte) bool {
	const flagsAfterName = 6
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= flagsAfterName {
		return false
	}
	flags, err := strconv.ParseUint(fields[flagsAfterName], 10, 64)
	return err == nil && flags&kernelThread != 0
}
