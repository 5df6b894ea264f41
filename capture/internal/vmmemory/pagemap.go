package vmmemory

import (
	"encoding/binary"
	"fmt"

	"coppice/capture/internal/fault"
)

// The format of a pagemap entry (Documentation/admin-guide/mm/pagemap.rst).
const (
	pagePresent      = 1 << 63
	pageSwapped      = 1 << 62
	pageFileOrShared = 1 << 61
	entryBytes       = 8
)

// PartBytes is the amount of RAM that is scanned at a time.
const PartBytes = 32 << 20

// Scanner finds changed pages. Each thread needs its own.
type Scanner struct {
	entries [PartBytes / PageSize * entryBytes]byte
	runs    []Run
}

// isPrivate reports whether the VM has changed a page, so that it is no longer the base's. A page that is being
// migrated looks swapped, no matter whose it is.
func isPrivate(entry uint64) bool {
	return entry&(pagePresent|pageSwapped) != 0 && entry&pageFileOrShared == 0
}

// Scan returns the runs of changed pages in a part of at most PartBytes, in order. They are valid until the next call.
func (s *Scanner) Scan(memory *Memory, part Run) ([]Run, error) {
	entries := s.entries[:part.Length/PageSize*entryBytes]
	if err := memory.readPagemap(entries, part.Offset); err != nil {
		return nil, err
	}
	s.runs = s.runs[:0]
	var run Run
	for at := 0; at < len(entries); at += entryBytes {
		if isPrivate(binary.LittleEndian.Uint64(entries[at:])) {
			if run.Length == 0 {
				run.Offset = part.Offset + uint64(at)/entryBytes*PageSize
			}
			run.Length += PageSize
		} else if run.Length > 0 {
			s.runs = append(s.runs, run)
			run = Run{}
		}
	}
	if run.Length > 0 {
		s.runs = append(s.runs, run)
	}
	return s.runs, nil
}

func (m *Memory) readPagemap(entries []byte, offset uint64) error {
	count, err := m.pagemap.ReadAt(entries, int64((m.address+offset)/PageSize*entryBytes))
	if count == len(entries) {
		return nil
	}
	// If the process has ended, the read returns nothing, without an error.
	if count == 0 || !m.isAlive() {
		return fault.ErrVMGone
	}
	return fmt.Errorf("reading pagemap: %d bytes instead of %d: %w", count, len(entries), err)
}
