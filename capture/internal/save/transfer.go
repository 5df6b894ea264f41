package save

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"coppice/capture/internal/vmmemory"
)

// More threads would only wait for the memory, and for each other at the VM's page tables.
const maxThreads = 4

// transfer copies what a VM has changed to its file, in two passes of the same kind. The first one, of a running VM,
// pays for all that is dear about writing a file: blocks, pages of the cache, their places in a mapping of the file. For
// pages that it has prepared so, the second one, for which the VM is stopped, is one copy from memory to memory. The
// second one copies all that is changed by then and all that the first one copied: what that got was of no one moment,
// and a page can also go back to being the base's.
type transfer struct {
	memory *vmmemory.Memory
	file   *os.File
	size   uint64
	// All of the file; nil where that cannot be, and then no page is prepared.
	mapped []byte
	// Pages that were changed in any pass.
	changed *pageSet
	// Pages of the file that are not holes. Elsewhere pages of zeros need not be written.
	data *pageSet
	// Pages with a place in mapped that can be written to at once.
	prepared *pageSet
}

func newTransfer(memory *vmmemory.Memory, file *os.File, size int64, data *pageSet) *transfer {
	mapped, err := unix.Mmap(int(file.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		mapped = nil
	}
	return &transfer{
		memory: memory, file: file, size: uint64(size), mapped: mapped,
		changed: newPageSet(size), data: data, prepared: newPageSet(size),
	}
}

func (t *transfer) close() {
	if t.mapped != nil {
		_ = unix.Munmap(t.mapped)
		t.mapped = nil
	}
}

// pass copies all pages that are changed now, or were so in the pass before, and answers how many bytes that is.
func (t *transfer) pass() (int64, error) {
	var next, copied atomic.Int64
	var failure atomic.Pointer[error]
	var threads sync.WaitGroup
	for range min(runtime.NumCPU(), maxThreads) {
		threads.Add(1)
		go func() {
			defer threads.Done()
			copier := newCopier(t)
			for failure.Load() == nil {
				offset := uint64(next.Add(1)-1) * vmmemory.PartBytes
				if offset >= t.size {
					return
				}
				bytes, err := copier.copyPart(vmmemory.Run{Offset: offset, Length: min(vmmemory.PartBytes, t.size-offset)})
				if err != nil {
					failure.Store(&err)
					return
				}
				copied.Add(bytes)
			}
		}()
	}
	threads.Wait()
	if err := failure.Load(); err != nil {
		return 0, *err
	}
	return copied.Load(), t.memory.Check()
}
