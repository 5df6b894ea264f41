package objects

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"
)

// Health records when operations of a store last succeeded and last failed, each attempt on its own.
type Health struct {
	mutex sync.Mutex
	last  HealthRecord
}

// HealthRecord has zero times for what did not happen yet.
type HealthRecord struct {
	Success, Failure time.Time
	// Error is the last failure.
	Error string
}

// Last returns the record.
func (h *Health) Last() HealthRecord {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.last
}

func (h *Health) record(ctx context.Context, err error) {
	isAnswer := err == nil || errors.Is(err, ErrNotFound)
	if !isAnswer && ctx.Err() != nil && !errors.Is(err, ErrUnavailable) {
		return // the caller left
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if isAnswer {
		h.last.Success = time.Now()
	} else {
		h.last.Failure, h.last.Error = time.Now(), err.Error()
	}
}

type healthKey struct{}

// recordAttempt is called for attempts that are repeated, whose errors no caller sees.
func recordAttempt(ctx context.Context, err error) {
	if health, ok := ctx.Value(healthKey{}).(*Health); ok {
		health.record(ctx, err)
	}
}

// Watch returns the store, whose operations a health records.
func Watch(store Store, health *Health) Store { return watched{store, health} }

type watched struct {
	store  Store
	health *Health
}

func (w watched) with(ctx context.Context) context.Context {
	return context.WithValue(ctx, healthKey{}, w.health)
}

func (w watched) Put(ctx context.Context, key string, content []byte) error {
	err := w.store.Put(w.with(ctx), key, content)
	w.health.record(ctx, err)
	return err
}

func (w watched) PutIfAbsent(ctx context.Context, key string, content []byte) (bool, error) {
	isWritten, err := w.store.PutIfAbsent(w.with(ctx), key, content)
	w.health.record(ctx, err)
	return isWritten, err
}

func (w watched) Get(ctx context.Context, key string, part Range) ([]byte, error) {
	content, err := w.store.Get(w.with(ctx), key, part)
	w.health.record(ctx, err)
	return content, err
}

func (w watched) List(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		var last error
		for info, err := range w.store.List(w.with(ctx), prefix, after) {
			last = err
			if !yield(info, err) {
				break
			}
		}
		w.health.record(ctx, last)
	}
}

func (w watched) Delete(ctx context.Context, key string) error {
	err := w.store.Delete(w.with(ctx), key)
	w.health.record(ctx, err)
	return err
}
