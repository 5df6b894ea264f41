package vmmemory

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
)

const (
	// maxMappings is above the kernel's own limit, which is 65,530 unless an administrator raised it.
	maxMappings = 1 << 20
	// maxLineBytes has room for a path of 4,096 bytes, each written as four.
	maxLineBytes = 64 << 10
)

// fileID is the identity of a file that the kernel shows in maps. On btrfs and overlayfs its device is not that of
// stat.
type fileID struct{ major, minor, inode uint64 }

type mapping struct {
	start, end, offset uint64
	private            bool
	file               fileID
}

func (m mapping) size() uint64 { return m.end - m.start }

// mapsLine has start, end, permissions, offset, device, inode, and a name if there is one. The kernel escapes newlines
// in a name.
var mapsLine = regexp.MustCompile(
	`^([0-9a-f]{1,16})-([0-9a-f]{1,16}) [r-][w-][x-]([ps]) ([0-9a-f]{1,16}) ([0-9a-f]{1,8}):([0-9a-f]{1,8}) ([0-9]{1,20})(?: .*)?$`)

// readMappings calls visit for each mapping in maps, which has the format of proc(5).
func readMappings(maps io.Reader, visit func(mapping) error) error {
	scanner := bufio.NewScanner(maps)
	scanner.Buffer(make([]byte, 0, maxLineBytes), maxLineBytes)
	for count := 0; scanner.Scan(); count++ {
		if count == maxMappings {
			return fmt.Errorf("more than %d mappings", maxMappings)
		}
		found, err := parseMapping(scanner.Text())
		if err != nil {
			return err
		}
		if err := visit(found); err != nil {
			return err
		}
	}
	return scanner.Err()
}

func parseMapping(line string) (mapping, error) {
	fields := mapsLine.FindStringSubmatch(line)
	if fields == nil {
		return mapping{}, fmt.Errorf("unknown format of a mapping: %.200q", line)
	}
	var numbers [6]uint64
	for i, field := range []struct {
		text string
		base int
	}{{fields[1], 16}, {fields[2], 16}, {fields[4], 16}, {fields[5], 16}, {fields[6], 16}, {fields[7], 10}} {
		number, err := strconv.ParseUint(field.text, field.base, 64)
		if err != nil {
			return mapping{}, fmt.Errorf("unknown format of a mapping: %w", err)
		}
		numbers[i] = number
	}
	found := mapping{
		start: numbers[0], end: numbers[1], offset: numbers[2],
		private: fields[3] == "p",
		file:    fileID{numbers[3], numbers[4], numbers[5]},
	}
	if found.end <= found.start {
		return mapping{}, fmt.Errorf("a mapping that ends before it starts: %.200q", line)
	}
	return found, nil
}

// findWhole returns the address of the only private mapping of a whole file. The kernel shows a mapping in parts if a
// part was treated separately (madvise). Parts that continue each other in memory and in the file count as one.
func findWhole(maps io.Reader, file fileID, size uint64) (uint64, error) {
	var found []uint64
	var current mapping
	flush := func() {
		if current.offset == 0 && current.size() == size {
			found = append(found, current.start)
		}
		current = mapping{}
	}
	err := readMappings(maps, func(next mapping) error {
		isPart := next.private && next.file == file
		if isPart && current.end == next.start && current.offset+current.size() == next.offset {
			current.end = next.end
			return nil
		}
		flush()
		if isPart {
			current = next
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	flush()
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return 0, errors.New("the process has no private mapping of the whole file")
	default:
		return 0, fmt.Errorf("the process has %d private mappings of the whole file", len(found))
	}
}
