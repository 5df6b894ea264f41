package save

import (
	"iter"

	"coppice/capture/internal/ramfile"
	"coppice/capture/internal/vmmemory"
)

// pageSet has a bit for each page of RAM. Threads may change different parts (vmmemory.PartBytes) of it at the same
// time.
type pageSet struct{ words []uint64 }

func newPageSet(sizeBytes int64) *pageSet {
	return &pageSet{words: make([]uint64, (sizeBytes/vmmemory.PageSize+63)/64)}
}

func (s *pageSet) add(run vmmemory.Run) {
	for page := run.Offset / vmmemory.PageSize; page < (run.Offset+run.Length)/vmmemory.PageSize; page++ {
		s.words[page/64] |= 1 << (page % 64)
	}
}

// addExtent adds all pages that the extent touches.
func (s *pageSet) addExtent(extent ramfile.Extent) {
	start := uint64(extent.Offset) / vmmemory.PageSize * vmmemory.PageSize
	end := (uint64(extent.Offset+extent.Length) + vmmemory.PageSize - 1) / vmmemory.PageSize * vmmemory.PageSize
	s.add(vmmemory.Run{Offset: start, Length: end - start})
}

func (s *pageSet) has(offset uint64) bool {
	page := offset / vmmemory.PageSize
	return s.words[page/64]&(1<<(page%64)) != 0
}

// runs yields the longest runs of pages of a range that are all in the set (wanted is true), or all not in it.
func (s *pageSet) runs(within vmmemory.Run, wanted bool) iter.Seq[vmmemory.Run] {
	return func(yield func(vmmemory.Run) bool) {
		run := vmmemory.Run{}
		for offset := within.Offset; offset < within.Offset+within.Length; offset += vmmemory.PageSize {
			switch {
			case s.has(offset) == wanted:
				if run.Length == 0 {
					run.Offset = offset
				}
				run.Length += vmmemory.PageSize
			case run.Length > 0:
				if !yield(run) {
					return
				}
				run.Length = 0
			}
		}
		if run.Length > 0 {
			yield(run)
		}
	}
}
