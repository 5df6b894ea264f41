package save

import (
	"coppice/capture/internal/ramfile"
	"coppice/capture/internal/vmmemory"
)

// pageSet is a bit for each page of RAM.
type pageSet struct{ words []uint64 }

func newPageSet(sizeBytes int64) *pageSet {
	return &pageSet{words: make([]uint64, (sizeBytes/vmmemory.PageSize+63)/64)}
}

// add adds all pages that the extent touches.
func (s *pageSet) add(extent ramfile.Extent) {
	last := (extent.Offset + extent.Length - 1) / vmmemory.PageSize
	for page := extent.Offset / vmmemory.PageSize; page <= last; page++ {
		s.words[page/64] |= 1 << (page % 64)
	}
}

func (s *pageSet) has(offset uint64) bool {
	page := offset / vmmemory.PageSize
	return s.words[page/64]&(1<<(page%64)) != 0
}
