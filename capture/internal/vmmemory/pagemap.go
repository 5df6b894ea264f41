package vmmemory

import (
	"encoding/binary"
	"fmt"

	"coppice/capture/internal/fault"
)

// Of an entry of pagemap (Documentation/admin-guide/mm/pagemap.rst).
const (
	pagePresent      = 1 << 63
	pageSwapped      = 1 << 62
	pageFileOrShared = 1 << 61
	entryBytes       = 8
)

// 256 MiB of RAM a read.
const scanEntries = 64 << 10

// isPrivate tells pages that the VM has changed from those that are still the base's. A page that is being migrated
// looks swapped, whosever it is.
func isPrivate(entry uint64) bool {
	return entry&(pagePresent|pageSwapped) != 0 && entry&pageFileOrShared == 0
}

// Scan calls visit for each run of changed pages, in order.
func (m *Memory) Scan(visit func(Run) error) error {
	buffer := make([]byte, scanEntries*entryBytes)
	var run Run
	for page := uint64(0); page < m.size/PageSize; {
		wanted := min(scanEntries, m.size/PageSize-page) * entryBytes
		count, err := m.pagemap.ReadAt(buffer[:wanted], int64((m.address/PageSize+page)*entryBytes))
		if uint64(count) != wanted {
			if !m.isAlive() || count == 0 {
				return fault.ErrVMGone
			}
			return fmt.Errorf("reading pagemap: %d bytes instead of %d: %w", count, wanted, err)
		}
		for at := 0; at < count; at, page = at+entryBytes, page+1 {
			if !isPrivate(binary.LittleEndian.Uint64(buffer[at:])) {
				continue
			}
			if run.Offset+run.Length == page*PageSize {
				run.Length += PageSize
				continue
			}
			if run.Length > 0 {
				if err := visit(run); err != nil {
					return err
				}
			}
			run = Run{Offset: page * PageSize, Length: PageSize}
		}
	}
	if run.Length > 0 {
		return visit(run)
	}
	return nil
}
