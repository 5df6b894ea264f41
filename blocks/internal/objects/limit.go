package objects

import (
	"context"
	"iter"
	"time"
)

// Limit returns the store, of which each operation ends after some time, however long its context allows. Work that takes
// hours fails soon when the store is away.
func Limit(store Store, each time.Duration) Store { return limited{store, each} }

type limited struct {
	store Store
	each  time.Duration
}

func (l limited) Put(ctx context.Context, key string, content []byte) error {
	ctx, cancel := context.WithTimeout(ctx, l.each)
	defer cancel()
	return l.store.Put(ctx, key, content)
}

func (l limited) PutIfAbsent(ctx context.Context, key string, content []byte) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, l.each)
	defer cancel()
	return l.store.PutIfAbsent(ctx, key, content)
}

func (l limited) Get(ctx context.Context, key string, part Range) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, l.each)
	defer cancel()
	return l.store.Get(ctx, key, part)
}

func (l limited) List(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		ctx, cancel := context.WithTimeout(ctx, l.each)
		defer cancel()
		for info, err := range l.store.List(ctx, prefix, after) {
			if !yield(info, err) {
				return
			}
		}
	}
}

func (l limited) Delete(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, l.each)
	defer cancel()
	return l.store.Delete(ctx, key)
}
