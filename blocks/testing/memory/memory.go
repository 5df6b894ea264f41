// Package memory is an object store in memory, for tests that stop, delay or break single operations.
package memory

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"coppice/blocks/internal/objects"
)

// Store implements objects.Store.
type Store struct {
	// Before is called before each operation; an error prevents it. It may block.
	Before func(operation, key string) error
	// After is called after each operation that succeeded; an error replaces the answer.
	After func(operation, key string) error

	mutex   sync.Mutex
	content map[string][]byte
}

// New returns an empty store.
func New() *Store {
	return &Store{content: map[string][]byte{}}
}

// Put implements objects.Store.
func (s *Store) Put(ctx context.Context, key string, content []byte) error {
	return s.run(ctx, "put", key, func() error {
		s.content[key] = slices.Clone(content)
		return nil
	})
}

// PutIfAbsent implements objects.Store.
func (s *Store) PutIfAbsent(ctx context.Context, key string, content []byte) (isWritten bool, err error) {
	err = s.run(ctx, "create", key, func() error {
		if _, exists := s.content[key]; !exists {
			s.content[key] = slices.Clone(content)
			isWritten = true
		}
		return nil
	})
	return isWritten, err
}

// Get implements objects.Store.
func (s *Store) Get(ctx context.Context, key string, part objects.Range) (content []byte, err error) {
	err = s.run(ctx, "get", key, func() error {
		found, exists := s.content[key]
		if !exists || part.Offset > 0 && part.Offset >= int64(len(found)) {
			return fmt.Errorf("%w: %s", objects.ErrNotFound, key)
		}
		end := int64(len(found))
		if part.Length > 0 {
			end = min(end, part.Offset+part.Length)
		}
		content = slices.Clone(found[part.Offset:end])
		return nil
	})
	return content, err
}

// List implements objects.Store.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[objects.Info, error] {
	return func(yield func(objects.Info, error) bool) {
		var found []objects.Info
		err := s.run(ctx, "list", prefix, func() error {
			for _, key := range slices.Sorted(maps.Keys(s.content)) {
				if strings.HasPrefix(key, prefix) && key > after {
					found = append(found, objects.Info{Key: key, Size: int64(len(s.content[key]))})
				}
			}
			return nil
		})
		if err != nil {
			yield(objects.Info{}, err)
			return
		}
		for _, info := range found {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// Delete implements objects.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	return s.run(ctx, "delete", key, func() error {
		delete(s.content, key)
		return nil
	})
}

// Damage inverts one bit of an object.
func (s *Store) Damage(key string, offset int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.content[key][offset] ^= 1
}

// Keys returns the keys that begin with a prefix.
func (s *Store) Keys(prefix string) (keys []string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, key := range slices.Sorted(maps.Keys(s.content)) {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys
}

func (s *Store) run(ctx context.Context, operation, key string, act func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if operation != "list" {
		if err := objects.CheckKey(key); err != nil {
			return err
		}
	}
	if s.Before != nil {
		if err := s.Before(operation, key); err != nil {
			return err
		}
	}
	s.mutex.Lock()
	err := act()
	s.mutex.Unlock()
	if err == nil && s.After != nil {
		err = s.After(operation, key)
	}
	return err
}
