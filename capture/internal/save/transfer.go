package save

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"coppice/capture/internal/vmmemory"
)

// maxThreads is small, because more threads would only wait for the memory, and for each other at the VM's page tables.
const maxThreads = 4

// transfer copies what a VM has changed to its file, in two passes of the same kind. The first pass, of a running VM,
// pays for everything that is expensive about writing a file: blocks, pages of the cache, their places in a mapping of
// the file. For pages that it has prepared this way, the second pass, for which the VM is stopped, is one copy from
// memory to memory. The second pass copies all pages that are changed by then and all that the first pass copied: the
// first copy was not of a single moment, and a page can also become the base's again.
type transfer struct {
	memory *vmmemory.Memory
	file   *os.File
	size   uint64
	// mapped is the whole file. It is nil if the file cannot be mapped; then no page is prepared.
	mapped []byte
	// changed holds the pages that were changed in any pass.
	changed *pageSet
	// data holds the pages of the file that are not holes. In holes, pages of zeros need not be written.
	data *pageSet
	// prepared holds the pages with a place in mapped that can be written to at once.
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

// pass copies all pages that are changed now or were changed in an earlier pass, and returns the number of bytes.
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
