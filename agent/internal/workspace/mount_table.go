package workspace

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mountEntry is one line of /proc/<pid>/mountinfo.
type mountEntry struct {
	device uint64
	point  string
}

func readMounts(path string) ([]mountEntry, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseMounts(string(text)), nil
}

// parseMounts leaves out lines that it does not understand.
func parseMounts(text string) []mountEntry {
	const fieldDevice, fieldPoint, fieldCount = 2, 4, 5
	var table []mountEntry
	for _, line := range strings.Split(text, "\n") {
		fields := strings.Split(line, " ")
		if len(fields) < fieldCount {
			continue
		}
		var major, minor uint32
		if _, err := fmt.Sscanf(fields[fieldDevice], "%d:%d", &major, &minor); err != nil {
			continue
		}
		table = append(table, mountEntry{unix.Mkdev(major, minor), unescape(fields[fieldPoint])})
	}
	return table
}

// unescape replaces \ooo, by which the kernel writes blanks and backslashes in paths.
func unescape(path string) string {
	const escapeBytes, base, bits = 4, 8, 8
	var plain strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] == '\\' && i+escapeBytes <= len(path) {
			if code, err := strconv.ParseUint(path[i+1:i+escapeBytes], base, bits); err == nil {
				plain.WriteByte(byte(code))
				i += escapeBytes - 1
				continue
			}
		}
		plain.WriteByte(path[i])
	}
	return plain.String()
}

// selectMounts returns the mounts of a device, and those that are mounted below them, in the order of the table, which
// is that of mounting.
func selectMounts(table []mountEntry, device uint64) []mountEntry {
	var points []string
	for _, entry := range table {
		if entry.device == device {
			points = append(points, entry.point)
		}
	}
	var selected []mountEntry
	for _, entry := range table {
		if entry.device == device || isBelowAny(entry.point, points) {
			selected = append(selected, entry)
		}
	}
	return selected
}

func isBelowAny(point string, points []string) bool {
	for _, above := range points {
		if strings.HasPrefix(point, above+"/") {
			return true
		}
	}
	return false
}
