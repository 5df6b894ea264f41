package save

import (
	"os"
	"unsafe"

	"coppice/capture/internal/vmmemory"
)

const (
	batchBytes = 4 << 20
	batchCount = 4
)

// batch is memory on its way from the VM to the file.
type batch struct {
	buffer []byte
	runs   []vmmemory.Run
	length uint64
}

func (b *batch) isFull() bool {
	return b.length == uint64(len(b.buffer)) || len(b.runs) == vmmemory.MaxRuns
}

// take takes what fits of a run and answers the rest.
func (b *batch) take(run vmmemory.Run) vmmemory.Run {
	part := vmmemory.Run{Offset: run.Offset, Length: min(run.Length, uint64(len(b.buffer))-b.length)}
	b.runs = append(b.runs, part)
	b.length += part.Length
	return vmmemory.Run{Offset: run.Offset + part.Length, Length: run.Length - part.Length}
}

// copyPages copies all pages that the VM has changed; one thread reads while another one writes. data are the pages
// of the file that are not zero anyway.
func copyPages(memory *vmmemory.Memory, file *os.File, data *pageSet) (int64, error) {
	free := make(chan *batch, batchCount)
	for range batchCount {
		free <- &batch{buffer: make([]byte, batchBytes)}
	}
	full := make(chan *batch, batchCount)
	written := make(chan error, 1)
	go func() { written <- writeBatches(file, data, full, free) }()
	copied, err := readBatches(memory, free, full)
	close(full)
	if writeErr := <-written; writeErr != nil {
		return copied, writeErr
	}
	return copied, err
}

func readBatches(memory *vmmemory.Memory, free <-chan *batch, full chan<- *batch) (int64, error) {
	copied := int64(0)
	current := <-free
	flush := func() error {
		if err := memory.Read(current.buffer[:current.length], current.runs); err != nil {
			return err
		}
		copied += int64(current.length)
		full <- current
		current = <-free
		current.runs, current.length = current.runs[:0], 0
		return nil
	}
	err := memory.Scan(func(run vmmemory.Run) error {
		for run.Length > 0 {
			run = current.take(run)
			if !current.isFull() {
				continue
			}
			if err := flush(); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && current.length > 0 {
		err = flush()
	}
	return copied, err
}

// writeBatches goes on emptying after an error, so that the reader is never held up.
func writeBatches(file *os.File, data *pageSet, full <-chan *batch, free chan<- *batch) error {
	var failure error
	for batch := range full {
		if failure == nil {
			failure = writeBatch(file, data, batch)
		}
		free <- batch
	}
	return failure
}

func writeBatch(file *os.File, data *pageSet, batch *batch) error {
	rest := batch.buffer
	for _, run := range batch.runs {
		if err := writeRun(file, data, run, rest[:run.Length]); err != nil {
			return err
		}
		rest = rest[run.Length:]
	}
	return nil
}

// writeRun leaves out pages that are zero in memory and in the file.
func writeRun(file *os.File, data *pageSet, run vmmemory.Run, bytes []byte) error {
	start := uint64(0)
	for at := uint64(0); at < run.Length; at += vmmemory.PageSize {
		if data.has(run.Offset+at) || !isZero(bytes[at:at+vmmemory.PageSize]) {
			continue
		}
		if err := writeAt(file, bytes[start:at], run.Offset+start); err != nil {
			return err
		}
		start = at + vmmemory.PageSize
	}
	return writeAt(file, bytes[start:], run.Offset+start)
}

func writeAt(file *os.File, bytes []byte, offset uint64) error {
	if len(bytes) == 0 {
		return nil
	}
	_, err := file.WriteAt(bytes, int64(offset))
	return err
}

func isZero(page []byte) bool {
	for _, word := range unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(page))), len(page)/8) {
		if word != 0 {
			return false
		}
	}
	return true
}
