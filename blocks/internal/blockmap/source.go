package blockmap

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"coppice/blocks/internal/cache"
	"coppice/blocks/internal/objects"
	"coppice/blocks/internal/segment"
)

const (
	// chunkBytes is the unit in which segments are fetched and kept: a read of the store costs more than its bytes.
	chunkBytes   = 256 << 10
	leafMemory   = 48 << 10
	leafCount    = 1024
	frameMemory  = 64 << 20
	chunkMemory  = 32 << 20
	maxFetches   = 32
	corruptTries = 2
)

// Source reads and verifies objects for all versions of a process, through one cache.
type Source struct {
	Store objects.Store
	disk  *cache.Disk

	leaves *cache.Memory[segment.Hash, *Leaf]
	frames *cache.Memory[segment.Place, []byte]
	// chunks are kept in memory only if there is no disk: a chunk has several frames.
	chunks *cache.Memory[string, []byte]
	slots  chan struct{}

	mutex   sync.Mutex
	flights map[string]*flight
}

type flight struct {
	done    chan struct{}
	content []byte
	err     error
}

// NewSource makes a source; disk may be nil.
func NewSource(store objects.Store, disk *cache.Disk) *Source {
	return &Source{
		Store:   store,
		disk:    disk,
		leaves:  cache.NewMemory[segment.Hash, *Leaf](leafCount * leafMemory),
		frames:  cache.NewMemory[segment.Place, []byte](frameMemory),
		chunks:  cache.NewMemory[string, []byte](chunkMemory),
		slots:   make(chan struct{}, maxFetches),
		flights: map[string]*flight{},
	}
}

// Root reads a root. The zero hash is that of an empty disk.
func (s *Source) Root(ctx context.Context, org string, name segment.Hash) (*Root, error) {
	if name == (segment.Hash{}) {
		return &Root{}, nil
	}
	stored, err := s.object(ctx, RootKey(org, name), name)
	if err != nil {
		return nil, err
	}
	return decodeRoot(stored)
}

// Leaf reads a leaf, which the caller must not change.
func (s *Source) Leaf(ctx context.Context, org string, name segment.Hash) (*Leaf, error) {
	if name == (segment.Hash{}) {
		return &Leaf{}, nil
	}
	if leaf, ok := s.leaves.Find(name); ok {
		return leaf, nil
	}
	stored, err := s.object(ctx, LeafKey(org, name), name)
	if err != nil {
		return nil, err
	}
	leaf, err := decodeLeaf(stored)
	if err == nil {
		s.leaves.Add(name, leaf, leafMemory)
	}
	return leaf, err
}

// object reads an object that its hash names.
func (s *Source) object(ctx context.Context, key string, name segment.Hash) ([]byte, error) {
	for try := 1; ; try++ {
		stored, err := s.fetch(ctx, name.String(), key, objects.Range{})
		if err != nil {
			return nil, err
		}
		if segment.HashOf(stored) == name {
			return stored, nil
		}
		s.drop(name.String())
		if try == corruptTries {
			return nil, fmt.Errorf("%w: the hash of %s differs", segment.ErrCorrupt, key)
		}
	}
}

// Frame reads the pages of a frame, which the caller must not change. Wrong bytes may come from a torn file of the
// cache, so they are fetched once more before they are reported.
func (s *Source) Frame(ctx context.Context, org string, at segment.Place) ([]byte, error) {
	if pages, ok := s.frames.Find(at); ok {
		return pages, nil
	}
	for try := 1; ; try++ {
		stored, err := s.stored(ctx, org, at)
		if err != nil {
			return nil, err
		}
		pages, err := segment.Decode(at, stored)
		if err == nil {
			s.frames.Add(at, pages, int64(cap(pages)))
			return pages, nil
		}
		for chunk := at.Offset / chunkBytes; chunk <= (at.Offset+at.Length-1)/chunkBytes; chunk++ {
			s.drop(chunkName(at.Segment, chunk))
		}
		if try == corruptTries {
			return nil, err
		}
	}
}

// stored joins the parts of a frame, which may cross the ends of chunks.
func (s *Source) stored(ctx context.Context, org string, at segment.Place) ([]byte, error) {
	if at.Length == 0 {
		return nil, fmt.Errorf("%w: an empty frame", segment.ErrCorrupt)
	}
	var joined []byte
	for offset, end := at.Offset, at.Offset+at.Length; offset < end; {
		chunk := offset / chunkBytes
		first := offset - chunk*chunkBytes
		length := min(end-offset, chunkBytes-first)
		part, err := s.part(ctx, org, at.Segment, chunk, int64(first), int64(length))
		if err != nil {
			return nil, err
		}
		joined = append(joined, part...)
		offset += length
	}
	return joined, nil
}

func (s *Source) part(ctx context.Context, org string, id segment.Hash, chunk uint32, first, length int64) ([]byte, error) {
	name := chunkName(id, chunk)
	if s.disk != nil {
		if part := s.disk.Read(name, first, length); part != nil {
			return part, nil
		}
		// It is absent, or torn and too short.
		s.disk.Drop(name)
	} else if content, ok := s.chunks.Find(name); ok && first+length <= int64(len(content)) {
		return content[first : first+length], nil
	}
	part := objects.Range{Offset: int64(chunk) * chunkBytes, Length: chunkBytes}
	content, err := s.fetch(ctx, name, segment.Key(org, id), part)
	if err != nil {
		return nil, err
	}
	if s.disk == nil {
		s.chunks.Add(name, content, int64(len(content)))
	}
	// A part that is too short fails when it is decoded.
	return content[min(first, int64(len(content))):min(first+length, int64(len(content)))], nil
}

// fetch reads from the cache or the store; concurrent calls for one name share one request.
func (s *Source) fetch(ctx context.Context, name, key string, part objects.Range) ([]byte, error) {
	for {
		s.mutex.Lock()
		running, isRunning := s.flights[name]
		if !isRunning {
			running = &flight{done: make(chan struct{})}
			s.flights[name] = running
		}
		s.mutex.Unlock()
		if !isRunning {
			running.content, running.err = s.fetchNow(ctx, name, key, part)
			s.mutex.Lock()
			delete(s.flights, name)
			s.mutex.Unlock()
			close(running.done)
			return running.content, running.err
		}
		select {
		case <-running.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		// The other caller may have been stopped; that does not concern this one.
		isOther := errors.Is(running.err, context.Canceled) || errors.Is(running.err, context.DeadlineExceeded)
		if !isOther || ctx.Err() != nil {
			return running.content, running.err
		}
	}
}

func (s *Source) fetchNow(ctx context.Context, name, key string, part objects.Range) (content []byte, err error) {
	if s.disk != nil {
		if content = s.disk.ReadAll(name); content != nil {
			return content, nil
		}
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	err = objects.Retry(ctx, "reading "+key, func(ctx context.Context) (err error) {
		content, err = s.Store.Get(ctx, key, part)
		return err
	})
	if err == nil && s.disk != nil {
		s.disk.Put(name, content)
	}
	return content, err
}

func (s *Source) drop(name string) {
	if s.disk != nil {
		s.disk.Drop(name)
	}
	s.chunks.Drop(name)
}

func chunkName(id segment.Hash, chunk uint32) string {
	return fmt.Sprintf("%s-%d", id, chunk)
}
