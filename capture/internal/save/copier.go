package save

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"coppice/capture/internal/vmmemory"
)

// bufferBytes is small enough to stay in a core's own cache between reading and writing.
const bufferBytes = 256 << 10

// copier is one thread's part of a pass.
type copier struct {
	*transfer
	scanner  vmmemory.Scanner
	buffer   []byte
	direct   []vmmemory.Run
	buffered []vmmemory.Run
	// length is the number of bytes in buffered.
	length uint64
}

func newCopier(transfer *transfer) *copier {
	return &copier{transfer: transfer, buffer: make([]byte, bufferBytes)}
}

func (c *copier) copyPart(part vmmemory.Run) (int64, error) {
	runs, err := c.scanner.Scan(c.memory, part)
	if err != nil {
		return 0, err
	}
	for _, run := range runs {
		c.changed.add(run)
	}
	copied := int64(0)
	for run := range c.changed.runs(part, true) {
		copied += int64(run.Length)
		if err := c.copyRun(run); err != nil {
			return 0, err
		}
	}
	if err := c.flushDirect(); err != nil {
		return 0, err
	}
	return copied, c.flushBuffered()
}

func (c *copier) copyRun(run vmmemory.Run) error {
	// A write in these loops adds its pages to prepared. That does not affect the loops, because they do not look again
	// at pages that they have yielded.
	for part := range c.prepared.runs(run, true) {
		if err := c.copyDirectly(part); err != nil {
			return err
		}
	}
	for part := range c.prepared.runs(run, false) {
		if err := c.copyBuffered(part); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) copyDirectly(run vmmemory.Run) error {
	c.direct = append(c.direct, run)
	if len(c.direct) == vmmemory.MaxRuns {
		return c.flushDirect()
	}
	return nil
}

func (c *copier) flushDirect() error {
	runs := c.direct
	c.direct = c.direct[:0]
	if len(runs) == 0 || c.memory.ReadInto(c.mapped, runs) {
		return nil
	}
	// Reading and writing separately shows whether the VM or the disk fails.
	for _, run := range runs {
		if err := c.copyBuffered(run); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) copyBuffered(run vmmemory.Run) error {
	for run.Length > 0 {
		length := min(run.Length, bufferBytes-c.length)
		c.buffered = append(c.buffered, vmmemory.Run{Offset: run.Offset, Length: length})
		c.length += length
		run.Offset, run.Length = run.Offset+length, run.Length-length
		if c.length < bufferBytes && len(c.buffered) < vmmemory.MaxRuns {
			continue
		}
		if err := c.flushBuffered(); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) flushBuffered() error {
	runs, bytes := c.buffered, c.buffer[:c.length]
	c.buffered, c.length = c.buffered[:0], 0
	if len(runs) == 0 {
		return nil
	}
	if err := c.memory.Read(bytes, runs); err != nil {
		return err
	}
	for _, run := range runs {
		if err := c.writeRun(run, bytes[:run.Length]); err != nil {
			return err
		}
		bytes = bytes[run.Length:]
	}
	return nil
}

// writeRun leaves out pages that are zeros in memory and a hole in the file.
func (c *copier) writeRun(run vmmemory.Run, bytes []byte) error {
	start := uint64(0)
	for at := uint64(0); at < run.Length; at += vmmemory.PageSize {
		if c.data.has(run.Offset+at) || !isZero(bytes[at:at+vmmemory.PageSize]) {
			continue
		}
		if err := c.write(bytes[start:at], run.Offset+start); err != nil {
			return err
		}
		start = at + vmmemory.PageSize
	}
	return c.write(bytes[start:], run.Offset+start)
}

func (c *copier) write(bytes []byte, offset uint64) error {
	if len(bytes) == 0 {
		return nil
	}
	if _, err := c.file.WriteAt(bytes, int64(offset)); err != nil {
		return fmt.Errorf("writing RAM: %w", err)
	}
	run := vmmemory.Run{Offset: offset, Length: uint64(len(bytes))}
	c.data.add(run)
	c.prepare(run)
	return nil
}

// prepare makes pages of the file that have just been written writable in its mapping. A kernel before 5.14 cannot do
// that.
func (c *copier) prepare(run vmmemory.Run) {
	if c.mapped == nil {
		return
	}
	if unix.Madvise(c.mapped[run.Offset:run.Offset+run.Length], unix.MADV_POPULATE_WRITE) == nil {
		c.prepared.add(run)
	}
}

func isZero(page []byte) bool {
	for _, word := range unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(page))), len(page)/8) {
		if word != 0 {
			return false
		}
	}
	return true
}
